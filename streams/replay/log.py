"""Replay, the log: turns out of a topic in one fixed order, from any place to any place, in constant memory."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from processors.exceptions import FatalError, TransientError
from streams.connection import client_options
from streams.settings import Settings

_POLL_MS = 1_000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """A message of the log. `payload` is the turn as `turns` carried it, None for one that nobody can read any more.

    `published_at` never falls within a partition, whatever the clocks of gateways did.
    """

    payload: bytes | None = field(repr=False)
    partition: int
    offset: int
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that a log has: per partition the first one that is kept, and the one after the last."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def between(self, positions: Mapping[int, int]) -> int:
        """Messages from `positions` to the end."""
        return sum(max(0, end - positions.get(partition, 0)) for partition, end in self.ends.items())


class TurnLog(Protocol):
    """A log of turns that can be read again. The same turn may be in it more than once; truth knows it by its key."""

    topic: str

    async def extent(self) -> Extent:
        """What is there now.

        Raises:
            TransientError: the broker is away.
            FatalError: there is no such topic.
        """

    async def since(self, moment: datetime) -> dict[int, int]:
        """Per partition the first offset that was published at or after `moment`."""

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> AsyncIterator[LoggedTurn]:
        """From `start` up to `end`: by time of publication, equal times by partition, each partition by offset.

        Raises:
            TransientError: the broker is away; reading may go on after the last turn that was given.
            FatalError: the log no longer has what is to be read.
        """


Opened = Callable[[Sequence[Any]], list[bytes | None]]
"""From records of a topic to the turns in them, in a thread."""


class KafkaLog:
    """A `TurnLog` over one topic. Outside every consumer group: no position of a worker is read or moved."""

    def __init__(self, settings: Settings, topic: str, open_records: Opened) -> None:
        self.topic = topic
        self._settings = settings
        self._name = settings.topic(topic)
        self._open = open_records

    async def extent(self) -> Extent:
        """See `TurnLog`."""
        async with _Connection(self._settings, self._name) as (consumer, places):
            starts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
            return Extent(_by_number(starts), _by_number(ends))

    async def since(self, moment: datetime) -> dict[int, int]:
        """See `TurnLog`."""
        async with _Connection(self._settings, self._name) as (consumer, places):
            found = await consumer.offsets_for_times(dict.fromkeys(places, int(moment.timestamp() * 1000)))
            ends = await consumer.end_offsets(places)
            return {place.partition: found[place].offset if found.get(place) else ends[place] for place in places}

    async def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> AsyncIterator[LoggedTurn]:
        """See `TurnLog`."""
        async with _Connection(self._settings, self._name) as (consumer, places):
            kept = await consumer.beginning_offsets(places)
            wanted = {place: start.get(place.partition, 0) for place in places}
            wanted = {place: at for place, at in wanted.items() if at < end.get(place.partition, 0)}
            for place, at in wanted.items():
                if at < kept[place]:
                    raise FatalError(
                        f"{self._name}:{place.partition} was to be read from offset {at} and begins at {kept[place]}: "
                        "what lay between is gone"
                    )
            consumer.assign(list(wanted))
            for place, at in wanted.items():
                consumer.seek(place, at)
            heads: list[tuple[datetime, int, _Source]] = []
            for place in sorted(wanted):
                await self._queue(heads, _Source(consumer, place, end[place.partition], self._open))
            while heads:
                _at, _partition, source = heads[0]
                yield source.waiting.popleft()
                heapq.heappop(heads)
                await self._queue(heads, source)

    async def _queue(self, heads: list[tuple[datetime, int, _Source]], source: _Source) -> None:
        head = await source.head()
        if head is not None:
            heapq.heappush(heads, (head.published_at, head.partition, source))


class _Source:
    """One partition: what was fetched and not given yet."""

    def __init__(self, consumer: AIOKafkaConsumer, place: TopicPartition, end: int, open_records: Opened) -> None:
        self._consumer = consumer
        self._place = place
        self._end = end
        self._open = open_records
        self._latest = datetime.fromtimestamp(0, UTC)
        self.waiting: deque[LoggedTurn] = deque()

    async def head(self) -> LoggedTurn | None:
        """The next one; None at the end."""
        while not self.waiting:
            # Not by the records: the last offsets may be markers that no consumer is shown.
            if await self._consumer.position(self._place) >= self._end:
                return None
            found = await self._consumer.getmany(self._place, timeout_ms=_POLL_MS, max_records=_PAGE)
            records = [row for rows in found.values() for row in rows if row.offset < self._end]
            if records:
                payloads = await asyncio.to_thread(self._open, records)
                self.waiting.extend(self._turn(row, raw) for row, raw in zip(records, payloads, strict=True))
        return self.waiting[0]

    def _turn(self, record: Any, payload: bytes | None) -> LoggedTurn:
        self._latest = max(self._latest, datetime.fromtimestamp(record.timestamp / 1000, UTC))
        return LoggedTurn(payload, record.partition, record.offset, self._latest)


class _Connection:
    """A consumer of no group, and the topic's partitions."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic

    async def __aenter__(self) -> tuple[AIOKafkaConsumer, list[TopicPartition]]:
        self._consumer = AIOKafkaConsumer(**client_options(self._settings), group_id=None, enable_auto_commit=False)
        try:
            await self._consumer.start()
            # Of all topics: asking for one by name would make it on a broker that creates what is asked for.
            numbers = (await self._consumer._client.fetch_all_metadata()).partitions_for_topic(self._topic)
        except KafkaError as error:
            await self._consumer.stop()
            raise TransientError(f"no broker answers ({type(error).__name__})") from error
        if not numbers:
            await self._consumer.stop()
            raise FatalError(f"there is no topic {self._topic}; run `memriver topics apply`")
        return self._consumer, [TopicPartition(self._topic, number) for number in sorted(numbers)]

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await self._consumer.stop()
        if isinstance(error, KafkaError):
            raise TransientError(f"broker away or refusing ({type(error).__name__})") from error


def _by_number(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {place.partition: offset for place, offset in offsets.items()}


def plain(records: Sequence[Any]) -> list[bytes | None]:
    """The turns of `turns`, which are the records themselves."""
    return [record.value for record in records]
