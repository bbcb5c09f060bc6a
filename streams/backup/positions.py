"""Backup, positions: how far each consumer group has read, kept with a backup, and set again after a restore.

They are taken before the snapshot. A message before a position was acknowledged, so its effects are in the snapshot; one
after it is read again, and changes nothing if the snapshot has it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from processors.exceptions import FatalError, TransientError
from streams.backup.file import Positions
from streams.connection import client_options
from streams.position import committed
from streams.settings import Settings

READ_BY: Mapping[str, tuple[str, ...]] = {
    "ingest": ("turns",),
    "extract": ("batches",),
    "resolve": ("candidates", "commands"),
    "feedback": ("feedback",),
    "bury": ("deadletters",),
}
"""Topics by the stage whose group reads them (`streams.agents`)."""
_ALL = tuple(topic for topics in READ_BY.values() for topic in topics)


@dataclass(frozen=True, slots=True)
class Place:
    """A partition after the reset. `lost`: messages between the backup and where the log begins now."""

    stage: str
    topic: str
    partition: int
    offset: int
    lost: int = 0
    remade: bool = False


async def positions(settings: Settings) -> Positions:
    """Where every group stands. A partition that a group never committed is left out: it begins at its start.

    Raises:
        TransientError: the broker is away.
        FatalError: a topic is missing.
    """
    counts = await partition_counts(settings, _ALL)
    found: Positions = {}
    for stage, topics in READ_BY.items():
        places = [(settings.topic(topic), at) for topic in topics for at in range(counts[topic])]
        offsets = await committed(settings, settings.group(stage), places)
        found[stage] = {
            topic: {at: offsets[name, at] for at in range(counts[topic]) if (name, at) in offsets}
            for topic in topics
            for name in (settings.topic(topic),)
        }
    return found


async def reset(settings: Settings, wanted: Positions) -> list[Place]:
    """Set the groups to these positions, or to where the log begins if that is later.

    Raises:
        FatalError: workers of a group are running; nothing of that group is changed.
        TransientError: the broker is away.
    """
    counts = await partition_counts(settings, _ALL)
    done: list[Place] = []
    for stage, topics in READ_BY.items():
        given = wanted.get(stage, {})
        places = {
            TopicPartition(settings.topic(topic), at): (topic, given.get(topic, {}).get(at, 0))
            for topic in topics
            for at in range(counts[topic])
        }
        try:
            done += await _reset(settings, stage, places)
        except KafkaError as error:
            raise TransientError(f"the broker does not answer ({type(error).__name__})") from error
    return done


async def _reset(settings: Settings, stage: str, places: dict[TopicPartition, tuple[str, int]]) -> list[Place]:
    group = settings.group(stage)
    await _is_empty(settings, group)
    consumer = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **client_options(settings))
    await consumer.start()
    try:
        consumer.assign(list(places))
        begins = await consumer.beginning_offsets(list(places))
        ends = await consumer.end_offsets(list(places))
        done = []
        for at, (topic, offset) in places.items():
            # A log that is shorter than it was is another one: all of it is new.
            remade = offset > ends[at]
            target = begins[at] if remade else max(offset, begins[at])
            lost = 0 if remade else max(0, begins[at] - offset)
            done.append(Place(stage, topic, at.partition, target, lost, remade))
        await consumer.commit({at: place.offset for at, place in zip(places, done, strict=True)})
        return done
    finally:
        await consumer.stop()


async def _is_empty(settings: Settings, group: str) -> None:
    """An active group would take the position back with its next commit."""
    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    try:
        for response in await admin.describe_consumer_groups([group]):
            for row in response.groups:
                # error, group, state, protocol type, protocol, members, …
                if row[5]:
                    raise FatalError(f"workers of {group} are running: stop all workers first")
    finally:
        await admin.close()


async def partition_counts(settings: Settings, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each of these topics has.

    Raises:
        TransientError: the broker is away.
        FatalError: a topic is missing.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        try:
            await admin.start()
            found = {row["topic"]: len(row["partitions"]) for row in await admin.describe_topics()}
        finally:
            await admin.close()
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error
    for topic in topics:
        if settings.topic(topic) not in found:
            raise FatalError(f"there is no topic {settings.topic(topic)}: run `memriver topics apply`")
    return {topic: found[settings.topic(topic)] for topic in topics}
