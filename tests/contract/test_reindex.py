"""Another embedding model: built beside the live one under load, verified, switched to, rolled back, dropped (SPEC L5)."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Scope, authorise_all
from processors.exceptions import FatalError, PoisonError, TransientError
from processors.policy import PolicyGate, PolicySettings
from recall.request import RecallRequest
from recall.screening import TurnScreen
from recall.service import RecallService
from schemas import Memory, OwnerKind, Status, new_id
from sinks.embedders.calibration import calibration_for
from sinks.truth import Truth, collections, memories, scanning
from sinks.truth.collections import CollectionRow, Source, State, Task
from sinks.vectors import Tombstone, VectorStore, collection_name, open_vectors
from sinks.vectors.aliases import point_alias
from sinks.vectors.collection import calibration_of
from sinks.vectors.collections import Collections
from sinks.vectors.edge import EdgeVectors
from sinks.vectors.server import QdrantVectors
from streams.projection import VectorProjection, entry_of, project
from streams.reindex.compare import Comparison
from streams.reindex.lease import Lease
from streams.reindex.work import Reindexer
from streams.runtime import wall_clock
from streams.settings import Settings
from tests.doubles.records import memory
from tests.doubles.spaces import Marked, Seen
from tests.doubles.vector_serving import VectorServing

OLD, NEW = "marked-a:384", "marked-b:768"
OWNERS = [f"person-{number}" for number in range(6)]
THINGS = ("chess", "围棋", "opera", "sailing", "摄影", "书法", "kayaks", "bread", "birds", "机场")
SETTINGS = Settings(_env_file=None)

# qdrant-client says so of its in-memory engine; the adapter creates the indexes for real servers.
pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")


def held(number: int, **fields: object) -> Memory:
    """Memory `number` of one of the owners."""
    thing = THINGS[number % len(THINGS)]
    given = {
        "id": new_id("reindex", str(number)),
        "owner": OWNERS[number % len(OWNERS)],
        "namespace": f"user/{OWNERS[number % len(OWNERS)]}/profile",
        "attribute": "note",
        "value": f"{thing} {number}",
        "text": f"{OWNERS[number % len(OWNERS)]} keeps {thing} number {number}",
        "cardinality": "multi",
    }
    return memory("any", **(given | fields))


def name_of(embedder: str) -> str:
    """The collection of a marked embedder."""
    model, _, dimension = embedder.partition(":")
    return collection_name("memories", model, int(dimension))


@dataclass
class Library:
    """A truth, a place for vectors, one process that writes and does the re-embedding, and what they saw."""

    truth: Truth
    open_store: Callable[[str, int], VectorStore]
    shared: bool
    lock: threading.RLock | None
    seen: Seen = field(default_factory=Seen)
    embedders: dict[str, Marked] = field(default_factory=dict)
    processes: list[Collections] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.opened = self.process()
        self.projection = VectorProjection(self.opened)
        model, _, dimension = OLD.partition(":")
        self.truth.run(
            lambda connection: collections.register_live(
                connection, name_of(OLD), OLD, model, int(dimension), wall_clock()
            )
        )

    def process(self) -> Collections:
        """Another process's collections; the same one where the store has a single owner."""
        if self.processes and not self.shared:
            return self.opened
        found = Collections(
            self.truth, self.seen.opener(self.open_store, self.lock), self.embedder, refresh_seconds=0.05
        )
        self.processes.append(found)
        return found

    def embedder(self, name: str) -> Marked:
        if name in self.broken:
            raise FatalError("the key is missing")
        return self.embedders.setdefault(name, Marked(name))

    def commit(self, *rows: Memory) -> None:
        """As a worker does: truth first, then the vectors."""
        self.save(*rows)
        self.projection.write(rows)

    def save(self, *rows: Memory) -> None:
        """Into truth alone."""
        self.truth.run(lambda connection: memories.save(connection, [(m, m.id[:32], m.id[:32]) for m in rows]))

    def order(self, embedder: str = NEW, *, rate: int | None = None, source: Source = Source.TRUTH) -> None:
        model, _, dimension = embedder.partition(":")
        self.truth.run(
            lambda connection: collections.request_build(
                connection,
                name_of(embedder),
                embedder,
                model,
                int(dimension),
                source=source,
                rate=rate,
                now=wall_clock(),
            )
        )

    def ask(self, task: Task, name: str | None = None) -> None:
        self.truth.run(lambda connection: collections.request(connection, task, name, wall_clock()))

    def work(self, halt: threading.Event | None = None, *, now: Callable[[], datetime] = wall_clock) -> None:
        """The reindex clock, until there is nothing to do."""
        reindexer = Reindexer(
            SETTINGS, self.truth, self.opened, now=now, halt=halt or threading.Event(), rng=random.Random(7)
        )
        while reindexer.step():
            continue

    def row(self, embedder: str = NEW) -> CollectionRow:
        with self.truth.reading() as connection:
            found = collections.get(connection, name_of(embedder))
        assert found is not None
        return found

    def rows(self) -> list[CollectionRow]:
        with self.truth.reading() as connection:
            return collections.listing(connection)

    def verified(self, embedder: str = NEW) -> None:
        self.order(embedder)
        self.work()
        self.ask(Task.VERIFY)
        self.work()

    def switch(self) -> None:
        self.truth.run(lambda connection: collections.switch(connection, wall_clock()))

    def rollback(self) -> None:
        self.truth.run(lambda connection: collections.rollback(connection, wall_clock()))

    def differences(self, embedder: str) -> list[object]:
        """Where a collection is not what truth says."""
        with self.opened.using(self.row(embedder)) as collection:
            return [it for chunk in Comparison(self.truth, collection.store, _NoLease()).differences() for it in chunk]

    def points(self, embedder: str) -> dict[str, tuple[int, str]]:
        with self.opened.using(self.row(embedder)) as collection:
            return {point.id: (point.version, point.status) for point in collection.store.scroll()}


