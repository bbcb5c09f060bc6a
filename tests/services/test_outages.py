"""Outages of a real MariaDB and a real Kafka: each has its word in `/readyz`, costs no message, and is over when its cause is."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

from ops.dev.services import Kafka, MariaDb
from schemas import Role, Turn
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from streams.probes import Probe
from streams.producer import EventProducer
from streams.settings import Settings
from tests.doubles.log import until
from tests.doubles.patient import Patient, patient
from tests.services.deployment import Deployment

STEPS_AFTER = 2.0
"""Seconds, when the time is over, for what does not wait for any server: below them a supervisor's ten seconds would not do."""
WORDS = [f"word-{number}" for number in range(10)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to no waiting between tries."""
    monkeypatch.setattr("streams.delivery._BACKOFF_SECONDS", (0.01,))


@pytest.fixture(scope="module")
def own() -> Iterator[MariaDb]:
    """A server of its own: what is done to it must not be seen by other tests."""
    with MariaDb() as server:
        yield server


@contextmanager
def empty_truth(server: MariaDb) -> Iterator[Truth]:
    """On this server, in a database of its own."""
    url = server.create_database(f"memriver_{uuid.uuid4().hex[:12]}")
    upgrade(url)
    store = Truth(make_engine(url))
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def truth(mariadb: MariaDb, own: MariaDb) -> Iterator[Truth]:
    """An empty truth on it; the shared server's fixture is asked for because it says when there is no MariaDB at all."""
    with empty_truth(own) as store:
        yield store


async def goes_on(stage: Patient) -> None:
    """Everything arrives once, nothing is dead-lettered, and the answer is "ready" again."""
    await until(lambda: len(stage.stream.acked) == len(WORDS))
    await stage.until(lambda report: report["status"] == "ready")
    assert (stage.servers.sent, stage.dead_letters()) == (WORDS, 0)


async def test_a_server_that_was_made_read_only(own: MariaDb, truth: Truth) -> None:
    async with patient(truth) as stage:
        own.execute("SET GLOBAL read_only = 1")
        try:
            report = await stage.until(lambda report: report["status"] == "not ready")
            assert report["database"] == "read_only"
            stage.put(*WORDS)
            await stage.until(lambda report: bool(report["waiting"]))
            assert stage.stream.acked == []
        finally:
            own.execute("SET GLOBAL read_only = 0")
        await goes_on(stage)


async def test_a_server_that_takes_no_more_connections(own: MariaDb, truth: Truth) -> None:
    address = make_url(truth.engine.url)
    async with patient(truth) as stage:
        truth.engine.dispose()
        own.execute("SET GLOBAL max_connections = 10")
        held: list[Any] = []
        try:
            with pytest.raises(pymysql.err.OperationalError):
                for _ in range(12):
                    held.append(
                        pymysql.connect(
                            host="127.0.0.1",
                            port=own.port,
                            user=str(address.username),
                            password=str(address.password),
                            database=str(address.database),
                        )
                    )
            report = await stage.until(lambda report: report["status"] == "not ready")
            assert report["database"] == "too_many_connections"
            stage.put(*WORDS)
            await stage.until(lambda report: bool(report["waiting"]))
            assert stage.stream.acked == []
        finally:
            for connection in held:
                connection.close()
            own.execute("SET GLOBAL max_connections = 151")
        await goes_on(stage)


def disk_of(megabytes: int) -> tuple[str, ...]:
    """One file for all tables that may become so large: past that the server says what it says of a disk that is full."""
    return ("--innodb-file-per-table=0", f"--innodb-data-file-path=ibdata1:12M:autoextend:max:{megabytes}M")


@pytest.fixture
def confined(mariadb: MariaDb) -> Iterator[MariaDb]:
    """A server with a small disk."""
    with MariaDb(options=disk_of(96)) as server:
        yield server


async def test_a_server_whose_disk_is_full(confined: MariaDb) -> None:
    with empty_truth(confined) as truth:
        async with patient(truth) as stage:
            confined.create_database("others")
            confined.execute("CREATE TABLE others.filling (number INT AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)")
            with pytest.raises(pymysql.err.OperationalError, match="is full"):
                for _ in range(200):
                    confined.execute("INSERT INTO others.filling (data) VALUES (REPEAT('x', 1048576))")
            stage.put(*WORDS)
            report = await stage.until(lambda report: bool(report["waiting"]))
            assert (report["waiting"], report["status"]) == ({"words": "database: disk_full"}, "not ready")
            assert stage.stream.acked == []
            # Nothing can be deleted either: that writes as well. Somebody gives it a larger disk.
            confined.stop()
            confined.options = disk_of(192)
            confined.start()
            await goes_on(stage)


async def test_a_server_that_is_gone_and_comes_back(own: MariaDb, truth: Truth) -> None:
    async with patient(truth) as stage:
        own.stop()
        stage.put(*WORDS)
        report = await stage.until(lambda report: report["waiting"] == {"words": "database: away"})
        assert (report["database"], report["status"]) == ("away", "not ready")
        assert stage.stream.acked == []
        own.start()
        await goes_on(stage)


async def test_a_server_that_hangs(own: MariaDb, truth: Truth) -> None:
    async with patient(truth) as stage:
        await stage.until(lambda report: report["status"] == "ready")
        assert own.pid is not None
        os.kill(own.pid, signal.SIGSTOP)
        try:
            report = await stage.ask()
            assert (report["database"], report["status"]) == ("away", "not ready")
            stage.put(*WORDS)
        finally:
            os.kill(own.pid, signal.SIGCONT)
        await goes_on(stage)


async def test_a_broker_that_is_gone_and_comes_back(kafka: Kafka) -> None:
    producer = EventProducer(Settings(_env_file=None, kafka_bootstrap=kafka.bootstrap))
    await producer.start()
    try:
        probe = Probe(producer.ping, 5.0)
        assert (await probe.ask()).state == "ok"
        kafka.stop()
        try:
            assert (await probe.ask()).state == "away"
        finally:
            kafka.start()
        answers: list[str] = []
        async with asyncio.timeout(60):
            while answers[-1:] != ["ok"]:
                answers.append((await probe.ask()).state)
                await asyncio.sleep(0.05)
    finally:
        await producer.stop()


def stopped(log: Path) -> tuple[float, float]:
    """Seconds from being told to the end, and how many there might have been, in the worker's own words."""
    [(took, limit)] = re.findall(r"stopped ([\d.]+) s after being told to; it may take ([\d.]+)", log.read_text())
    return float(took), float(limit)


def test_a_worker_that_is_told_to_stop_does_so_while_the_database_hangs(
    kafka: Kafka, mariadb: MariaDb, own: MariaDb, topics_prefix: str, tmp_path: Path
) -> None:
    """Scenario: SIGTERM, and a transaction that never ends. We expect an orderly exit within the time that a supervisor is
    promised, and the turns at the next worker."""
    url = own.create_database(f"memriver_{uuid.uuid4().hex[:12]}")
    deployment = Deployment(kafka.bootstrap, url, topics_prefix, tmp_path, {"MEMRIVER_LOG_LEVEL": "INFO"})
    start = datetime(2026, 3, 2, 1, tzinfo=UTC)
    said = [
        Turn(
            conversation_id="c",
            turn_id=f"t{number}",
            user_id="ann",
            role=Role.USER,
            text=f"Which step broke, number {number}?",
            sent_at=start + timedelta(seconds=number),
        )
        for number in range(200)
    ]
    try:
        worker = deployment.start("ingest,bury")
        deployment.publish(said[:100])
        deployment.wait(lambda: deployment.counts()["turns"] == 100, [worker])
        assert own.pid is not None
        os.kill(own.pid, signal.SIGSTOP)
        try:
            deployment.publish(said[100:])
            worker.terminate()
            # By itself. A busy machine may take its time to wake this test up: how long it took is the worker's to say.
            assert worker.wait(60) == 0
            took, limit = stopped(tmp_path / "worker.log")
            assert limit == deployment.settings.stop_seconds
            assert took <= limit + STEPS_AFTER
        finally:
            os.kill(own.pid, signal.SIGCONT)
        with deployment.workers("ingest,bury") as workers:
            deployment.wait(lambda: deployment.counts()["turns"] == 200, workers)
            assert deployment.counts()["dead_letters"] == 0
    finally:
        deployment.close()
