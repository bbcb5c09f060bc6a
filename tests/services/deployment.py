"""Service tests: a deployment on real servers — topics, database, workers as processes — and what it left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr
from sqlalchemy import func, select

from schemas import MemoryUpdated
from sinks.truth import Truth, make_engine, tables, turns
from sinks.truth.migrate import upgrade
from streams.importers import Record
from streams.producer import EventProducer
from streams.publish import Published, publish_log
from streams.runtime import wall_clock
from streams.settings import Settings
from streams.topics import apply, declared
from streams.vectors import open_embedder, open_vector_store

DEADLINE = 240.0
"""Seconds after which a test gives up; a worker needs ten to start on a busy machine."""


@dataclass
class Deployment:
    """Topics under a prefix of their own, one database, and as many workers as a test starts."""

    kafka: str
    database_url: str
    prefix: str
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    settings: Settings = field(init=False)
    truth: Truth = field(init=False)

    def __post_init__(self) -> None:
        self.settings = Settings(
            _env_file=None,
            kafka_bootstrap=self.kafka,
            database_url=SecretStr(self.database_url),
            data_dir=self.directory,
            topic_prefix=self.prefix,
            model_base_url="",
            hash_key=SecretStr("a key for tests only"),
        )
        upgrade(self.database_url)
        asyncio.run(apply(self.settings))
        self.truth = Truth(make_engine(self.database_url))

    def close(self) -> None:
        """Gives back connections and topics."""
        self.truth.close()
        admin = AdminClient({"bootstrap.servers": self.kafka})
        for done in admin.delete_topics([self.settings.topic(topic.name) for topic in declared()]).values():
            done.result()

    def start(self, stages: str, *, data: Path | None = None) -> subprocess.Popen[bytes]:
        """A worker process, as a supervisor would start it."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRIVER_", "OPENAI_"))}
        environment = clean | {
            "MEMRIVER_KAFKA_BOOTSTRAP": self.kafka,
            "MEMRIVER_DATABASE_URL": self.database_url,
            "MEMRIVER_DATA_DIR": str(data or self.directory),
            "MEMRIVER_TOPIC_PREFIX": self.prefix,
            "MEMRIVER_HASH_KEY": "a key for tests only",
            "MEMRIVER_SESSION_TIMEOUT_SECONDS": "4",
            "MEMRIVER_BATCH_SECONDS": "2",
            "MEMRIVER_HTTP_PORT": "0",
            "MEMRIVER_LOG_LEVEL": "WARNING",
            **self.environment,
        }
        arguments = [sys.executable, "-m", "streams", "worker", "--stages", stages]
        with (self.directory / "worker.log").open("ab") as log:
            return subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)

    @contextmanager
    def workers(self, *stages: str) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Workers with these stages in one directory, at most one of them with vectors; ended in an orderly way."""
        started = [self.start(names) for names in stages]
        try:
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def publish(self, records: Iterable[Record]) -> Published:
        """Onto the turns topic, as an importer does."""

        async def run() -> Published:
            producer = EventProducer(self.settings)
            await producer.start()
            try:
                return await publish_log(producer, records, now=wall_clock())
            finally:
                await producer.stop()

        return asyncio.run(run())

    def counts(self) -> dict[str, int]:
        """Rows of the tables that grow."""
        return counts(self.truth)

    def wait(self, condition: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Until it holds; a worker that ends meanwhile is a failure and shows its last words."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            ended = [process.returncode for process in processes if process.poll() is not None]
            late = time.monotonic() > deadline
            if ended or late:
                words = (self.directory / "worker.log").read_text(errors="replace")[-4000:]
                what = f"a worker ended with {ended}" if ended else "it never came about"
                raise AssertionError(f"{what}; {self.counts()}; {words}")
            time.sleep(0.1)

    def events(self) -> list[tuple[str, bytes, bytes | None]]:
        """(partition and offset, key, value) of every message on `memory_updated`, in the order of each partition."""
        topic = self.settings.topic("memory_updated")
        consumer = Consumer(
            {"bootstrap.servers": self.kafka, "group.id": f"{self.prefix}reader", "enable.auto.commit": False}
        )
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            ends = {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
                for number in partitions
            }
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
            found: list[tuple[str, bytes, bytes | None]] = []
            while len(found) < sum(ends.values()):
                message = consumer.poll(30)
                assert message is not None, "the broker holds fewer messages than it says"
                assert message.error() is None
                place = f"{message.partition()}:{message.offset()}"
                found.append((place, message.key() or b"", message.value()))
            return found
        finally:
            consumer.close()

    def vectors(self) -> dict[str, tuple[int, str]]:
        """Version and status of every point; the workers must have ended, for the store has one owner."""
        store = open_vector_store(self.settings, open_embedder(self.settings))
        try:
            return {point.id: (point.version, point.status) for point in store.scroll()}
        finally:
            store.close()


def counts(truth: Truth) -> dict[str, int]:
    """Rows of the tables that grow, and batches that are still to be asked about."""
    with truth.reading() as connection:
        found = {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar() or 0)
            for table in (tables.turns, tables.claims, tables.inbox, tables.outbox, tables.dead_letters)
        }
        open_batches = select(func.count()).select_from(tables.batches).where(tables.batches.c.status == "closed")
        pending = select(func.sum(tables.conversations.c.pending_count))
        return found | {
            "open_batches": int(connection.execute(open_batches).scalar() or 0),
            "pending": int(connection.execute(pending).scalar() or 0),
        }


def settled(found: dict[str, int], goal: dict[str, int]) -> bool:
    """Whether everything has gone all the way."""
    arrived = all(found[name] >= goal[name] for name in ("turns", "claims", "inbox", "dead_letters"))
    return arrived and not (found["outbox"] or found["open_batches"] or found["pending"])


def remains(truth: Truth) -> dict[str, Any]:
    """What a run must leave whatever happened on the way.

    Not in it: moments of arrival, the cutting of batches, and the version of what no longer holds, which counts the
    states that it went through and so depends on whether a claim or its retraction came first.
    """
    with truth.reading() as connection:
        memory, version = tables.memories.c, tables.memory_versions.c
        columns = (memory.id, memory.version, memory.status, memory.value, memory.evidence_count, memory.valid_from)
        held = list(connection.execute(select(*columns)))
        versions = list(connection.execute(select(version.memory_id, version.version)))
        claims = connection.execute(
            select(tables.claims.c.claim_id, tables.claims.c.cell_key, tables.claims.c.order_key)
        )
        decisions = connection.execute(select(tables.decisions.c.candidate_id, tables.decisions.c.decision))
        retractions = connection.execute(
            select(tables.retractions.c.retraction_key, tables.retractions.c.target_turn_key)
        )
        letters = connection.execute(select(tables.dead_letters.c.reason))
        return {
            "active": {row.id: tuple(row) for row in held if row.status == "active"},
            "inactive": {(row.id, row.status, row.value) for row in held if row.status != "active"},
            "states": {row.id: (row.version, row.status) for row in held},
            "versions": {f"{row.memory_id}:{row.version}" for row in versions},
            "claims": {tuple(row) for row in claims},
            "retractions": {tuple(row) for row in retractions},
            "decisions": {tuple(row) for row in decisions},
            "letters": Counter(letters.scalars()),
            "turns": {
                (row["conversation_id"], row["turn_id"]): (row["revision"], row["outcome"], row["reason"])
                for row in turns.outcomes(connection)
            },
        }


def same_events(found: Sequence[tuple[str, bytes, bytes | None]]) -> dict[str, MemoryUpdated]:
    """Events by id; a repetition must be the same event."""
    events: dict[str, bytes] = {}
    for _place, _key, value in found:
        if value is not None:
            event = MemoryUpdated.from_bytes(value)
            assert events.setdefault(event.event_id, value) == value, "one (memory, version) with two contents"
    return {key: MemoryUpdated.from_bytes(value) for key, value in events.items()}