class _NoLease(Lease):
    """For looking without a task."""

    def __init__(self) -> None:
        self.noted: list[dict[str, object]] = []

    def keep(self, **progress: str | int | None) -> None:
        self.noted.append(dict(progress))

    note = keep

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture(params=["edge", "server-in-memory"])
def library(request: pytest.FixtureRequest, sqlite_truth: Truth, tmp_path: Path) -> Iterator[Library]:
    """No collection but an empty live one."""
    client = QdrantClient(":memory:") if request.param == "server-in-memory" else None
    serving = VectorServing(tmp_path / "vectors").start() if request.param == "served" else None

    def open_store(model: str, dimension: int) -> VectorStore:
        if serving is not None:
            return open_vectors(serving.url, prefix="memories", model=model, dimension=dimension)
        if client is None:
            return EdgeVectors(tmp_path / "vectors", prefix="memories", model=model, dimension=dimension)
        return QdrantVectors(client, prefix="memories", model=model, dimension=dimension)

    lock = threading.RLock() if client is not None else None
    found = Library(sqlite_truth, open_store, shared=request.param != "edge", lock=lock)
    yield found
    for process in found.processes:
        process.close()
    if client is not None:
        client.close()
    if serving is not None:
        serving.stop()


def ask(service: RecallService, owner: str, query: str) -> list[str]:
    """What recall gives; a degraded answer is a failure here."""
    agent = Principal(
        "acme", PrincipalKind.AGENT, "helper", "k", frozenset({Scope.READ}), (Grant(OwnerKind.USER, owner),)
    )
    reaches = authorise_all(agent, Scope.READ, [OwnerRef(OwnerKind.USER, owner)], wall_clock())
    result = service.recall(RecallRequest(reaches, query, wall_clock(), floor=0.0))
    assert not result.degraded, result.degraded
    return [item.id for item in result.items]


# -- the drill


