"""Replica, log: the topic as all its partitions, read without a consumer group; the only file that knows aiokafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from memriver_client.exceptions import TopicMissing
from memriver_client.replica.state import Place

__all__ = ["KafkaError", "Log", "OffsetOutOfRangeError", "Record"]

_log = logging.getLogger("memriver_client.replica")

_METADATA_SECONDS, _METADATA_STEPS = 2.0, 40
"""How long the broker may take to say what partitions there are."""


@dataclass(frozen=True)
class Record:
    """One record; `value` None is a tombstone, and `ends` the version it names, if it does. `written_at`: the producer's, UTC."""

    place: Place
    key: str
    value: bytes | None
    written_at: datetime
    ends: int | None = None


class Log:
    """One connection to the topic. Every method may raise KafkaError or TopicMissing; then it is opened anew."""

    def __init__(self, topic: str, settings: Mapping[str, Any]) -> None:
        self._topic = topic
        self._settings = {
            # No group: every replica reads everything, and nobody's restart makes the others stop and rebalance.
            "group_id": None,
            "enable_auto_commit": False,
            # A position that fell out of the log is an error to be heard of, not to be skipped over.
            "auto_offset_reset": "none",
            "request_timeout_ms": 15_000,
            # New partitions are noticed after that long.
            "metadata_max_age_ms": 5_000,
            **settings,
        }
        self._consumer: Any = None

    async def __aenter__(self) -> Log:
        self._consumer = AIOKafkaConsumer(**self._settings)
        try:
            await self._consumer.start()
        except BaseException:
            await _stop(self._consumer)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _stop(self._consumer)

    async def partitions(self) -> list[int]:
        """The topic's partitions, as of at most `metadata_max_age_ms` ago. Raises TopicMissing."""
        if not self._consumer.assignment():
            # A consumer learns of the topics it reads. Nothing is fetched yet: where to start depends on the answer.
            place = TopicPartition(self._topic, 0)
            self._consumer.assign([place])
            self._consumer.seek(place, 0)
            self._consumer.pause(place)
        for _ in range(_METADATA_STEPS):
            found = self._consumer.partitions_for_topic(self._topic)
            if found:
                return sorted(found)
            await asyncio.sleep(_METADATA_SECONDS / _METADATA_STEPS)
        raise TopicMissing(f"topic {self._topic} is not there")

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """First offset and the next one to be written, per partition."""
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        first = await self._consumer.beginning_offsets(places)
        ends = await self._consumer.end_offsets(places)
        return {place.partition: (first[place], ends[place]) for place in places}

    async def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """The next offset to be written, per partition."""
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        return {place.partition: end for place, end in (await self._consumer.end_offsets(places)).items()}

    def follow(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from there on, and no others."""
        self._consumer.assign([TopicPartition(self._topic, partition) for partition in positions])
        for partition, offset in positions.items():
            self._consumer.seek(TopicPartition(self._topic, partition), offset)

    async def poll(self, seconds: float) -> list[Record]:
        """What has arrived, in order within a partition; waits at most that long for the first record."""
        batches = await self._consumer.getmany(timeout_ms=int(seconds * 1000), max_records=1000)
        return [_record(record) for batch in batches.values() for record in batch]

    async def position(self, partition: int) -> int:
        """The next offset to be read; past the records that compaction or transactions left out."""
        position: int = await self._consumer.position(TopicPartition(self._topic, partition))
        return position

    async def read_partition(self, partition: int, first: int, end: int) -> AsyncIterator[list[Record]]:
        """The partition's records from `first` to before `end`, on a connection of its own so that the tail goes on."""
        async with Log(self._topic, self._settings) as beside:
            beside.follow({partition: first})
            while await beside.position(partition) < end:
                records = await beside.poll(0.5)
                yield [record for record in records if record.place.offset < end]


async def _stop(consumer: Any) -> None:
    """Ends the connection, whatever that raises.

    Above all a cancellation: with its broker away aiokafka lets out that of its own tasks, and nobody has cancelled ours.
    """
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait({stopping})
    if not stopping.cancelled() and stopping.exception() is not None:
        _log.warning("the connection did not end in order (%s)", type(stopping.exception()).__name__)


def _record(record: Any) -> Record:
    stated = dict(record.headers or ()).get("version", b"")
    return Record(
        place=Place(record.partition, record.offset),
        key=(record.key or b"").decode("utf-8", "replace"),
        value=record.value,
        written_at=datetime.fromtimestamp(max(0, record.timestamp) / 1000, timezone.utc),
        ends=int(stated) if record.value is None and stated.isdigit() else None,
    )
