"""Benchmarks, the measuring: workers as separate processes, progress read from the database, memory from the kernel."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from aiokafka import AIOKafkaConsumer
from pydantic import SecretStr
from sqlalchemy import func, select

from ops.bench.workload import turns
from schemas import MemoryUpdated, Role, Turn
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from sinks.truth.tables import batches
from sinks.truth.tables import turns as turn_table
from streams.connection import client_options
from streams.importers import ImportOptions, read_log
from streams.producer import EventProducer
from streams.publish import publish_log
from streams.runtime import wall_clock
from streams.settings import Settings
from streams.topics import apply


class Bench:
    """One database and one set of topics per measurement, so that none sees another's leftovers."""

    def __init__(self, kafka: str, database_url: str, name: str, model_url: str = "", **settings: Any) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="memriver-bench-"))
        self.settings = Settings(
            _env_file=None,
            kafka_bootstrap=kafka,
            database_url=SecretStr(database_url),
            data_dir=self.directory,
            topic_prefix=f"{name}-{time.time_ns()}.",
            model_base_url=model_url,
            http_port=0,
            **settings,
        )
        upgrade(database_url)
        asyncio.run(apply(self.settings))
        self.truth = Truth(make_engine(database_url))

    @contextmanager
    def worker(self, stages: str) -> Iterator[psutil.Process]:
        """A worker process with these stages; ended at the end."""
        environment = os.environ | {
            "MEMRIVER_KAFKA_BOOTSTRAP": self.settings.kafka_bootstrap,
            "MEMRIVER_DATABASE_URL": self.settings.database_url.get_secret_value(),
            "MEMRIVER_DATA_DIR": str(self.directory),
            "MEMRIVER_TOPIC_PREFIX": self.settings.topic_prefix,
            "MEMRIVER_MODEL_BASE_URL": self.settings.model_base_url,
            "MEMRIVER_QDRANT_URL": self.settings.qdrant_url,
            "MEMRIVER_HTTP_PORT": "0",
            "MEMRIVER_LOG_LEVEL": os.environ.get("BENCH_LOG_LEVEL", "WARNING"),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "streams", "worker", "--stages", stages], env=environment, stdout=sys.stderr
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def count(self, what: Any) -> int:
        """Rows that match."""
        with self.truth.reading() as connection:
            return int(connection.execute(what).scalar() or 0)

    def stored(self) -> int:
        """Turns that the ingest stage has taken in."""
        return self.count(select(func.count()).select_from(turn_table))

    def open_batches(self) -> int:
        """Batches that the model has not answered."""
        return self.count(select(func.count()).select_from(batches).where(batches.c.status == "closed"))

    def close(self) -> None:
        """Give back the connections."""
        self.truth.close()


def importer(bench: Bench, count: int) -> dict[str, Any]:
    """A native JSONL file through reader, validation and producer onto the broker."""
    path = bench.directory / "log.jsonl"
    with path.open("wb") as file:
        for turn in turns(count):
            file.write(turn.to_bytes() + b"\n")

    async def run() -> float:
        producer = EventProducer(bench.settings)
        await producer.start()
        try:
            await producer.partitions("turns")
            started = time.perf_counter()
            await publish_log(producer, read_log(path, "jsonl", ImportOptions()), now=wall_clock())
            return time.perf_counter() - started
        finally:
            await producer.stop()

    seconds = asyncio.run(run())
    return {"turns": count, "seconds": round(seconds, 2), "turns_per_second": round(count / seconds)}


def _publish(bench: Bench, count: int, **load: Any) -> None:
    async def run() -> None:
        producer = EventProducer(bench.settings)
        await producer.start()
        await publish_log(producer, turns(count, **load), now=wall_clock())
        await producer.stop()

    asyncio.run(run())


def _rate(bench: Bench, count: int, stages: str, done: Any) -> dict[str, Any]:
    """From the first stored turn to `done`; start-up is not what a stage does per second."""
    with bench.worker(stages) as process:
        while (first := bench.stored()) == 0:
            alive(process)
            time.sleep(0.02)
        started = time.perf_counter()
        while not done():
            alive(process)
            time.sleep(0.1)
        seconds = time.perf_counter() - started
        memory = process.memory_info().rss
        cpu = sum(process.cpu_times()[:2])
    measured = count - first
    return {
        "turns": measured,
        "seconds": round(seconds, 2),
        "turns_per_second": round(measured / seconds),
        "worker_cpu_seconds": round(cpu, 1),
        "worker_rss_mb": round(memory / 1e6),
    }


def alive(process: psutil.Process) -> None:
    """Raises SystemExit when the worker has ended."""
    if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
        raise SystemExit("the worker ended")


