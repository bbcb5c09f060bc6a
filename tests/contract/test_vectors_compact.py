"""Compacting the embedded store: the bytes of what was deleted leave the disk, everything else is found as before."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from processors.keywords import sparse
from sinks.vectors import Point, Scope, Tombstone, open_vectors
from sinks.vectors.edge import EdgeVectors
from sinks.vectors.remote import RemoteVectors
from tests.doubles.vector_serving import VectorServing

ALL = Scope(tenant="acme", owner_keys=("key-a", "key-b"))
GONE = (b"user/zz-gone", b"key-a")


def store(directory: Path) -> EdgeVectors:
    opened = EdgeVectors(directory, prefix="memories", model="hashing-1", dimension=2)
    opened.ensure()
    return opened


def point(number: int, owner: str) -> Point:
    return Point(
        id=str(uuid.UUID(int=number + 1)),
        owner_key=f"key-{owner}",
        tenant="acme",
        namespace="user/zz-gone" if owner == "a" else "user/stays",
        status="active",
        type="semantic",
        category="fact",
        attribute="allergy",
        version=3,
        event_time=None,
        expires_at=None,
        language="zh",
        confidence=0.9,
        sensitivity="normal",
        dense=[0.6, 0.8],
        sparse=sparse("花生"),
    )


def fill(opened: EdgeVectors | RemoteVectors) -> None:
    """150 of each, together more than a page; the first owner's are tombstones."""
    opened.upsert([point(number, "a") for number in range(150)] + [point(1000 + number, "b") for number in range(150)])
    opened.delete([Tombstone(point(number, "a").id, 3) for number in range(150)])


def filled(directory: Path) -> EdgeVectors:
    opened = store(directory)
    fill(opened)
    return opened


def bytes_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def test_no_byte_of_a_deleted_point_is_on_the_disk(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    assert all(trace in bytes_of(tmp_path) for trace in GONE)
    opened.compact()
    assert not any(trace in bytes_of(tmp_path) for trace in GONE)
    opened.close()
    assert not any(trace in bytes_of(tmp_path) for trace in GONE)


def test_what_stays_is_found_and_the_fence_still_holds(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    before = {hit.id: hit.score for hit in opened.search_hybrid([0.6, 0.8], sparse("花生"), ALL, 1000)}
    opened.compact()
    after = {hit.id: hit.score for hit in opened.search_hybrid([0.6, 0.8], sparse("花生"), ALL, 1000)}
    assert set(after) == set(before)
    assert len(after) == 150
    opened.upsert([point(1, "a"), replace(point(1001, "b"), version=2)])
    assert opened.total() == 150
    assert {it.version for it in opened.get([point(1001, "b").id])} == {3}
    opened.close()


def test_readers_go_on_while_it_is_written_anew(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    halt = threading.Event()

    def read() -> set[int]:
        found = set()
        while not halt.is_set():
            found.add(len(opened.search_dense([0.6, 0.8], ALL, 10)))
        return found

    with ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(read) for _ in range(2)]
        for _ in range(3):
            opened.compact()
        halt.set()
        assert [reader.result() for reader in reading] == [{10}, {10}]
    opened.close()


def test_a_death_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    name = opened.collection
    opened.close()
    (tmp_path / name).rename(tmp_path / f".old-{name}")
    again = store(tmp_path)
    assert again.total() == 150
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    again.close()


def test_the_bytes_go_behind_a_vector_server_too(tmp_path: Path) -> None:
    with VectorServing(tmp_path) as serving:
        opened = open_vectors(serving.url, prefix="memories", model="hashing-1", dimension=2)
        assert isinstance(opened, RemoteVectors)
        opened.ensure()
        fill(opened)
        assert all(trace in bytes_of(tmp_path) for trace in GONE)
        opened.compact()
        assert not any(trace in bytes_of(tmp_path) for trace in GONE)
        assert opened.count(ALL) == 150
        opened.close()
    assert not any(trace in bytes_of(tmp_path) for trace in GONE)


def test_clients_come_and_ask_while_the_server_writes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, copy = threading.Event(), threading.Event(), EdgeVectors._copy

    def slow(edge: EdgeVectors, old: object, aside: Path) -> None:
        begun.set()
        assert go_on.wait(60)
        copy(edge, old, aside)

    monkeypatch.setattr(EdgeVectors, "_copy", slow)
    with VectorServing(tmp_path) as serving, ThreadPoolExecutor(1) as pool:
        one, other = (open_vectors(serving.url, prefix="memories", model="hashing-1", dimension=2) for _ in range(2))
        assert isinstance(one, RemoteVectors)
        one.ensure()
        fill(one)
        compacting = pool.submit(one.compact)
        assert begun.wait(60)
        other.ensure()
        assert other.count(ALL) == 150
        go_on.set()
        compacting.result()
        one.close()
        other.close()


def test_a_late_write_that_the_fence_refuses_leaves_no_byte(tmp_path: Path) -> None:
    """Scenario: a process that slept writes an erased memory's point, or a builder its page, after the erasure.
    We expect neither the point nor, since the engine's log keeps what its condition refuses, its bytes in that log."""
    opened = filled(tmp_path)
    opened.compact()
    opened.upsert([point(number, "a") for number in range(150)])
    opened.upsert([point(number, "b") for number in range(2000, 2010)] + [replace(point(7, "a"), version=2)])
    assert not any(trace in bytes_of(tmp_path) for trace in GONE)
    assert opened.count(ALL) == 160
    opened.close()
    assert not any(trace in bytes_of(tmp_path) for trace in GONE)
