"""The sealed log, read: turns from its beginning or since a moment, as far as their keys are still there."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from processors.exceptions import FatalError, TransientError
from schemas import Turn
from sinks.sealing import DataKeys, Frame, open_frame, read_frame
from sinks.truth import Truth
from streams.connection import client_options
from streams.settings import Settings

_PAGE = 1_000
_POLL_MS = 1_000


@dataclass(frozen=True, slots=True)
class SealedTurn:
    """One turn of the log, opened. `payload` is the turn as `turns` carried it (JSON); `stored_at` is when it was sealed."""

    payload: bytes
    partition: int
    offset: int
    stored_at: datetime

    @property
    def turn(self) -> Turn:
        """Decoded anew on each access; whoever judges elsewhere sends the payload."""
        return Turn.from_bytes(self.payload)


@dataclass(slots=True)
class Counts:
    """What became of the log's messages: read = given + repeated + destroyed."""

    read: int = 0
    given: int = 0
    repeated: int = 0
    destroyed: int = 0


class SealedLog:
    """Reads `turns.sealed` to the end that it had when reading began.

    Order: within a partition, and so within a conversation, that of acceptance (a turn that was sealed anew, because
    something beside it was erased, comes later). Copies are left out: of the same turn, revision and deletion only the
    first is given, unless `window` other turns lie between the two; truth knows a turn by its key in any case.

    A turn whose key is destroyed is counted and left out. A key is looked up anew for each page, so an erasure takes
    effect on a reader that is under way.

    Args:
        truth: the database that holds the data keys, which is the live one also when the turns go into a fresh schema.
    """

    def __init__(self, settings: Settings, truth: Truth, data_keys: DataKeys, *, window: int = 200_000) -> None:
        self._settings = settings
        self._topic = settings.topic("turns.sealed")
        self._truth = truth
        self._data_keys = data_keys
        self._window = window
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self.counts = Counts()

    async def turns(self, *, since: datetime | None = None) -> AsyncIterator[SealedTurn]:
        """From offset 0, or from the first turn sealed at or after `since`.

        Raises:
            TransientError: broker or database away.
            FatalError: the master key does not fit, a key was never in this database, or a seal is broken.
        """
        async for page in self.pages(since=since):
            for turn in page:
                yield turn

    async def pages(self, *, since: datetime | None = None) -> AsyncIterator[list[SealedTurn]]:
        """As `turns`, in lists of up to 1,000 (some may be empty): for those who judge many at once."""
        # No group: it takes every partition, and leaves no position behind.
        consumer = AIOKafkaConsumer(self._topic, **client_options(self._settings), group_id=None)
        try:
            await consumer.start()
            ends = await self._place(consumer, since)
            while ends:
                records = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_PAGE)
                page = [record for held in records.values() for record in held if self._within(record, ends, since)]
                if page:
                    yield await asyncio.to_thread(self._open, page)
                for partition in list(ends):
                    # Not by the records: the last offsets may be markers that no consumer is shown.
                    if await consumer.position(partition) >= ends[partition]:
                        del ends[partition]
        except UnknownTopicOrPartitionError as error:
            raise FatalError(f"there is no topic {self._topic}; run `memriver topics apply`") from error
        except KafkaError as error:
            raise TransientError(f"broker away or refusing ({type(error).__name__})") from error
        finally:
            await consumer.stop()

    async def _place(self, consumer: Any, since: datetime | None) -> dict[TopicPartition, int]:
        """Goes to the wanted place in each partition; returns where to stop."""
        partitions = sorted(consumer.assignment())
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        starts: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
        if since is not None:
            moment = int(since.timestamp() * 1000)
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, moment))
            starts = {part: found[part].offset if found.get(part) else ends[part] for part in partitions}
        for partition in partitions:
            consumer.seek(partition, starts[partition])
        return {partition: end for partition, end in ends.items() if starts[partition] < end}

    def _within(self, record: Any, ends: dict[TopicPartition, int], since: datetime | None) -> bool:
        end = ends.get(TopicPartition(record.topic, record.partition), 0)
        return bool(record.offset < end and (since is None or record.timestamp >= since.timestamp() * 1000))

    def _open(self, records: Sequence[Any]) -> list[SealedTurn]:
        frames = [read_frame(record.value or b"") for record in records]
        with self._truth.reading() as connection:
            found = self._data_keys.fetch(connection, {frame.key_id for frame in frames})
        opened: list[SealedTurn] = []
        for record, frame in zip(records, frames, strict=True):
            self.counts.read += 1
            if frame.key_id not in found:
                raise FatalError(
                    f"{record.topic}:{record.partition}:{record.offset} is sealed with a key that this database has "
                    "never had: is it the one that intake wrote to?"
                )
            key = found[frame.key_id]
            if key is None:
                self.counts.destroyed += 1
            elif self._again(frame):
                self.counts.repeated += 1
            else:
                self.counts.given += 1
                stored_at = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                opened.append(SealedTurn(open_frame(frame, key.cipher), record.partition, record.offset, stored_at))
        return opened

    def _again(self, frame: Frame) -> bool:
        if frame.message_id in self._seen:
            return True
        self._seen[frame.message_id] = None
        if len(self._seen) > self._window:
            self._seen.popitem(last=False)
        return False