def ingest(bench: Bench, count: int) -> dict[str, Any]:
    """The ingest stage alone on a full topic."""
    _publish(bench, count)
    return _rate(bench, count, "ingest", lambda: bench.stored() >= count)


def whole_path(bench: Bench, count: int) -> dict[str, Any]:
    """All stages in one worker, with a model that answers at once."""
    _publish(bench, count)

    def done() -> bool:
        return bench.stored() >= count and bench.open_batches() == 0

    return _rate(bench, count, "ingest,extract,resolve,clock,bury", done)


def latency(bench: Bench, seconds: int, per_second: int) -> dict[str, Any]:
    """From the moment a gateway sends 记住… to the moment a client holds the `memory_updated` event."""
    sent: dict[str, float] = {}
    took: list[float] = []

    async def run() -> None:
        producer = EventProducer(bench.settings)
        await producer.start()
        consumer = AIOKafkaConsumer(
            bench.settings.topic("memory_updated"),
            **client_options(bench.settings),
            auto_offset_reset="earliest",
            fetch_max_wait_ms=500,
        )
        await consumer.start()

        all_said, quiet = asyncio.Event(), asyncio.Event()

        async def listen() -> None:
            async for record in consumer:
                if record.value is None:
                    continue
                event = MemoryUpdated.from_bytes(record.value)
                for turn_id in event.cause_turn_ids:
                    if turn_id in sent:
                        took.append(time.perf_counter() - sent.pop(turn_id))
                if not sent:
                    quiet.set()
                    if all_said.is_set():
                        return

        listener = asyncio.create_task(listen())
        # A worker that is still joining its groups would be measured as latency: wait for the first event, however long.
        for warm in range(120):
            await _say(producer, warm, sent)
            await asyncio.sleep(0.5)
            if took:
                break
        else:
            raise SystemExit("no event came within a minute")
        if sent:
            quiet.clear()
            await quiet.wait()
        took.clear()
        started = time.perf_counter()
        for number in range(seconds * per_second):
            await asyncio.sleep(max(0.0, started + number / per_second - time.perf_counter()))
            await _say(producer, 1000 + number, sent)
        all_said.set()
        await asyncio.wait({listener}, timeout=10)
        listener.cancel()
        await consumer.stop()
        await producer.stop()

    with bench.worker("ingest,clock"), bench.worker("extract,resolve,bury"):
        asyncio.run(run())
    ordered = sorted(took)
    return {
        "turns": len(ordered),
        "lost": len(sent),
        "per_second": per_second,
        "p50_ms": round(statistics.median(ordered) * 1000, 1),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 1),
        "max_ms": round(ordered[-1] * 1000, 1),
    }


async def _say(producer: EventProducer, number: int, sent: dict[str, float]) -> None:
    turn = Turn(
        tenant="bench",
        conversation_id=f"c{number % 500}",
        turn_id=f"say{number}",
        user_id=f"u{number % 500}",
        role=Role.USER,
        text=f"记住我的储物柜号码是{number}",
        sent_at=wall_clock(),
        timezone="Asia/Shanghai",
    )
    sent[turn.turn_id] = time.perf_counter()
    await producer.send("turns", turn.conversation_key, turn.to_bytes())


def memory(bench: Bench, count: int, samples: int = 20) -> dict[str, Any]:
    """Resident memory of one worker over `count` turns of the same 2,000 people: after the first tenth, least and most.

    The same people, since a worker's vector store may live in it: with ever new ones it would grow, as it should. So many,
    since what somebody says for the sixtieth time is a memory with sixty intervals, and a group of those a larger one. No
    faster than the slowest stage, or what it measured would be how full the buffers between Kafka and the stages are.
    """
    published = 0
    readings: list[tuple[int, int]] = []

    def publish() -> None:
        nonlocal published
        size = min(10_000, count - published)
        _publish(bench, size, conversations=2_000, seed=published, first=published)
        published += size

    publish()
    with bench.worker("ingest,extract,resolve,clock,bury") as process:
        started = time.perf_counter()
        while (stored := bench.stored()) < count:
            alive(process)
            if published < count and published - stored < 10_000 and bench.open_batches() < 1_000:
                publish()
            if not readings or stored - readings[-1][0] >= count // samples:
                readings.append((stored, process.memory_info().rss))
                print(f"  {stored:,} turns, {readings[-1][1] / 1e6:.0f} MB", file=sys.stderr)
            time.sleep(1.0)
        readings.append((stored, process.memory_info().rss))
        seconds = time.perf_counter() - started
    tail = readings[max(1, len(readings) // 10) :]
    low, high = min(rss for _n, rss in tail), max(rss for _n, rss in tail)
    return {
        "turns": count,
        "seconds": round(seconds),
        "rss_mb": [[stored, round(rss / 1e6)] for stored, rss in readings],
        "spread_after_warm_up": round((high - low) / low, 3),
    }
