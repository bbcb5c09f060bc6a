"""Client tests: stores keep a replica over a restart, listeners are told, and truth is asked after a gap."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import memriver_client as mc
import pytest
from memriver_client.replica import Entry, Kept, Place, Scope
from memriver_client.replica.core import Core
from memriver_client.replica.log import Record

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
ANN = mc.Owner("user", "ann")


def view(name: str = "m", version: int = 1, **changed: Any) -> dict[str, Any]:
    return {
        "id": name,
        "version": version,
        "owner_kind": "user",
        "owner": "ann",
        "namespace": "user/ann/profile",
        "status": "active",
        "text": f"secret {name} {version}",
        **changed,
    }


def memory(name: str = "m", version: int = 1, **changed: Any) -> mc.Memory:
    return mc.Memory.from_dict({"tenant": "acme", **view(name, version, **changed)})


def record(offset: int, item: mc.Memory | str, sequence: int = 1, change: str = "updated") -> Record:
    if isinstance(item, str):
        return Record(Place(0, offset), item, None, START)
    event = {
        "event_id": f"{item.id}:{item.version}",
        "change": change,
        "memory": item.raw,
        "owner_seq": sequence,
        "occurred_at": (START + timedelta(seconds=offset)).isoformat(),
        "cause": "c",
    }
    return Record(Place(0, offset), item.id, json.dumps(event).encode(), START)


def core(store: mc.Store | None = None, **more: Any) -> Core:
    scope = Scope("acme")
    options = {"source": None, "on_conflict": None, **more}
    return Core(scope, scope.fingerprint("topic"), store or mc.MemoryStore(), lambda: START, **options)


async def feed(to: Core, *records: Record, live: bool = True) -> list[mc.Change]:
    found = [to.apply_record(item, live=live, monotonic=0.0) for item in records]
    changes = [change for change in found if change is not None]
    await to.tell(changes)
    return changes


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[mc.Store]:
    made: mc.Store = mc.MemoryStore() if request.param == "memory" else mc.SqliteStore(tmp_path / "replica.db")
    yield made
    made.close()


def test_a_store_gives_back_what_was_saved_last(store: mc.Store) -> None:
    entries = {
        "held": Entry(3, memory("held", 3), START, "digest", place=Place(2, 7), logged=3, owner=ANN),
        "gone": Entry(2, None, START, certain=False),
        "pruned": Entry(1, None, START),
    }
    store.save("f", Kept(START, entries, {0: 5, 2: 8}, {ANN: 4}, frozenset({("held", 3, "rival")})))
    store.save("f", Kept(START + timedelta(hours=1), {"pruned": None}, {0: 6}, {ANN: 5}))

    kept = store.load("f")

    assert kept == Kept(
        START + timedelta(hours=1),
        {"held": entries["held"], "gone": entries["gone"]},
        {0: 6, 2: 8},
        {ANN: 5},
        frozenset({("held", 3, "rival")}),
    )


def test_what_was_saved_for_another_scope_is_removed_and_never_served(store: mc.Store) -> None:
    store.save("f", Kept(START, {"m": Entry(1, memory(), START)}, {0: 5}))

    assert store.load("other") is None
    assert store.load("f") is None


def test_the_file_is_for_this_user_only_and_forgets_what_was_erased(tmp_path: Path) -> None:
    path = tmp_path / "replica.db"
    store = mc.SqliteStore(path)
    store.save("f", Kept(START, {"m": Entry(1, memory(), START)}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"secret m 1" in path.read_bytes()

    store.save("f", Kept(START, {"m": Entry(2, None, START)}))

    store.close()
    assert [file for file in tmp_path.iterdir() if b"secret" in file.read_bytes()] == []


async def test_a_replica_goes_on_where_it_was(store: mc.Store) -> None:
    before = core(store)
    assert await before.restore() is None
    await feed(before, record(0, memory("a")), record(1, memory("b"), 2), record(2, "b"))
    before.told = {0: 3}
    await before.save()

    after = core(store)

    assert await after.restore() == START
    assert (after.positions, after.state.entries) == ({0: 3}, before.state.entries)
    assert await feed(after, record(1, memory("b"), 2), record(0, memory("a"))) == []
    assert after.sequences.last(ANN) == 2


async def test_a_store_that_fails_gets_everything_the_next_time() -> None:
    class Failing(mc.MemoryStore):
        full = True

        def save(self, fingerprint: str, changes: Kept) -> None:
            if self.full:
                raise OSError("disk full")
            super().save(fingerprint, changes)

    store = Failing()
    replica = core(store)
    await feed(replica, record(0, memory("a")))
    replica.told = {0: 1}
    await replica.save()
    assert replica.store_trouble == "the store failed: OSError"

    store.full = False
    await feed(replica, record(1, memory("b"), 2))
    replica.told = {0: 2}
    await replica.save()

    kept = store.load(Scope("acme").fingerprint("topic"))
    assert kept is not None
    assert (set(kept.entries), kept.sequences, replica.store_trouble) == ({"a", "b"}, {ANN: 2}, "")


async def test_callbacks_hear_of_their_namespaces_in_order_and_one_that_raises_stops_nobody() -> None:
    replica = core()
    heard: list[tuple[str, str, int]] = []

    async def profile(change: mc.Change) -> None:
        heard.append(("profile", change.kind, change.version))

    def broken(change: mc.Change) -> None:
        raise RuntimeError("secret")

    replica.listeners.add(None, broken)
    replica.listeners.add("user/ann/profile", profile)
    end = replica.listeners.add("user/ann", lambda change: heard.append(("ann", change.kind, change.version)))
    replica.listeners.add("user/an", lambda change: heard.append(("an", change.kind, change.version)))

    await feed(replica, record(0, memory(), change="created"))
    end()
    await feed(replica, record(1, memory(version=2, namespace="user/ann/work"), 2), record(2, "m"))

    # The second left the profile: who listens there hears of it, and not of what follows elsewhere.
    assert heard == [("profile", "created", 1), ("ann", "created", 1), ("profile", "updated", 2)]
    assert replica.listeners.failed == 3


async def test_repetitions_and_late_versions_are_not_told() -> None:
    replica = core()
    first = await feed(replica, record(0, memory(version=2)), record(1, memory(version=3), 2))
    again = await feed(replica, record(2, memory(version=2)), record(3, memory(version=3), 2))

    assert ([change.version for change in first], again) == ([2, 3], [])
    assert (replica.counts.applied, replica.counts.late, replica.counts.duplicate) == (2, 1, 1)


async def test_a_conflict_is_told_once_also_over_a_restart(store: mc.Store) -> None:
    conflicts: list[mc.Conflict] = []
    rival = memory(text="secret other")
    for _ in range(2):
        replica = core(store, on_conflict=conflicts.append)
        await replica.restore()
        await feed(replica, record(0, memory()), record(1, rival), record(2, rival))
        replica.told = {0: 3}
        await replica.save()

    assert [(item.held, item.rival) for item in conflicts] == [(memory(), rival)]


async def test_waiting_ends_with_the_version_or_a_later_one_or_the_end_of_the_memory() -> None:
    import asyncio

    replica = core()

    def waiting(name: str, version: int) -> asyncio.Task[mc.Memory | None]:
        return asyncio.create_task(replica.waiters.wait(replica.state.entries.get(name), name, version, 5.0))

    tasks = [waiting("a", 2), waiting("b", 2), waiting("c", 1)]
    await asyncio.sleep(0)
    await feed(replica, record(0, memory("a")), record(1, memory("a", 3), 2), record(2, memory("b"), 3))
    await feed(replica, record(3, memory("b", 2, status="deleted"), 4))

    assert [await task for task in tasks[:2]] == [memory("a", 3), None]
    await replica.close()
    with pytest.raises(mc.ReplicaStopped):
        await tasks[2]
    with pytest.raises(mc.WaitTimeout):
        await replica.waiters.wait(None, "d", 1, 0.0)


async def test_what_is_no_event_is_counted_and_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    replica = core()
    newer = json.loads(record(0, memory()).value or b"") | {"schema_version": 2}
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    values = [b"", b"secret", b"[]", b"\xff", json.dumps(newer).encode(), deep]

    assert await feed(replica, *[Record(Place(0, n), "m", value, START) for n, value in enumerate(values)]) == []
    assert replica.counts.undecodable == len(values)
    assert "secret" not in caplog.text


class Api:
    """The part of the API that a source asks."""

    def __init__(self, *, reviewer: bool = True) -> None:
        self.reviewer = reviewer
        self.memories: list[dict[str, Any]] = []
        self.deleted: dict[str, int] = {}
        self.reviews: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/reviews":
            self.reviews.append(json.loads(request.content))
            return httpx.Response(201, json={})
        if request.url.path == "/v1/memories":
            statuses = request.url.params.get_list("status")
            if "quarantined" in statuses and not self.reviewer:
                return httpx.Response(403, json={"title": "Forbidden"})
            return httpx.Response(200, json={"memories": self.memories, "next_cursor": None})
        name = request.url.path.split("/")[3]
        if name not in self.deleted:
            return httpx.Response(404, json={"title": "Not Found"})
        version = {"version": self.deleted[name], "change": "deleted", "status": "deleted", "cause": "c", "writer": "w"}
        return httpx.Response(200, json={"id": name, "versions": [{**version, "recorded_at": START.isoformat()}]})

    def source(self) -> mc.HttpSource:
        return mc.HttpSource(mc.AsyncMemriver("http://memriver", "key", transport=httpx.MockTransport(self)))


@pytest.mark.parametrize("reviewer", [True, False])
async def test_an_owner_read_again_gets_newer_versions_and_loses_what_was_deleted(reviewer: bool) -> None:
    api = Api(reviewer=reviewer)
    replica = core(source=api.source())
    await feed(replica, record(0, memory("a")), record(1, memory("b"), 2), record(2, memory("c", 5), 3))
    api.memories = [view("a", 2), view("c", 4), view("d", 1), view("e", 1, owner="ann", tenant="other")]
    api.deleted = {"b": 2}

    assert await replica.reread(ANN)

    assert {item.id: item.version for item in replica.state.held()} == {"a": 2, "c": 5, "d": 1, "e": 1}
    assert all(item.tenant == "acme" for item in replica.state.held())


async def test_a_memory_that_is_only_not_listed_stays_until_the_log_has_been_asked() -> None:
    api = Api()
    replica = core(source=api.source())
    await feed(replica, record(0, memory("a", status="quarantined")))

    assert not await replica.reread(ANN)
    assert [item.id for item in replica.state.held()] == ["a"]


async def test_a_conflict_goes_before_a_reviewer_without_either_content() -> None:
    import asyncio

    api = Api()
    replica = core(source=api.source())
    await feed(replica, record(0, memory()), record(1, memory(text="secret other")))
    for _ in range(20):
        await asyncio.sleep(0)

    (review,) = api.reviews
    assert (review["kind"], review["memory_id"], review["version"]) == ("conflict", "m", 1)
    assert "secret" not in json.dumps(review)
    await replica.close()


async def test_a_snapshot_reads_every_named_owner() -> None:
    api = Api()
    api.memories = [view("a", 2)]
    client = mc.AsyncMemriver("http://memriver", "key", transport=httpx.MockTransport(api))

    read = [item async for item in mc.http_snapshot(client, "acme", ["ann", mc.Owner("org", "acme")])()]

    assert [(item.id, item.tenant) for item in read] == [("a", "acme")] * 2


def test_an_agent_sees_only_what_is_usable_now_unless_it_asks_for_more() -> None:
    replica = mc.Replica("localhost:9", tenant="acme", now=lambda: START)
    state = replica._core.state
    for name, changed in {
        "active": {},
        "old": {"status": "superseded"},
        "waiting": {"status": "quarantined"},
        "expired": {"expires_at": "2026-03-01T08:59:59Z"},
        "bob's": {"owner": "bob", "namespace": "user/bob/profile"},
    }.items():
        state.apply(memory(name, **changed), START)

    assert [item.id for item in replica.memories(owner="ann")] == ["active"]
    assert len(replica.memories(owner="ann", any_status=True)) == 4
    assert [item.id for item in replica.memories(namespace="user/bob")] == ["bob's"]
    assert replica.get("old") is None
    assert replica.get("old", any_status=True) == memory("old", status="superseded")
    with pytest.raises(ValueError):
        replica.memories(owner="")


async def test_a_replica_that_is_not_running_says_so() -> None:
    replica = mc.Replica("localhost:9", tenant="acme")
    with pytest.raises(mc.ReplicaStopped):
        await replica.wait_for("m", 1)
    with pytest.raises(mc.ReplicaStopped):
        await replica.resync("ann")
    assert not replica.status.healthy()
    await replica.stop()
