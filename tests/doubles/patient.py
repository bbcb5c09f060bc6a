"""Tests, doubles: one stage and its health over a real database, with servers that can be told what is the matter with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from processors.exceptions import TransientError
from sinks.embedders.hashing import HashingEmbedder
from sinks.truth import Truth, deadletters, outbox
from sinks.truth.outbox import Outgoing
from sinks.vectors.collection import OneCollection
from streams.delivery import Delivered, Delivery, Message
from streams.health import Health
from streams.metrics import Metrics
from tests.doubles.log import Stream, message

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
PAYLOAD = b"x" * 20_000
"""Of each message that goes out: so much that a full database shows."""


class Words:
    """A stage that sends each word on once."""

    name = "words"
    topic = "turns"

    def prepare(self, message: Message) -> str:
        return (message.value or b"").decode()

    def commit(self, connection: Connection, group: Sequence[Delivered[str]], now: datetime) -> list[Outgoing]:
        words = [item.item for item in group]
        seen = outbox.seen(connection, self.name, words)
        new = [word for word in words if word not in seen]
        outbox.receive(connection, self.name, new, now)
        return [Outgoing("out", word, word, PAYLOAD) for word in new]


@dataclass
class Servers:
    """What stands behind the stage besides the database; an error in `broken` is what a part says, until it is taken out."""

    broken: dict[str, TransientError] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)

    def say(self, part: str) -> None:
        """Raises what is the matter with the part."""
        if part in self.broken:
            raise self.broken[part]

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        """As the outflow: vectors, then the broker."""
        for part in ("model", "embedder", "vectors", "broker"):
            self.say(part)
        self.sent += [item.key for item in messages if item.topic == "out"]

    async def ping(self) -> None:
        """As the producer."""
        self.say("broker")

    def total(self) -> int:
        """As the vector store, which says nothing of a disk that is full while it is only read."""
        if "vectors" in self.broken and self.broken["vectors"].outage == "away":
            self.say("vectors")
        return 0


@dataclass
class Patient:
    """`put` words, `ask` how it is."""

    truth: Truth
    servers: Servers
    delivery: Delivery
    health: Health
    stream: Stream
    offset: int = 0

    def put(self, *words: str) -> None:
        """They have arrived."""
        for word in words:
            self.stream.put(message(self.offset, word.encode()))
            self.offset += 1

    async def ask(self) -> dict[str, Any]:
        """`/readyz`."""
        _fine, report = await self.health.ready()
        return report

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask until the answer is as wanted; the generous deadline is for hangs only."""
        async with asyncio.timeout(60):
            while True:
                report = await self.ask()
                if wanted(report):
                    return report
                await asyncio.sleep(0.01)

    def dead_letters(self) -> int:
        """How many wait."""
        with self.truth.reading() as connection:
            return deadletters.count(connection)


@asynccontextmanager
async def patient(truth: Truth, *, model: bool = False, stall_seconds: float = 1e9) -> AsyncIterator[Patient]:
    """A stage at work, and the health of its process."""
    servers, metrics = Servers(), Metrics()
    with ThreadPoolExecutor(2) as executor:
        ends: list[str] = []
        delivery = Delivery(
            truth, servers, executor, metrics, now=lambda: NOW, group_size=4, linger_seconds=0.0, on_fatal=ends.append
        )
        runtime: Any = SimpleNamespace(
            uses_vectors=True,
            truth=truth,
            collections=OneCollection(servers, HashingEmbedder()),  # type: ignore[arg-type]  # total() is what is asked
            producer=servers,
            delivery=delivery,
            metrics=metrics,
            settings=SimpleNamespace(stall_seconds=stall_seconds, model_enabled=model),
            lags=list,
            unseen=set,
        )
        stream = Stream(open_end=True)
        task = asyncio.create_task(delivery.run(stream, Words()))
        try:
            yield Patient(truth, servers, delivery, Health(runtime, now=lambda: NOW), stream)
            assert ends == []
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.to_thread(executor.shutdown)
