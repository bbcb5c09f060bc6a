"""Re-embedding from the compacted event topic instead of truth: spares the database's disks, needs the same end.

The log is read from its start to where it ended when the reading began; what comes later is written by the workers. An
event of a memory that truth does not know any more is left out: an erased person's words may lie in the log until the
broker compacts it. What the log misses (a topic younger than truth) the closing comparison adds from truth.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from processors.exceptions import FatalError, TransientError
from schemas import Memory, MemoryUpdated
from sinks.truth import Truth, scanning
from sinks.truth.collections import CollectionRow
from streams.connection import client_options
from streams.projection import entry_of
from streams.reindex.build import IN_FLIGHT, PAGE, Build
from streams.settings import Settings

log = logging.getLogger("memriver.reindex")

_TOPIC = "memory_updated"
_WAIT_MS = 1_000


def read_events(settings: Settings, truth: Truth, build: Build, row: CollectionRow) -> None:
    """Blocking, in an event loop of its own.

    Raises:
        TransientError: the broker, truth or the store is away.
        FatalError: there is no such topic.
        Lost, Halted: the work must end here; what is reached is in truth.
    """
    asyncio.run(_read(settings, truth, build, row))


async def _read(settings: Settings, truth: Truth, build: Build, row: CollectionRow) -> None:
    # No group: nobody else's position is touched, and what is reached stands in truth.
    consumer = AIOKafkaConsumer(
        **client_options(settings), group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        await consumer.start()
        try:
            await _from_start_to_end(consumer, settings.topic(_TOPIC), truth, build, row)
        finally:
            await consumer.stop()
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error


async def _from_start_to_end(
    consumer: AIOKafkaConsumer, topic: str, truth: Truth, build: Build, row: CollectionRow
) -> None:
    partitions = await _partitions(consumer, topic)
    ends: dict[Any, int] = await consumer.end_offsets(partitions)
    starts: dict[Any, int] = await consumer.beginning_offsets(partitions)
    reached = {int(number): offset for number, offset in (orjson.loads(row.reached) if row.reached else {}).items()}
    at = {place: max(starts[place], reached.get(place.partition, 0)) for place in partitions}
    consumer.assign(partitions)
    for place, offset in at.items():
        consumer.seek(place, offset)
    total = sum(max(0, ends[place] - starts[place]) for place in partitions)
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="memriver-reindex") as pool:
        try:
            await asyncio.to_thread(build.begin, row.reached, row.done, total)
            while any(at[place] < ends[place] for place in partitions):
                found = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=PAGE)
                memories: dict[str, Memory] = {}
                count = 0
                for records in found.values():
                    for record in records:
                        count += 1
                        _take(record.value, memories)
                # A compacted log ends with what is no message (its last one may be gone), so the position counts.
                for place in partitions:
                    at[place] = await consumer.position(place)
                mark = orjson.dumps({str(place.partition): offset for place, offset in at.items()}).decode()
                await asyncio.to_thread(_send, truth, build, pool, list(memories.values()), mark, count)
            await asyncio.to_thread(build.settle)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    known = await consumer.topics()
    if topic not in known:
        raise FatalError(f"there is no topic {topic}: build from truth instead")
    return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]


def _take(raw: bytes | None, memories: dict[str, Memory]) -> None:
    """The newest state of each memory on this page. A tombstone's state came before it; truth says that it is gone."""
    if raw is None:
        return
    try:
        memory = MemoryUpdated.from_bytes(raw).memory
    except ValueError:
        log.warning("an event on the log could not be read; the comparison with truth makes up for it")
        return
    known = memories.get(memory.id)
    if known is None or memory.version > known.version:
        memories[memory.id] = memory


def _send(
    truth: Truth, build: Build, pool: ThreadPoolExecutor, memories: list[Memory], reached: str, count: int
) -> None:
    with truth.reading() as connection:
        known = scanning.marks(connection, [memory.id for memory in memories]) if memories else {}
    build.send(pool, [entry_of(memory) for memory in memories if memory.id in known], reached, count)
