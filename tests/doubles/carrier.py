"""Tests, doubles: groups through one stage and a real database, as `Delivery` carries them out, with nothing around it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from schemas import Candidate, Turn
from sinks.truth import Truth, outbox
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivered, Message, Stage
from tests.doubles.records import at


class Carrier:
    """Rows of the outbox included, and the last group's deleted. `now` is the worker's clock."""

    def __init__(self, truth: Truth, stage: Stage[Any], now: datetime | None = None) -> None:
        self._truth, self._stage, self._now = truth, stage, now or at(0)
        self._published: list[int] = []

    def __call__(self, items: Sequence[Turn | Candidate]) -> None:
        stage = self._stage
        messages = [Message(stage.topic, 0, place, b"", item.to_bytes(), 0.0) for place, item in enumerate(items)]
        group = [Delivered(message, stage.prepare(message)) for message in messages]

        def work(connection: Connection) -> list[Outgoing]:
            outbox.done(connection, self._published)
            return outbox.put(connection, stage.name, stage.commit(connection, group, self._now), self._now)

        self._published = [row.id for row in self._truth.run(work)]
