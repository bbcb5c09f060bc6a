"""A point that comes after its memory was erased: refused without a byte where there is a fence, taken away elsewhere."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas import ChangeKind, Memory, MemoryUpdated
from sinks.embedders.hashing import HashingEmbedder
from sinks.truth import Truth, collections, erasure, memories
from sinks.truth.collections import Source, Task
from sinks.truth.outbox import Outgoing
from sinks.vectors import StoredPoint, collection_name
from sinks.vectors.collections import Collections
from sinks.vectors.edge import EdgeVectors
from streams.outflow import Outflow
from streams.projection import VectorProjection
from streams.reindex.work import Reindexer
from streams.runtime import wall_clock
from streams.settings import Settings
from tests.doubles.records import T0, memory

OLD, NEW = 64, 128
"""Dimensions of the live collection, and of one beside it."""
ANN = memory("zz-annweed", owner="zz-ann-zz", namespace="user/zz-ann-zz/profile", version=3)
BOB = memory("bobnut", owner="bob", namespace="user/bob/profile", version=3)
TRACES = (b"zz-ann-zz", ANN.owner_key.encode())


class Broker:
    """`EventProducer`, as far as the outflow goes."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.sent += messages


class Place:
    """A truth that knows bob only, a directory of vectors, and a process that slept through ann's erasure."""

    def __init__(self, truth: Truth, directory: Path) -> None:
        self.truth, self.directory, self.broker = truth, directory, Broker()
        self.opened = Collections(
            truth,
            lambda model, dimension: EdgeVectors(directory, prefix="memories", model=model, dimension=dimension),
            lambda name: HashingEmbedder(int(name.partition(":")[2])),
        )
        name = self.name(OLD)
        truth.run(lambda c: collections.register_live(c, name, f"hashing:{OLD}", "hashing-1", OLD, wall_clock()))
        truth.run(lambda c: memories.save(c, [(BOB, "slot", "cell")]))
        self.projection = VectorProjection(self.opened)
        self.projection.write([BOB])

    def name(self, dimension: int) -> str:
        return collection_name("memories", "hashing-1", dimension)

    def build(self) -> None:
        """A collection beside the live one, begun and built after the erasure."""
        self.truth.run(
            lambda c: collections.request_build(
                c, self.name(NEW), f"hashing:{NEW}", "hashing-1", NEW, source=Source.TRUTH, rate=None, now=wall_clock()
            )
        )
        self.work()

    def work(self) -> None:
        reindexer = Reindexer(
            Settings(_env_file=None),
            self.truth,
            self.opened,
            now=wall_clock,
            halt=threading.Event(),
            rng=random.Random(7),
        )
        while reindexer.step():
            continue

    def repair_the_live_one(self) -> None:
        """It was there before, but an erasure did not see it: its directory was lost and made anew."""
        name = self.name(OLD)
        self.truth.run(lambda connection: collections.request(connection, Task.REPAIR, name, wall_clock()))
        self.work()

    def wake_up(self) -> None:
        """The process that slept puts out what it had committed before the erasure."""
        event = MemoryUpdated(
            event_id="late", change=ChangeKind.CREATED, memory=ANN, owner_seq=1, cause="c1", occurred_at=T0
        )
        message = Outgoing("memory_updated", ANN.id, ANN.owner_key, event.to_bytes())
        with ThreadPoolExecutor(1) as executor:
            outflow = Outflow(self.broker, self.projection, executor, truth=self.truth)  # type: ignore[arg-type]  # `publish` alone
            asyncio.run(outflow.flush([message]))

    def points(self, memory: Memory) -> dict[str, StoredPoint]:
        """What each collection holds under this id."""
        with self.opened.every() as held:
            return {it.name: point for it in held for point in it.store.get([memory.id])}

    def traces(self) -> set[bytes]:
        left = b"".join(path.read_bytes() for path in sorted(self.directory.rglob("*")) if path.is_file())
        assert b"user/bob" in left
        return {trace for trace in TRACES if trace in left}


@pytest.fixture
def place(sqlite_truth: Truth, tmp_path: Path) -> Iterator[Place]:
    """Only the live collection is there."""
    found = Place(sqlite_truth, tmp_path / "vectors")
    yield found
    found.opened.close()


def bury(place: Place) -> None:
    """Ann's erasure was done before any collection of now was begun: truth keeps the number of her memory."""
    place.truth.run(lambda connection: erasure.bury(connection, "e1", [(ANN.id, "gone", ANN.version)]))


def test_a_collection_begun_or_repaired_after_an_erasure_lets_nothing_erased_in(place: Place) -> None:
    """Scenario: the process that slept dies between its vectors and its look, so that nobody takes the point away."""
    bury(place)
    place.build()
    place.repair_the_live_one()
    place.projection.write([ANN])
    fences = place.points(ANN)
    assert set(fences) == {place.name(OLD), place.name(NEW)}
    assert {(point.status, point.version) for point in fences.values()} == {("deleted", ANN.version)}
    assert {point.status for point in place.points(BOB).values()} == {"active"}
    assert place.traces() == set()


def test_a_point_that_no_fence_stopped_is_taken_away_by_the_look_after_publication(place: Place) -> None:
    place.build()
    place.wake_up()
    late = place.points(ANN)
    assert set(late) == {place.name(OLD), place.name(NEW)}
    assert {(point.status, point.version) for point in late.values()} == {("deleted", ANN.version)}
    assert [(message.key, message.payload is None) for message in place.broker.sent] == [
        (ANN.id, False),
        (ANN.id, True),
    ]
    assert {point.status for point in place.points(BOB).values()} == {"active"}
    assert place.traces() == set()


def test_who_came_back_on_purpose_is_not_fenced_out(place: Place) -> None:
    """The new beginning is above the erased version; the late point of the old one is still refused."""
    bury(place)
    anew = ANN.model_copy(update={"version": ANN.version + 1})
    place.truth.run(lambda connection: memories.save(connection, [(anew, "slot", "gone")]))
    place.build()
    place.projection.write([ANN])
    point = place.points(ANN)[place.name(NEW)]
    assert (point.status, point.version) == ("active", anew.version)