class Load:
    """Writers and readers that go on until they are stopped; each owner has one writer."""

    def __init__(self, library: Library, writers: int = 2, readers: int = 2) -> None:
        self._library = library
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self.recalls: list[bool] = []
        self.writes: list[int] = []
        gate = PolicyGate(PolicySettings(), b"a key for the tests, of 32 bytes!")
        self._services = [
            RecallService(library.truth, library.process(), screen=TurnScreen(gate)) for _ in range(readers)
        ]
        jobs = [(self._write, number, writers) for number in range(writers)]
        self._threads = [threading.Thread(target=self._run, args=job) for job in jobs]
        self._threads += [threading.Thread(target=self._run, args=(self._read, n, 0)) for n in range(readers)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, job: Callable[[int, int], None], number: int, of: int) -> None:
        try:
            job(number, of)
        except BaseException as error:  # noqa: BLE001 - a thread's failure must fail the test
            self.failures.append(error)

    def _write(self, number: int, of: int) -> None:
        rng = random.Random(number)
        versions: dict[int, int] = {}
        while not self._stop.is_set():
            which = rng.randrange(300) * of + number
            version = versions[which] = versions.get(which, 1) + 1
            status = rng.choices([*list(Status)[:2], Status.ARCHIVED, Status.DELETED], (6, 2, 1, 1))[0]
            fields: dict[str, object] = {"version": version, "status": status}
            if status is Status.DELETED:
                fields |= {"text": "", "value": ""}
            self._library.commit(held(which, **fields))
            self.writes.append(which)
            time.sleep(0.005)

    def _read(self, number: int, _of: int) -> None:
        rng = random.Random(number)
        service = self._services[number]
        while not self._stop.is_set():
            which = rng.randrange(200)
            query = f"who keeps {THINGS[which % len(THINGS)]}?"
            self.recalls.append(bool(ask(service, OWNERS[which % len(OWNERS)], query)))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, as long as nothing failed."""
        deadline = time.monotonic() + 60
        while not condition():
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.01)

    def searched(self, embedder: str, times: int = 10) -> None:
        """Wait until that many more questions went to this collection."""
        model = embedder.partition(":")[0]
        before = self._library.seen.calls["search", model]
        self.until(lambda: self._library.seen.calls["search", model] >= before + times)


@pytest.mark.parametrize("library", ["edge", "server-in-memory", "served"], indirect=True)
def test_another_dimension_comes_under_load_without_a_failed_or_mixed_recall(library: Library) -> None:
    """Scenario: 384 → 768 dimensions while two writers create, change, archive and delete, and two readers ask; then
    back, and there again. We expect no failed recall, no vector of one model in the other's collection, and both
    collections equal to truth, point by point."""
    library.commit(*[held(number) for number in range(200)])
    with Load(library) as load:
        load.searched(OLD)
        library.order()
        library.work()
        library.ask(Task.VERIFY)
        library.work()
        assert library.row().status is State.VERIFIED, library.row().report
        library.switch()
        load.searched(NEW)
        library.rollback()
        load.searched(OLD)
        library.switch()
        load.searched(NEW)
    assert load.failures == []
    assert library.seen.mixed == []
    assert len(load.recalls) >= 20
    assert all(load.recalls), "a memory that is there was not found"
    assert len(load.writes) >= 20
    assert library.differences(OLD) == []
    assert library.differences(NEW) == []
    assert library.points(OLD) == library.points(NEW)
    assert {status for _, status in library.points(NEW).values()} >= {"active", "superseded"}


def test_a_dropped_collection_is_gone_and_recall_goes_on(library: Library) -> None:
    library.commit(*[held(number) for number in range(60)])
    library.verified()
    library.switch()
    with Load(library, writers=0) as load:
        load.searched(NEW)
        library.ask(Task.DROP)
        library.work()
        # Not at once: a process that has not looked again since the switch may still be asking there.
        assert library.row(OLD).status is State.DROPPING
        library.work(now=lambda: wall_clock() + timedelta(minutes=1))
        assert library.row(OLD).status is State.DROPPED
        load.searched(NEW)
    assert load.failures == []
    assert [row.name for row in library.opened.listed()] == [name_of(NEW)]
    library.order(OLD)
    library.work()
    assert library.differences(OLD) == []


def test_a_model_of_the_same_dimension_is_never_mixed_up_either(library: Library) -> None:
    library.commit(*[held(number) for number in range(60)])
    with Load(library) as load:
        library.verified("marked-b:384")
        library.switch()
        load.searched("marked-b:384")
    assert (load.failures, library.seen.mixed) == ([], [])


def test_a_process_that_cannot_make_the_new_vectors_goes_on_with_the_old_ones_and_says_so(library: Library) -> None:
    """Scenario: one process lacks the new model's key when the switch comes; later it gets it."""
    library.commit(*[held(number) for number in range(30)])
    library.verified()
    other = Collections(
        library.truth, library.seen.opener(library.open_store, library.lock), library.embedder, refresh_seconds=0.0
    )
    if not library.shared:
        library.opened.close()
    gate = PolicyGate(PolicySettings(), b"a key for the tests, of 32 bytes!")
    service = RecallService(library.truth, other, screen=TurnScreen(gate))
    assert ask(service, OWNERS[1], "who keeps 围棋?")
    library.broken.add(NEW)
    library.switch()
    while other.trouble is None:
        assert ask(service, OWNERS[1], "who keeps 围棋?")
    assert "the key is missing" in other.trouble
    with other.live() as collection:
        assert collection.name == name_of(OLD)
    library.broken.clear()
    while other.trouble is not None:
        assert ask(service, OWNERS[1], "who keeps 围棋?")
    with other.live() as collection:
        assert collection.name == name_of(NEW)
    assert library.seen.mixed == []
    other.close()


