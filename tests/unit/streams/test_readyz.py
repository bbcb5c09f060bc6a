"""`/readyz`: each outage has its word, nothing is lost or dead-lettered meanwhile, and it goes by itself with its cause."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors as kafka
from pymysql import err as mysql
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from starlette.testclient import TestClient

from processors.exceptions import FatalError, Outage, TransientError
from sinks import outages
from sinks.embedders.hashing import HashingEmbedder
from sinks.truth import Truth, make_engine
from sinks.truth.engine import translate
from sinks.vectors.collection import OneCollection
from streams.health import Health, web_app
from streams.metrics import Metrics
from streams.probes import Probe
from streams.producer import outage
from tests.doubles.log import until
from tests.doubles.patient import NOW, Servers, patient

WORDS = [f"word-{number}" for number in range(10)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to no waiting between tries."""
    monkeypatch.setattr("streams.delivery._BACKOFF_SECONDS", (0.001,))


@pytest.fixture
def pragmas() -> dict[str, int]:
    """SQLite's settings for every connection that is taken from here on."""
    return {}


@pytest.fixture
def limited(truth: Truth, pragmas: dict[str, int]) -> Iterator[Truth]:
    """A truth whose connections obey `pragmas`."""

    def obey(connection: sqlite3.Connection, _record: Any, _proxy: Any) -> None:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name}={value}")

    event.listen(truth.engine, "checkout", obey)
    yield truth
    event.remove(truth.engine, "checkout", obey)


def pages(truth: Truth) -> int:
    with truth.reading() as connection:
        return int(connection.exec_driver_sql("PRAGMA page_count").scalar() or 0)


async def test_a_full_disk_is_said_and_goes_by_itself_when_there_is_room(
    limited: Truth, pragmas: dict[str, int]
) -> None:
    """Scenario: SQLite may not grow any more. We expect everything that arrives to wait, and to go out once it may."""
    pragmas["max_page_count"] = pages(limited)
    async with patient(limited) as stage:
        stage.put(*WORDS)
        report = await stage.until(lambda report: report["database"] != "ok")
        assert (report["database"], report["status"], report["waiting"]) == (
            "disk_full",
            "not ready",
            {"words": "database: disk_full"},
        )
        assert (stage.servers.sent, stage.stream.acked) == ([], [])
        pragmas["max_page_count"] = 1_000_000
        await until(lambda: len(stage.stream.acked) == len(WORDS))
        await stage.until(lambda report: report["status"] == "ready")
        assert (stage.servers.sent, stage.dead_letters()) == (WORDS, 0)


async def test_a_read_only_database_is_said_by_the_probe_even_while_nobody_writes(
    limited: Truth, pragmas: dict[str, int]
) -> None:
    pragmas["query_only"] = 1
    async with patient(limited) as stage:
        report = await stage.ask()
        assert (report["database"], report["status"]) == ("read_only", "not ready")
        stage.put(*WORDS)
        await stage.until(lambda report: bool(report["waiting"]))
        assert stage.stream.acked == []
        pragmas["query_only"] = 0
        await until(lambda: len(stage.stream.acked) == len(WORDS))
        await stage.until(lambda report: report["status"] == "ready")
        assert (stage.servers.sent, stage.dead_letters()) == (WORDS, 0)


