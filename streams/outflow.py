"""Outflow: what leaves after a commit, in its fixed order: vectors first, then the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from schemas import MemoryUpdated
from sinks.truth.outbox import Outgoing
from streams.producer import EventProducer
from streams.projection import VectorProjection


class Outflow:
    """`delivery.Publisher`: a `memory_updated` event that a consumer sees is already searchable."""

    def __init__(self, producer: EventProducer, projection: VectorProjection, executor: Executor) -> None:
        self._producer = producer
        self._projection = projection
        self._executor = executor

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        """Write vectors of the events among `messages`, then publish all of them in order."""
        events = [item.payload for item in messages if item.topic == "memory_updated" and item.payload is not None]
        if events:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._project, events)
        await self._producer.publish(messages)

    def _project(self, events: Sequence[bytes]) -> None:
        self._projection.write([MemoryUpdated.from_bytes(event).memory for event in events])
