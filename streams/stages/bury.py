"""The dead-letter stage: what importers and stages gave up on, written to truth where people look for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from schemas import DeadLetter
from sinks.truth import deadletters
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivered, Message


class BuryStage:
    """Dead letters in, rows out. One that is known keeps its status: redriven or dropped stays so."""

    name = "bury"
    topic = "deadletters"

    def prepare(self, message: Message) -> DeadLetter:
        """Raises ValueError for anything that is not a dead letter."""
        return DeadLetter.from_bytes(message.value or b"")

    def commit(self, connection: Connection, group: Sequence[Delivered[DeadLetter]], now: datetime) -> list[Outgoing]:
        """Write those that are new."""
        deadletters.put(connection, [item.item for item in group])
        return []
