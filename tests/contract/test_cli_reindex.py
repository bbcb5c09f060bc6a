"""`memriver reindex` as a person types it: the whole way on one directory, a kill in the middle, every refusal."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from processors.exceptions import FatalError, MemriverError
from schemas import Status, new_id
from sinks.truth import Truth, collections, make_engine, memories
from sinks.truth.collections import CollectionRow, State, Task
from sinks.vectors import StoredPoint, open_vectors
from streams.cli import app
from streams.projection import VectorProjection
from streams.runtime import wall_clock
from streams.settings import Settings
from streams.vectors import open_collections, settle_live
from tests.doubles.records import memory

OLD, NEW = "memories_hashing-1_384", "memories_hashing-1_768"


def settings(directory: Path, **changed: Any) -> Settings:
    """Of a directory as `memriver up` has it."""
    place = {"database_url": SecretStr(f"sqlite:///{directory / 'memriver.db'}"), "data_dir": directory}
    return Settings(_env_file=None, **place, **changed)


@contextmanager
def truth_in(directory: Path) -> Iterator[Truth]:
    truth = Truth(make_engine(f"sqlite:///{directory / 'memriver.db'}"))
    try:
        yield truth
    finally:
        truth.close()


@pytest.fixture
def directory(sqlite_url: str, tmp_path: Path) -> Path:
    """A directory with 400 memories and their live collection of `hashing`."""
    (tmp_path / "truth.db").rename(tmp_path / "memriver.db")
    statuses = (Status.ACTIVE, Status.ACTIVE, Status.SUPERSEDED, Status.ARCHIVED)
    rows = [
        memory(
            "any",
            id=new_id("kept", str(number)),
            owner=f"person-{number % 30}",
            attribute="note",
            cardinality="multi",
            value=f"thing {number}",
            text=f"keeps thing number {number}",
            status=statuses[number % 4],
            version=1 + number % 3,
        )
        for number in range(400)
    ]
    with truth_in(tmp_path) as truth:
        opened = open_collections(settings(tmp_path), truth)
        settle_live(settings(tmp_path), truth, opened, wall_clock())
        truth.run(lambda connection: memories.save(connection, [(m, m.id[:32], m.id[:32]) for m in rows]))
        VectorProjection(opened).write(rows)
        opened.close()
    return tmp_path


def run(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["reindex", *arguments, "--data", str(directory)])


def refused(result: Result) -> str:
    """What the entry point says with exit code 2."""
    assert result.exit_code != 0
    assert isinstance(result.exception, MemriverError), result.exception
    return str(result.exception)


def rows(directory: Path) -> list[CollectionRow]:
    with truth_in(directory) as truth, truth.reading() as connection:
        return collections.listing(connection)


def row(directory: Path, name: str = NEW) -> CollectionRow:
    [found] = [found for found in rows(directory) if found.name == name]
    return found


def points(directory: Path, dimension: int) -> dict[str, StoredPoint]:
    store = open_vectors(f"edge:{directory / 'vectors'}", prefix="memories", model="hashing-1", dimension=dimension)
    store.ensure(beside=True)
    try:
        return {point.id: point for point in store.scroll()}
    finally:
        store.close()


def test_the_whole_way(directory: Path) -> None:
    """start, verify, switch, rollback, switch again; and a restart with the old setting is told what to do."""
    assert run(directory, "start", "--embedder", "hashing:768").exit_code == 0
    shown = run(directory, "verify", "--json")
    assert shown.exit_code == 0
    report = orjson.loads(shown.stdout)["report"]
    assert (report["ok"], report["missing"], report["memories"]) == (True, 0, report["points"])
    assert report["memories"] == {"active": 200, "archived": 100, "superseded": 100}
    for order, live in (("switch", NEW), ("rollback", OLD), ("switch", NEW)):
        assert run(directory, order).exit_code == 0
        assert [it.name for it in rows(directory) if it.status is State.LIVE] == [live]
    assert points(directory, 384) == points(directory, 768)

    with truth_in(directory) as truth:
        chosen = settings(directory, embedder="hashing:384")
        with pytest.raises(FatalError, match=r"MEMRIVER_EMBEDDER=hashing:768 .*memriver reindex rollback"):
            settle_live(chosen, truth, open_collections(chosen, truth), wall_clock())
        left_unset = settings(directory)
        opened = open_collections(left_unset, truth)
        settle_live(left_unset, truth, opened, wall_clock())
        with opened.live() as collection:
            assert (collection.name, collection.embedder.dimension) == (NEW, 768)
        opened.close()
    shown = run(directory, "status", "--json")
    assert [(it["name"], it["status"]) for it in orjson.loads(shown.stdout)] == [(OLD, "previous"), (NEW, "live")]


def test_a_start_with_another_embedder_than_the_live_ones_names_the_command(directory: Path) -> None:
    with truth_in(directory) as truth:
        chosen = settings(directory, embedder="hashing:768")
        with pytest.raises(FatalError, match="memriver reindex start --embedder hashing:768"):
            settle_live(chosen, truth, open_collections(chosen, truth), wall_clock())
    assert [it.name for it in rows(directory)] == [OLD]
    assert not (directory / "vectors" / NEW).exists()


def test_a_killed_build_goes_on_where_it_was(directory: Path) -> None:
    """Scenario: a throttled build is killed at a random point; then it is started again, unthrottled.
    We expect it to go on behind what was reached, and to be whole."""
    rng = random.Random(os.urandom(8))
    command = [sys.executable, "-m", "streams", "reindex", "start", "--embedder", "hashing:768"]
    process = subprocess.Popen(
        [*command, "--throttle", "20/s", "--data", str(directory)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"MEMRIVER_EMBEDDER": ""},
    )
    goal = rng.randint(1, 60)
    while process.poll() is None and rows(directory)[-1].done < goal:
        time.sleep(0.02)
    time.sleep(rng.random())
    process.send_signal(signal.SIGKILL)
    _out, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    found = row(directory)
    assert found.task is Task.BUILD
    assert goal <= found.done < 400
    assert run(directory, "start", "--embedder", "hashing:768").exit_code == 0
    assert row(directory).done == 400
    assert points(directory, 384) == points(directory, 768)
    assert run(directory, "verify").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("start", "--embedder", "word2vec"), "unknown embedder"),
        (("start", "--embedder", "hashing:x"), "number of dimensions"),
        (("start", "--embedder", "hashing"), "live collection already"),
        (("start", "--embedder", "hashing:768", "--throttle", "fast"), "--throttle"),
        (("switch",), "nothing to switch to"),
        (("rollback",), "no previous"),
        (("verify",), "no collection beside"),
        (("drop", OLD), "is the live collection"),
    ],
)
def test_wrong_use_is_refused_and_changes_nothing(directory: Path, arguments: tuple[str, ...], says: str) -> None:
    before = rows(directory)
    assert says in refused(run(directory, *arguments))
    assert rows(directory) == before
    assert [entry.name for entry in (directory / "vectors").iterdir()] == [OLD]


def test_a_switch_before_a_verification_and_a_second_build_are_refused(directory: Path) -> None:
    assert run(directory, "start", "--embedder", "hashing:768").exit_code == 0
    before = rows(directory)
    assert "not verified" in refused(run(directory, "switch"))
    assert "another collection" in refused(run(directory, "start", "--embedder", "hashing:96"))
    assert rows(directory) == before


def test_a_build_that_is_under_way_is_not_started_again(directory: Path) -> None:
    assert run(directory, "start", "--embedder", "hashing:768", "--detach").exit_code == 0
    with truth_in(directory) as truth:
        truth.run(
            lambda connection: collections.claim(
                connection, row(directory), "another-machine:1:x", wall_clock(), timedelta(minutes=1)
            )
        )
    before = rows(directory)
    assert "being built already" in refused(run(directory, "start", "--embedder", "hashing:768"))
    assert rows(directory) == before


def test_where_another_process_owns_the_vectors_the_order_stands(directory: Path) -> None:
    """Scenario: a process holds the new collection's directory and does not do what is asked.
    We expect a clear word, and the order to be left for it."""
    assert run(directory, "start", "--embedder", "hashing:768").exit_code == 0
    store = open_vectors(f"edge:{directory / 'vectors'}", prefix="memories", model="hashing-1", dimension=768)
    store.ensure(beside=True)
    assert "another process owns the data directory" in refused(run(directory, "verify"))
    assert row(directory).task is Task.VERIFY
    store.close()
    assert run(directory, "verify").exit_code == 0


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "--data" in refused(run(tmp_path, "status"))