def test_an_erasure_reaches_every_collection_also_where_its_model_is_missing(library: Library) -> None:
    library.commit(held(1), held(2))
    library.order()
    library.work()
    library.opened.close()
    library.broken |= {OLD, NEW}
    with library.opened.every() as every:
        for collection in every:
            collection.store.delete([Tombstone(held(1).id, 2)])
        kept = [sorted(point.status for point in collection.store.scroll()) for collection in every]
    assert kept == [["active", "deleted"]] * 2
    library.ask(Task.DROP)
    library.work(now=lambda: wall_clock() + timedelta(minutes=1))
    assert library.row().status is State.DROPPED


# -- the build


def test_everything_is_in_it_whatever_its_status(library: Library) -> None:
    rows = [held(number, status=status) for number, status in enumerate(Status) if status is not Status.DELETED]
    library.commit(*rows, held(50, status=Status.DELETED, text="", value="", version=3))
    library.order()
    library.work()
    expected = {row.id: (1, row.status.value) for row in rows} | {held(50).id: (3, "deleted")}
    assert library.points(NEW) == expected
    assert library.row().done == len(expected)


def test_a_build_that_stops_goes_on_where_it_was(library: Library) -> None:
    """Scenario: a throttled build is halted on the way; another takes it up.
    We expect that it embeds only what was left, and that the end is the same."""
    library.commit(*[held(number) for number in range(200)])
    library.order(rate=4)
    halt = threading.Event()
    builder = threading.Thread(target=library.work, args=(halt,))
    builder.start()
    while not library.row().done:
        time.sleep(0.02)
    halt.set()
    builder.join()
    stopped = library.row()
    assert (stopped.task, stopped.holder) == (Task.BUILD, None)
    before = library.embedders[NEW].documents
    library.order(rate=None)
    library.work()
    assert library.embedders[NEW].documents - before <= 200 - stopped.done
    assert library.row().done == 200
    assert library.differences(NEW) == []


def test_a_change_made_while_it_is_built_is_in_it(library: Library) -> None:
    """Scenario: the order is given, and before anybody builds, a memory changes and one is deleted. We expect both in it
    by the workers' own writing, and no older state over them afterwards."""
    library.commit(*[held(number) for number in range(10)])
    library.order()
    library.commit(held(3, version=2, text="changed"), held(4, version=2, status=Status.DELETED, text="", value=""))
    assert library.points(NEW) == {held(3).id: (2, "active"), held(4).id: (2, "deleted")}
    library.work()
    assert library.points(NEW) == library.points(OLD)


