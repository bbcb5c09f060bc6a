"""One key with a long backlog: the others' messages do not wait for the end of it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from schemas import DeadLetter, new_id
from sinks.truth.outbox import Outgoing
from streams.broker import PARTITIONS
from streams.cli.embedded import Embedded
from streams.delivery import Delivered
from streams.producer import EventProducer
from streams.stages.bury import BuryStage
from tests.doubles.log import until
from tests.pipeline.river import settings

HOT, OTHERS = 8_000, 60
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def letter(number: int, key: str) -> Outgoing:
    """The lightest message that a stage reads, under a partition key of our choice."""
    raw = base64.b64encode(b"x" * 200).decode()
    made = DeadLetter(
        dead_letter_id=new_id(key, str(number)),
        stage="ingest",
        reason="a_test",
        detail=key,
        where=f"turns:0:{number}",
        topic="turns",
        raw=raw,
        failed_at=NOW,
    )
    return Outgoing("deadletters", made.dead_letter_id, key, made.to_bytes())


def partition(key: str) -> int:
    return zlib.crc32(key.encode()) % PARTITIONS


async def test_others_are_served_long_before_the_backlog_of_a_hot_key_is_done(tmp_path: Path) -> None:
    """Scenario: everything is on the broker already, the hot key's messages first. We expect the others among the first half.

    A consumer takes at most one fetch (1 MiB) of a partition before it turns to the next one.
    """
    others = [key for key in (f"quiet-{number}" for number in range(1_000)) if partition(key) != partition("hot")]
    embedded = Embedded(settings(), tmp_path / "data", ("bury",))
    producer = EventProducer(embedded.settings)
    await producer.start()
    await producer.publish([letter(number, "hot") for number in range(HOT)])
    await producer.publish([letter(number, others[number]) for number in range(OTHERS)])
    await producer.stop()
    order: list[str] = []
    inner = BuryStage.commit

    def watched(
        self: BuryStage, connection: Connection, group: Sequence[Delivered[DeadLetter]], now: datetime
    ) -> list[Outgoing]:
        order.extend(item.item.detail for item in group)
        return inner(self, connection, group, now)

    BuryStage.commit = watched  # type: ignore[method-assign]  # observed, not replaced
    try:
        await embedded.start()
        await until(lambda: len(order) >= HOT + OTHERS, seconds=200)
    finally:
        BuryStage.commit = inner  # type: ignore[method-assign]  # as it was
        await embedded.stop()
    last = max(place for place, key in enumerate(order) if key != "hot")
    assert last < HOT // 2
