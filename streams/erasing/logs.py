"""Erasing, the logs: what a broker keeps of somebody, what can be cut off, and when the rest is gone by itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from processors.exceptions import TransientError
from schemas import MemoryUpdated
from sinks.sealing.mentions import Mentions
from streams.connection import client_options
from streams.position import committed
from streams.settings import Settings
from streams.topics import declared

READERS = {
    "turns": "ingest",
    "batches": "extract",
    "candidates": "resolve",
    "commands": "resolve",
    "feedback": "feedback",
    "deadletters": "bury",
}
"""Topics in plain text that keep days or a month, and the stage that must have read a message before it may be cut off."""
_POLL_MS = 1_000


class Logs:
    """What erasing needs of the broker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def ages_out(self, now: datetime) -> dict[str, str]:
        """When the last message of before `now` leaves each topic, if nobody cuts it off: retention plus one segment."""
        found: dict[str, str] = {}
        for topic in declared():
            kept = int(topic.config.get("retention.ms", "-1"))
            if topic.name in READERS and kept > 0:
                longest = timedelta(milliseconds=kept + int(topic.config.get("segment.ms", "0")))
                found[topic.name] = (now + longest).isoformat()
        return found

    async def ends(self) -> dict[str, dict[int, int]]:
        """The transit topics' ends now, by topic and partition."""
        consumer = AIOKafkaConsumer(*self._names(), **client_options(self._settings), group_id=None)
        try:
            await consumer.start()
            found = await consumer.end_offsets(sorted(consumer.assignment()))
        except KafkaError as error:
            raise TransientError(f"broker away or refusing ({type(error).__name__})") from error
        finally:
            await consumer.stop()
        ends: dict[str, dict[int, int]] = {name: {} for name in READERS}
        for place, offset in found.items():
            ends[place.topic.removeprefix(self._settings.topic_prefix)][place.partition] = offset
        return ends

    async def unread(self, ends: dict[str, dict[int, int]], group_of: dict[str, str]) -> int:
        """Messages before these ends that their stage has not acknowledged yet."""
        behind = 0
        for name, places in ends.items():
            topic = self._settings.topic(name)
            done = await committed(self._settings, group_of[name], [(topic, partition) for partition in places])
            behind += sum(max(0, end - done.get((topic, partition), 0)) for partition, end in places.items())
        return behind

    async def trim(self, ends: dict[str, dict[int, int]]) -> int:
        """Cut the transit topics off before these ends, for everybody (KIP-107); returns how many messages went.

        The bytes leave the disk with their segment, within `segment.ms`.
        """
        consumer = AIOKafkaConsumer(*self._names(), **client_options(self._settings), group_id=None)
        admin = AIOKafkaAdminClient(**client_options(self._settings))
        try:
            await consumer.start()
            await admin.start()
            begun = await consumer.beginning_offsets(sorted(consumer.assignment()))
            wanted = {
                TopicPartition(self._settings.topic(name), partition): end
                for name, places in ends.items()
                for partition, end in places.items()
            }
            cut = {place: end for place, end in wanted.items() if begun.get(place, end) < end}
            if cut:
                await admin.delete_records({place: RecordsToDelete(before_offset=end) for place, end in cut.items()})
            return sum(end - begun[place] for place, end in cut.items())
        except KafkaError as error:
            raise TransientError(f"broker away or refusing ({type(error).__name__})") from error
        finally:
            await admin.close()
            await consumer.stop()

    async def events_left(self, mentions: Mentions) -> list[tuple[str, str]]:
        """(memory id, owner key) of those whose last message on `memory_updated` is about somebody who was erased."""
        return await self._last_mentions("memory_updated", mentions)

    async def traces(self, mentions: Mentions) -> dict[str, int]:
        """Messages per transit topic that can still be read and are about somebody who was erased."""
        found = dict.fromkeys(READERS, 0)
        async for name, record in self._records(READERS):
            raw = record.value
            if raw is not None and mentions.in_bytes(raw):
                found[name] += 1
        return found

    async def _last_mentions(self, name: str, mentions: Mentions) -> list[tuple[str, str]]:
        last: dict[str, tuple[str, str]] = {}
        async for _name, record in self._records([name]):
            key = (record.key or b"").decode("utf-8", "replace")
            last.pop(key, None)
            if record.value is not None and mentions.in_bytes(record.value):
                last[key] = (key, _owner_of(record.value))
        return list(last.values())

    async def _records(self, names: Iterable[str]) -> Any:
        topics = {self._settings.topic(name): name for name in names}
        consumer = AIOKafkaConsumer(
            *topics, **client_options(self._settings), group_id=None, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            places = sorted(consumer.assignment())
            ends = await consumer.end_offsets(places)
            begun = await consumer.beginning_offsets(places)
            for place in places:
                consumer.seek(place, begun[place])
            ends = {place: end for place, end in ends.items() if begun[place] < end}
            while ends:
                records = await consumer.getmany(timeout_ms=_POLL_MS)
                for place, held in records.items():
                    for record in held:
                        if record.offset < ends.get(place, 0):
                            yield topics[record.topic], record
                for place in list(ends):
                    if await consumer.position(place) >= ends[place]:
                        del ends[place]
        except UnknownTopicOrPartitionError:
            return
        except KafkaError as error:
            raise TransientError(f"broker away or refusing ({type(error).__name__})") from error
        finally:
            await consumer.stop()

    def _names(self) -> list[str]:
        return [self._settings.topic(name) for name in READERS]


def _owner_of(event: bytes) -> str:
    return MemoryUpdated.from_bytes(event).memory.owner_key
