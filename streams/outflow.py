"""Outflow: what leaves after a commit, in its fixed order: vectors first, then the broker.

A process that was stopped for longer than its session and goes on publishes after its successor. Consumers that are up
know the older version for what it is, but a compacted topic would keep it for ever, and a replica that starts tomorrow
would read it. So whoever has published looks whether truth is further by now, and if so, says that once more. Whatever is
committed after this look is also published after it. What is gone altogether was erased: its point goes, too, should it have
come into a collection that has no tombstone of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from schemas import Memory, MemoryUpdated, Status
from sinks.truth import Truth
from sinks.truth.memories import overtaking
from sinks.truth.outbox import Outgoing, unsent
from sinks.vectors import Tombstone
from streams.producer import EventProducer
from streams.projection import VectorProjection

log = logging.getLogger("memriver.outflow")


class Outflow:
    """`delivery.Publisher`: a `memory_updated` event that a consumer sees is already searchable."""

    def __init__(
        self, producer: EventProducer, projection: VectorProjection, executor: Executor, *, truth: Truth
    ) -> None:
        self._producer = producer
        self._projection = projection
        self._executor = executor
        self._truth = truth

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        """Write vectors of the events among `messages`, then publish all of them in order; and again what is further by then."""
        loop = asyncio.get_running_loop()
        while messages:
            events = [item for item in messages if item.topic == "memory_updated" and item.payload is not None]
            memories = await loop.run_in_executor(self._executor, self._project, events) if events else []
            await self._producer.publish(messages)
            said = _said(messages, memories)
            messages = await loop.run_in_executor(self._executor, self._overtaking, said) if said else []

    def _project(self, events: Sequence[Outgoing]) -> list[Memory]:
        """The memories as they are about to be published, in this order."""
        memories = [_memory(event) for event in events]
        self._projection.write(memories)
        return memories

    def _overtaking(self, said: Mapping[str, _Said]) -> list[Outgoing]:
        """What has to be said after it: truth where it is further, and that a memory is gone.

        Before a newer event goes what its owner's events in between are: whoever committed those may not have sent them yet, and
        the newer one alone would be a gap to a reader.
        """
        with self._truth.reading() as connection:
            newer, gone = overtaking(connection, {key: last.version for key, last in said.items()})
            between = unsent(connection, "memory_updated", {event.memory.owner_key for event in newer})
        gone = [key for key in gone if not said[key].gone]
        if gone:
            self._projection.bury([Tombstone(key, said[key].version) for key in gone])
        if newer or gone:
            log.warning("%d events came after newer ones: truth is sent once more", len(newer) + len(gone))
        again = between + [message for event in newer for message in _messages(event)]
        return again + [_tombstone(key, said[key].owner_key, said[key].version) for key in gone]


def _memory(event: Outgoing) -> Memory:
    return event.memory or MemoryUpdated.from_bytes(event.payload or b"").memory


@dataclass(frozen=True, slots=True)
class _Said:
    """The last thing that was said of a memory: that it is so at this version, or that it is gone."""

    owner_key: str
    version: int
    gone: bool


def _said(messages: Sequence[Outgoing], memories: Sequence[Memory]) -> dict[str, _Said]:
    """By id; `memories` are those of the events among `messages`, in order. A tombstone that names no version ends none."""
    versions = iter(memories)
    said: dict[str, _Said] = {}
    for message in messages:
        if message.topic == "memory_updated":
            version = next(versions).version if message.payload is not None else message.version or 0
            before = said[message.key].version if message.key in said else 0
            said[message.key] = _Said(message.partition_key, max(version, before), message.payload is None)
    return said


def _tombstone(key: str, owner_key: str, version: int) -> Outgoing:
    return Outgoing("memory_updated", key, owner_key, None, version=version)


def _messages(event: MemoryUpdated) -> list[Outgoing]:
    key, owner_key = event.memory.id, event.memory.owner_key
    messages = [Outgoing("memory_updated", key, owner_key, event.to_bytes(), memory=event.memory)]
    if event.memory.status is Status.DELETED:
        messages.append(_tombstone(key, owner_key, event.memory.version))
    return messages