def test_an_erasure_during_a_build_stays_erased(library: Library) -> None:
    """Scenario: a page is read; before it is written, the memory is erased from truth and from every collection.
    We expect that the page does not bring it back."""
    library.commit(held(1), held(2))
    library.order()
    with library.truth.reading() as connection:
        page = scanning.entries_after(connection, "", 10)
    library.truth.run(lambda connection: connection.execute(memories.memories.delete()))
    with library.opened.every() as every:
        for collection in every:
            collection.store.delete([Tombstone(held(1).id, 2), Tombstone(held(2).id, 2)])
        assert {collection.name for collection in every} == {name_of(OLD), name_of(NEW)}
        project(every[1], page)
    library.work()
    assert set(library.points(NEW).values()) == {(2, "deleted")}


# -- calibration


def test_calibration_is_measured_at_build_time_and_used_by_recall(library: Library) -> None:
    library.commit(*[held(number) for number in range(120)])
    assert library.row(OLD).calibration is None
    assert calibration_of(library.row(OLD)) == calibration_for("marked-a")
    library.verified()
    measured = calibration_of(library.row())
    assert measured != calibration_for("marked-b")
    assert set(measured.relevance_knots) >= {"*", "zh", "en"}
    library.switch()
    library.opened.refresh()
    with library.opened.live() as collection:
        assert collection.calibration == measured
        assert collection.embedder.model == "marked-b"


# -- what was missed


def test_an_embedder_that_is_only_being_tried_does_not_hold_up_the_service(library: Library) -> None:
    """Scenario: after the build the new model's endpoint goes away for one change. We expect the change in the live
    collection, no switch before a repair, and a repair that comes by itself and makes it whole."""
    library.commit(*[held(number) for number in range(10)])
    library.verified()
    library.embedders[NEW].away = TransientError("away")
    library.commit(held(3, version=2, text="changed"))
    assert library.points(OLD)[held(3).id] == (2, "active")
    assert (library.row().owes, library.row().status) == (1, State.BUILDING)
    with pytest.raises(PoisonError, match="not verified"):
        library.switch()
    library.embedders[NEW].away = None
    library.work()
    assert library.row().owes == 0
    assert library.points(NEW) == library.points(OLD)
    library.ask(Task.VERIFY)
    library.work()
    library.switch()


def test_no_way_back_to_a_collection_that_misses_changes(library: Library) -> None:
    library.commit(held(1))
    library.verified()
    library.switch()
    library.embedders[OLD].away = TransientError("away")
    library.commit(held(1, version=2))
    with pytest.raises(PoisonError, match="memriver reindex repair"):
        library.rollback()
    library.embedders[OLD].away = None
    library.work()
    library.rollback()
    assert library.points(OLD)[held(1).id] == (2, "active")


def test_a_verification_finds_what_is_missing_too_much_and_old(library: Library) -> None:
    """Scenario: behind the pipeline's back a point is lost, one is too many, one is behind, one is ahead."""
    library.commit(*[held(number) for number in range(10)])
    library.order()
    library.work()
    library.save(held(20), held(2, version=5))
    with library.opened.using(library.row()) as collection:
        project(collection, [entry_of(held(30)), entry_of(held(3, version=9))])
    library.ask(Task.VERIFY)
    library.work()
    report = library.row().report
    assert report is not None
    assert {kind: report[kind] for kind in ("missing", "orphan", "behind", "strange")} == dict.fromkeys(
        ("missing", "orphan", "behind", "strange"), 1
    )
    assert report["ok"] is False
    assert report["owners_differing"] == len({number % len(OWNERS) for number in (20, 2, 3, 30)})
    with pytest.raises(PoisonError, match="not verified"):
        library.switch()
    library.ask(Task.REPAIR)
    library.work()
    # A point that is newer than truth cannot be from this truth: the fence keeps it, and only a new build helps.
    assert [str(it.kind) for it in library.differences(NEW)] == ["strange"]  # type: ignore[attr-defined]


