"""Backup, republishing: the events topic beside truth; what differs is told anew, by the owner's single writer.

After a restore the topic may know more than truth (a change whose cause the log no longer has), less, or something else.
Replicas apply only what is newer than what they hold, so where the topic is ahead, truth's state becomes the next version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from processors.exceptions import TransientError
from schemas import Command, CommandKind, Memory, MemoryUpdated, OwnerKind, Status, new_id
from sinks.truth import Truth, portable
from sinks.truth.outbox import Outgoing
from streams.backup.positions import partition_counts
from streams.connection import client_options
from streams.portability.importing import send, started
from streams.settings import Settings

_TOPIC = "memory_updated"
_CHUNK = 200
"""Memories in one command."""

Owner = tuple[str, OwnerKind, str]


@dataclass(frozen=True, slots=True)
class Told:
    """The last event of a memory: version, a digest of its state (None: a tombstone), and whose it is."""

    version: int
    digest: bytes | None
    owner: Owner | None


@dataclass(slots=True)
class Topic:
    """What a new replica would end with. Holds a digest for each memory: some 200 bytes."""

    last: dict[str, Told] = field(default_factory=dict)
    sequences: dict[Owner, int] = field(default_factory=dict)


@dataclass(slots=True)
class Difference:
    """Memories by what is wrong with the topic, and the commands that put it right."""

    compared: int = 0
    missing: int = 0
    behind: int = 0
    ahead: int = 0
    orphans: int = 0
    commands: int = 0

    def view(self) -> dict[str, int]:
        """For people and programs."""
        names = ("compared", "missing", "behind", "ahead", "orphans", "commands")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class _Wanted:
    """For one owner: the version that each memory must have reached when it is told, and what truth does not know."""

    floors: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)


async def republish(settings: Settings, truth: Truth, *, now: datetime, dry_run: bool = False) -> Difference:
    """Compare, and send a `republish` command for each owner with a difference. Workers may run.

    Raises:
        TransientError: a server is away. What was sent stays sent; again is harmless.
    """
    topic = await read_topic(settings)
    found, wanted = compare(truth, topic)
    commands = list(_commands(wanted, topic, now))
    found.commands = len(commands)
    if commands and not dry_run:
        async with started(settings) as producer:
            await send(producer, commands)
    return found


async def read_topic(settings: Settings) -> Topic:
    """The topic from its beginning to where it ends now.

    Raises:
        TransientError: the broker is away.
        FatalError: there is no such topic.
    """
    name = settings.topic(_TOPIC)
    count = (await partition_counts(settings, [_TOPIC]))[_TOPIC]
    partitions = [TopicPartition(name, at) for at in range(count)]
    consumer = AIOKafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **client_options(settings))
    try:
        await consumer.start()
        try:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            topic = Topic()
            while True:
                open_ones = [at for at in partitions if await consumer.position(at) < ends[at]]
                if not open_ones:
                    return topic
                for records in (await consumer.getmany(*open_ones, timeout_ms=1000)).values():
                    for record in records:
                        _tell(topic, record.key, record.value)
        finally:
            await consumer.stop()
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error


def _tell(topic: Topic, key: bytes | None, value: bytes | None) -> None:
    memory_id = (key or b"").decode("utf-8", "replace")
    before = topic.last.get(memory_id)
    if value is None:
        topic.last[memory_id] = Told(before.version if before else 0, None, before.owner if before else None)
        return
    try:
        event = MemoryUpdated.from_bytes(value)
    except ValueError:
        return  # no replica can read it either
    memory = event.memory
    owner = (memory.tenant, memory.owner_kind, memory.owner)
    topic.sequences[owner] = max(topic.sequences.get(owner, 0), event.owner_seq)
    if before is None or memory.version >= before.version:
        topic.last[memory.id] = Told(memory.version, _digest(memory), owner)


def compare(truth: Truth, topic: Topic) -> tuple[Difference, dict[Owner, _Wanted]]:
    """What has to be told, by owner."""
    found, wanted, known = Difference(), dict[Owner, _Wanted](), set[str]()
    with portable.snapshot(truth) as connection:
        for memory in portable.every_memory(connection):
            found.compared += 1
            known.add(memory.id)
            floor = _floor(memory, topic.last.get(memory.id), found)
            if floor is not None:
                owner = (memory.tenant, memory.owner_kind, memory.owner)
                wanted.setdefault(owner, _Wanted()).floors[memory.id] = floor
    for memory_id, told in topic.last.items():
        if memory_id not in known and told.digest is not None and told.owner is not None:
            found.orphans += 1
            wanted.setdefault(told.owner, _Wanted()).gone.append(memory_id)
    return found, wanted


def _floor(memory: Memory, told: Told | None, found: Difference) -> int | None:
    """The version at which truth's state must be told, None when every replica ends with it."""
    if told is None or (told.digest is None and memory.status is not Status.DELETED):
        # After a tombstone a replica may remember the version that it buried.
        found.missing += 1
        return memory.version if told is None else max(memory.version, told.version + 1)
    if told.digest is None:
        return None
    if told.version < memory.version:
        found.behind += 1
        return memory.version
    if told.version == memory.version and told.digest == _digest(memory) and memory.status is not Status.DELETED:
        return None
    if told.version == memory.version and told.digest == _digest(memory):
        found.missing += 1  # the tombstone
        return memory.version
    found.ahead += 1
    return told.version + 1


def _commands(wanted: dict[Owner, _Wanted], topic: Topic, now: datetime) -> Iterator[Outgoing]:
    for (tenant, kind, owner), work in sorted(wanted.items()):
        items: list[tuple[str, int | None]] = [
            *sorted(work.floors.items()),
            *((name, None) for name in sorted(work.gone)),
        ]
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            command = Command(
                command_id=new_id("republish", now.isoformat(), tenant, kind, owner, str(start)),
                kind=CommandKind.REPUBLISH,
                tenant=tenant,
                owner_kind=kind,
                owner=owner,
                issued_by="operator:republish",
                issued_at=now,
                payload={
                    "owner_seq": topic.sequences.get((tenant, kind, owner), 0),
                    "memories": {name: floor for name, floor in chunk if floor is not None},
                    "gone": [name for name, floor in chunk if floor is None],
                },
            )
            yield Outgoing("commands", command.owner_key, command.owner_key, command.to_bytes())


def _digest(memory: Memory) -> bytes:
    return hashlib.blake2b(memory.to_bytes(), digest_size=16).digest()