async def test_an_exhausted_pool_is_said_and_goes_by_itself(
    empty_database: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.truth.engine._POOL_SECONDS", 0.02)
    crowded = Truth(make_engine(str(truth.engine.url), pool_size=1))
    async with patient(crowded) as stage:
        taken = [crowded.engine.connect() for _ in range(11)]  # the pool's one, and SQLAlchemy's overflow of ten
        report = await stage.ask()
        assert (report["database"], report["status"]) == ("no_connection_free", "not ready")
        stage.put(*WORDS)
        await stage.until(lambda report: bool(report["waiting"]))
        assert stage.stream.acked == []
        for connection in taken:
            connection.close()
        await until(lambda: len(stage.stream.acked) == len(WORDS))
        assert (await stage.until(lambda report: report["status"] == "ready"))["database"] == "ok"
        assert stage.dead_letters() == 0
    crowded.close()


@pytest.mark.parametrize(
    ("part", "trouble"),
    [
        ("vectors", Outage.AWAY),
        ("vectors", Outage.READ_ONLY),
        ("vectors", Outage.FULL),
        ("broker", Outage.AWAY),
        ("broker", Outage.NOT_ENOUGH_REPLICAS),
        ("broker", Outage.REFUSED),
        ("embedder", Outage.LIMITING),
    ],
)
async def test_a_server_that_cannot_do_its_part_is_named_and_nothing_is_lost_meanwhile(
    truth: Truth, part: str, trouble: Outage
) -> None:
    async with patient(truth) as stage:
        stage.servers.broken[part] = TransientError("a test", part=part, outage=trouble)
        stage.put(*WORDS)
        report = await stage.until(lambda report: bool(report["waiting"]))
        assert (report[part], report["status"]) == (trouble.value, "not ready")
        assert report["why"] == {part: "a test"}
        assert stage.stream.acked == []
        stage.servers.broken.clear()
        await until(lambda: len(stage.stream.acked) == len(WORDS))
        report = await stage.until(lambda report: report["status"] == "ready")
        assert (report[part], report["why"], report["waiting"]) == ("ok", {}, {})
        assert (stage.servers.sent, stage.dead_letters()) == (WORDS, 0)


@pytest.mark.parametrize("trouble", [Outage.AWAY, Outage.LIMITING, Outage.REFUSED])
async def test_a_model_that_is_away_makes_the_worker_degraded_and_not_unready(truth: Truth, trouble: Outage) -> None:
    async with patient(truth, model=True) as stage:
        stage.servers.broken["model"] = TransientError("a test", part="model", outage=trouble)
        stage.put(*WORDS)
        await stage.until(lambda report: bool(report["waiting"]))
        fine, report = await stage.health.ready()
        assert (fine, report["status"], report["model"]) == (True, "degraded", trouble.value)
        stage.servers.broken.clear()
        await stage.until(lambda report: report["status"] == "ready")


async def test_without_a_model_channel_the_model_is_off_and_nothing_is_wrong(truth: Truth) -> None:
    async with patient(truth) as stage:
        report = await stage.ask()
        assert (report["model"], report["status"]) == ("off", "ready")


async def test_a_server_that_hangs_is_away_and_is_asked_once_at_a_time(truth: Truth) -> None:
    """Scenario: a probe never comes back. We expect an answer all the same, and no second thread that hangs."""
    hangs, begun = threading.Event(), []

    def look() -> dict[str, Any]:
        begun.append(1)
        hangs.wait()
        return {}

    probe = Probe(look, 0.05)
    assert [(await probe.ask()).state for _ in range(3)] == ["away", "away", "away"]
    assert len(begun) == 1
    hangs.set()
    answers: list[str] = []
    async with asyncio.timeout(60):
        while answers[-1:] != ["ok"]:
            answers.append((await probe.ask()).state)


async def test_a_look_that_fails_in_an_unforeseen_way_says_only_what_kind_it_was() -> None:
    def look() -> dict[str, Any]:
        raise KeyError("somebody's words")

    answer = await Probe(look, 5.0).ask()
    assert (answer.state, answer.why) == ("failed", "KeyError")


def test_the_status_code_says_whether_it_is_ready(truth: Truth) -> None:
    servers, delivery = Servers(), SimpleNamespace(progress={}, waits=[])
    runtime: Any = SimpleNamespace(
        uses_vectors=True,
        truth=truth,
        collections=OneCollection(servers, HashingEmbedder()),
        producer=servers,
        delivery=delivery,
        metrics=Metrics(),
        settings=SimpleNamespace(stall_seconds=1e9, model_enabled=False),
        lags=list,
        unseen=set,
    )
    client = TestClient(web_app(Health(runtime, now=lambda: NOW), runtime))
    assert (client.get("/readyz").status_code, client.get("/readyz").json()["status"]) == (200, "ready")
    servers.broken["broker"] = TransientError("nobody answers", part="broker")
    assert (client.get("/readyz").status_code, client.get("/readyz").json()["broker"]) == (503, "away")
    assert client.get("/healthz").status_code == 200, "a new process could do no better"
    servers.broken.clear()
    assert client.get("/readyz").status_code == 200


async def test_a_worker_that_has_nothing_to_do_with_vectors_does_not_ask_for_them(truth: Truth) -> None:
    """They may be another process's: Qdrant Edge serves one."""
    servers = Servers()
    servers.broken["vectors"] = TransientError("another process has them", part="vectors")
    runtime: Any = SimpleNamespace(
        uses_vectors=False,
        truth=truth,
        collections=OneCollection(servers, HashingEmbedder()),
        producer=servers,
        delivery=SimpleNamespace(progress={}, waits=[]),
        metrics=Metrics(),
        settings=SimpleNamespace(stall_seconds=1e9, model_enabled=False),
        lags=list,
        unseen=set,
    )
    fine, report = await Health(runtime, now=lambda: NOW).ready()
    assert (fine, report["status"], report["vectors"]) == (True, "ready", "off")


def wrapped(error: Exception) -> Exception:
    """As SQLAlchemy hands it over."""
    kind = mysql.Error if isinstance(error, mysql.MySQLError) else sqlite3.Error
    made = DBAPIError.instance("SELECT 1", {}, error, kind)
    assert isinstance(made, DBAPIError)
    return translate(made)


@pytest.mark.parametrize(("code", "trouble"), sorted(outages.MYSQL.items()))
def test_every_code_of_the_table_is_waited_out_under_its_name(code: int, trouble: Outage) -> None:
    error = wrapped(mysql.OperationalError(code, "said of somebody's row"))
    assert isinstance(error, TransientError)
    assert (error.part, error.outage) == ("database", trouble)
    assert "somebody" not in str(error)


@pytest.mark.parametrize(
    ("code", "text", "trouble"),
    [
        (1030, 'Got error 28 "No space left on device" from storage engine InnoDB', Outage.FULL),
        (1026, "Error writing file './x' (errno: 28 \"No space left on device\")", Outage.FULL),
        (3, "Error writing file '/x' (Errcode: 28)", Outage.FULL),
        (1030, "Got error 168 from storage engine", None),
    ],
)
def test_a_file_that_cannot_be_written_is_a_full_disk_only_if_it_says_so(
    code: int, text: str, trouble: Outage | None
) -> None:
    error = wrapped(mysql.OperationalError(code, text))
    assert getattr(error, "outage", None) == trouble
    assert isinstance(error, TransientError if trouble else FatalError)


def test_a_statement_that_is_wrong_is_no_outage() -> None:
    assert isinstance(wrapped(mysql.ProgrammingError(1064, "syntax")), FatalError)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (kafka.NotEnoughReplicasError(), Outage.NOT_ENOUGH_REPLICAS),
        (kafka.NotEnoughReplicasAfterAppendError(), Outage.NOT_ENOUGH_REPLICAS),
        (kafka.KafkaStorageError(), Outage.FULL),
        (kafka.TopicAuthorizationFailedError(), Outage.REFUSED),
        (kafka.KafkaConnectionError(), Outage.AWAY),
        (kafka.KafkaTimeoutError(), Outage.AWAY),
        (kafka.NodeNotReadyError(), Outage.AWAY),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_a_broker_says_has_a_name(error: kafka.KafkaError, trouble: Outage) -> None:
    assert (outage(error).part, outage(error).outage) == ("broker", trouble)


def test_every_kafka_error_of_the_table_exists() -> None:
    assert [name for name in outages.KAFKA if not hasattr(kafka, name)] == []


@pytest.mark.parametrize(
    ("status", "text", "trouble"),
    [
        (429, "", Outage.LIMITING),
        (503, "", Outage.AWAY),
        (500, "Service internal error: No space left on device (os error 28)", Outage.FULL),
        (507, "", Outage.FULL),
        (408, "", Outage.AWAY),
        (400, "No space left", None),
        (404, "", None),
    ],
)
def test_what_an_http_server_says_has_a_name(status: int, text: str, trouble: Outage | None) -> None:
    assert outages.http(status, text) == trouble


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("IO Error: No space left on device (os error 28)", Outage.FULL),
        ("Read-only file system (os error 30)", Outage.READ_ONLY),
        ("wrong vector size", None),
    ],
)
def test_what_an_embedded_store_says_has_a_name(text: str, trouble: Outage | None) -> None:
    assert outages.file_system(text) == trouble