def test_a_model_that_finds_less_than_the_old_one_is_not_verified(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.commit(*[held(number) for number in range(90)])
    library.order()
    library.work()
    constant = library.embedders[NEW].embed_documents(["nothing at all"])[0]
    monkeypatch.setattr(library.embedders[NEW], "embed_query", lambda _text: constant)
    library.ask(Task.VERIFY)
    library.work()
    report = library.row().report
    assert report is not None
    assert report["found_before"] == 1.0
    assert "find themselves" in report["reasons"][0]
    assert library.row().status is State.BUILDING


def test_the_live_collection_can_be_filled_again_from_truth(library: Library) -> None:
    """Scenario: truth was restored, the vectors are gone. We expect a repair of the live collection to bring them back."""
    library.save(*[held(number) for number in range(30)])
    library.ask(Task.REPAIR)
    library.work()
    assert library.differences(OLD) == []
    assert len(library.points(OLD)) == 30


# -- refusals


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (lambda it: it.switch(), "nothing to switch to"),
        (lambda it: it.rollback(), "no previous"),
        (lambda it: it.ask(Task.VERIFY), "no collection beside"),
        (lambda it: it.ask(Task.DROP), "no collection beside"),
        (lambda it: it.ask(Task.DROP, name_of(OLD)), "is the live collection and stays"),
        (lambda it: it.ask(Task.DROP, "memories_other_1"), "there is no collection"),
        (lambda it: it.order(OLD), "live collection already"),
    ],
)
def test_wrong_orders_are_refused_and_change_nothing(
    library: Library, order: Callable[[Library], None], says: str
) -> None:
    before = library.rows()
    with pytest.raises(PoisonError, match=says):
        order(library)
    assert library.rows() == before


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (lambda it: it.switch(), "not verified"),
        (lambda it: it.order("marked-b:96"), "another collection"),
        (lambda it: it.order(NEW), "another collection"),
        (lambda it: it.rollback(), "no previous"),
    ],
)
def test_wrong_orders_beside_a_built_collection_are_refused_and_change_nothing(
    library: Library, order: Callable[[Library], None], says: str
) -> None:
    library.order()
    library.work()
    before = library.rows()
    with pytest.raises(PoisonError, match=says):
        order(library)
    assert library.rows() == before


def test_a_build_that_somebody_is_at_work_on_is_not_ordered_twice(library: Library) -> None:
    library.order()
    claimed = library.truth.run(
        lambda connection: collections.claim(
            connection, library.row(), "elsewhere:1:x", wall_clock(), timedelta(minutes=1)
        )
    )
    assert claimed
    before = library.rows()
    with pytest.raises(PoisonError, match="being built already"):
        library.order()
    assert library.rows() == before


def test_a_build_is_taken_from_a_holder_of_this_machine_that_is_dead(library: Library) -> None:
    library.commit(held(1))
    library.order()
    dead = f"{socket.gethostname()[:24]}:{2**22 + 1}:x"  # above the highest process id that Linux gives
    library.truth.run(
        lambda connection: collections.claim(connection, library.row(), dead, wall_clock(), timedelta(hours=1))
    )
    library.work()
    assert library.row().built_at is not None


def test_a_dropped_build_is_let_go(library: Library) -> None:
    library.commit(*[held(number) for number in range(100)])
    library.order(rate=20)
    builder = threading.Thread(target=library.work)
    builder.start()
    while not library.row().done:
        time.sleep(0.02)
    library.ask(Task.DROP)
    builder.join()
    library.work(now=lambda: wall_clock() + timedelta(minutes=1))
    assert library.row().status is State.DROPPED
    assert [row.name for row in library.opened.listed()] == [name_of(OLD)]


# -- aliases


def test_the_servers_alias_follows_the_live_collection(library: Library) -> None:
    library.commit(held(1))
    library.verified()
    if not library.shared:
        return _edge_has_no_alias(library)
    for step in (lambda: None, library.switch, library.rollback):
        step()
        library.opened.refresh()
        with library.opened.live() as live:
            store = live.store._inner  # type: ignore[attr-defined]  # the adapter under the watch
            point_alias(store, "memories")
            found = store._client.get_aliases().aliases
        assert [(it.alias_name, it.collection_name) for it in found] == [("memories", live.name)]
    return None


def _edge_has_no_alias(library: Library) -> None:
    with library.opened.live() as live:
        point_alias(live.store, "memories")
        assert live.name == name_of(OLD)
