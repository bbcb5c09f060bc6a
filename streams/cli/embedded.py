"""Command line, embedded mode: broker, database, vectors and stages in one process and one directory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from pydantic import SecretStr

from schemas import MemoryUpdated
from sinks.truth import batches, outbox
from sinks.truth.migrate import upgrade
from streams.broker import EmbeddedBroker
from streams.connection import client_options
from streams.runtime import Runtime
from streams.settings import ALL_STAGES, Settings, StageName
from streams.topics import declared

MAX_OPEN_BATCHES = 64
"""Batches that may wait for the model before intake pauses: each may hold 4 MB, and so may a partition."""


class Seldom(logging.Filter):
    """Lets a message through once in so many seconds: a client without its broker says the same a hundred times a second."""

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """By the message before its values are filled in."""
        message = str(record.msg)
        last = self._last.get(message)
        if last is not None and record.created - last < self._seconds:
            return False
        if len(self._last) > 1_000:
            self._last.clear()
        self._last[message] = record.created
        return True


def quiet_logs(level: str) -> None:
    """One line per message on stderr; the libraries speak only of trouble, and of the same trouble now and then."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("faust", "aiokafka", "mode", "kafka", "httpx", "openai", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("aiokafka").addFilter(Seldom())


class Embedded:
    """A whole memriver on loopback. `start`, publish, `drained`, `stop`."""

    def __init__(self, settings: Settings, directory: Path, stages: Sequence[StageName] = ALL_STAGES) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._broker = EmbeddedBroker()
        self._broker.create([settings.topic(topic.name) for topic in declared()])
        self.settings = settings.model_copy(
            update={
                "kafka_bootstrap": self._broker.bootstrap,
                "kafka_security_protocol": "PLAINTEXT",
                "database_url": SecretStr(f"sqlite:///{directory / 'memriver.db'}"),
                "qdrant_url": "",
                "data_dir": directory,
                # Starting another interpreter takes longer than an embedded run usually has to do.
                "judge_processes": 0,
                # This broker does not wake for a message whoever waits for one: it answers when the wait is over.
                "fetch_wait_ms": 20,
            }
        )
        upgrade(self.settings.database_url.get_secret_value())
        self.failure: str | None = None
        self.runtime = Runtime(self.settings, stages, on_fatal=self._failed)
        self._events = AIOKafkaConsumer(
            self.settings.topic("memory_updated"), **client_options(self.settings), auto_offset_reset="earliest"
        )
        self._listener: asyncio.Task[None] | None = None
        self.events: list[MemoryUpdated] = []
        self.heard = 0

    def _failed(self, reason: str) -> None:
        self.failure = reason

    async def start(self, on_event: Callable[[MemoryUpdated], Any] | None = None) -> None:
        """Start everything; `on_event` sees each `memory_updated` as an agent would."""
        await self.runtime.start()
        await self._events.start()
        self._listener = asyncio.create_task(self._listen(on_event or self.events.append))

    async def _listen(self, on_event: Callable[[MemoryUpdated], Any]) -> None:
        async for record in self._events:
            self.heard += 1
            if record.value is not None:
                on_event(MemoryUpdated.from_bytes(record.value))

    async def room(self, messages: int, _bytes: int) -> None:
        """Wait until what was published has been taken in, and the model is not far behind (see `streams.broker`)."""
        await self._until(
            lambda: self._handled("ingest") >= self._sent("turns") and self._open_batches() < MAX_OPEN_BATCHES
        )

    async def drained(self) -> None:
        """Wait until every published turn has gone all the way; closes the batches that are still open.

        Raises:
            RuntimeError: a stage ended with an error.
        """
        await self._until(lambda: self._handled("ingest") >= self._sent("turns"))
        while await self.runtime.clock.close_due(everything=True):
            continue
        await self._until(self._quiet)

    def _quiet(self) -> bool:
        resolved = self._handled("resolve") >= self._sent("candidates") + self._sent("commands")
        buried = self._handled("bury") >= self._sent("deadletters")
        return resolved and buried and self._open_batches() == 0 and self._outbox() == 0

    def _handled(self, stage: str) -> int:
        progress = self.runtime.delivery.progress.get(stage)
        return progress.handled if progress else 0

    def _sent(self, topic: str) -> int:
        return self.runtime.producer.sent[topic]

    def _open_batches(self) -> int:
        with self.runtime.truth.reading() as connection:
            return batches.count_by_status(connection).get("closed", 0)

    def _outbox(self) -> int:
        with self.runtime.truth.reading() as connection:
            return outbox.size(connection)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            if self.failure is not None:
                raise RuntimeError(self.failure)
            if await asyncio.to_thread(condition):
                return
            await asyncio.sleep(0.02)

    async def stop(self) -> bool:
        """Stop everything and release the directory; see `Runtime.stop`."""
        if self._listener is not None:
            self._listener.cancel()
        await self._events.stop()
        ended = await self.runtime.stop()
        self._broker.close()
        return ended
