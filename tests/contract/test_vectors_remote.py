"""Edge behind its server: away is "try again", a restart loses nothing, and nobody without the key gets in."""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from processors.exceptions import FatalError, PoisonError, TransientError
from processors.keywords import sparse
from sinks.vectors import Point, Scope, VectorStore, open_vectors
from streams.cli import app
from tests.doubles.vector_serving import VectorServing

SCOPE = Scope(tenant="acme", owner_keys=("alice",))


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


def client(serving: VectorServing, *, api_key: str | None = None) -> VectorStore:
    return open_vectors(serving.url, prefix="memories", model="hashing-1", dimension=2, api_key=api_key, timeout_s=5)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[VectorServing]:
    with VectorServing(tmp_path / "vectors") as server:
        yield server


def test_two_processes_may_write_to_one_directory(serving: VectorServing) -> None:
    one, other = client(serving), client(serving)
    one.ensure()
    other.ensure()
    one.upsert([point(1, version=2)])
    other.upsert([point(1, version=1), point(2)])
    assert {it.id: it.version for it in one.scroll()} == {point(1).id: 2, point(2).id: 1}
    one.close()
    assert other.count(SCOPE) == 2
    other.close()


def test_while_the_server_is_away_everything_says_try_again(serving: VectorServing) -> None:
    store = client(serving)
    store.ensure()
    serving.stop()
    for ask in (
        lambda: store.upsert([point(1)]),
        lambda: store.count(SCOPE),
        lambda: store.search_dense([0.6, 0.8], SCOPE, 1),
        lambda: list(store.scroll()),
        lambda: client(serving).ensure(),
    ):
        with pytest.raises(TransientError, match="does not answer"):
            ask()
    store.close()


def test_after_a_restart_a_client_goes_on_without_opening_anew(serving: VectorServing) -> None:
    store = client(serving)
    store.ensure()
    store.upsert([point(number) for number in range(300)])
    serving.stop()
    serving.start()
    store.upsert([point(0, version=2)])
    assert store.total() == 300
    assert store.get([point(0).id])[0].version == 2
    store.close()


def test_what_was_sent_is_not_kept(serving: VectorServing) -> None:
    """Scenario: many writes, and the garbage collector does not come by. We expect what they sent to be freed all the same."""
    store = client(serving)
    store.ensure()
    points = [point(number) for number in range(300)]
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(20):
            store.upsert(points)
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/sinks/vectors/remote.py")])
    finally:
        tracemalloc.stop()
        gc.enable()
    assert sum(trace.size for trace in ours.traces) < 100_000
    store.close()


def test_a_collection_that_vanished_is_no_empty_one(serving: VectorServing) -> None:
    """Scenario: the collection is dropped by another process while this one has it open.
    We expect: an end with a reason. To go on with an empty collection would be to forget everyone."""
    store, other = client(serving), client(serving)
    store.ensure()
    other.drop()
    with pytest.raises(FatalError, match="is not there"):
        store.upsert([point(1)])
    store.close()


def test_a_scroll_that_is_cut_does_not_look_like_its_end(
    monkeypatch: pytest.MonkeyPatch, serving: VectorServing
) -> None:
    store = client(serving)
    store.ensure()
    store.upsert([point(number) for number in range(3)])
    lines = httpx.Response.iter_lines
    monkeypatch.setattr(httpx.Response, "iter_lines", lambda answer: list(lines(answer))[:2])
    with pytest.raises(TransientError, match="went away"):
        list(store.scroll())
    store.close()


def test_another_service_at_the_address_is_not_taken_for_one(tmp_path: Path) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(502, text="<html>bad gateway</html>")

    store = open_vectors("edge+http://127.0.0.1:1", prefix="memories", model="hashing-1", dimension=2)
    store._client = httpx.Client(base_url="http://gateway", transport=httpx.MockTransport(answer))  # type: ignore[attr-defined]
    with pytest.raises(TransientError, match="no vector server"):
        store.total()


def test_the_server_asks_for_its_key(tmp_path: Path) -> None:
    with VectorServing(tmp_path / "vectors", api_key="open sesame") as guarded:
        for wrong in (None, "sesame"):
            with pytest.raises(FatalError, match="another key"):
                client(guarded, api_key=wrong).ensure()
        right = client(guarded, api_key="open sesame")
        right.ensure()
        assert right.total() == 0
        right.close()


def test_the_server_refuses_what_the_client_should_not_have_sent(serving: VectorServing) -> None:
    opened = client(serving)
    opened.ensure()
    store = {"prefix": "memories", "model": "hashing-1", "dimension": 2}
    with httpx.Client(base_url=f"http://127.0.0.1:{serving.port}", trust_env=False) as raw:
        scope = {name: None for name in ("namespaces", "statuses", "types", "categories", "attributes", "ids")}
        nobody = {"store": store, "scope": {"tenant": "acme", "owner_keys": [], "not_expired_at": None, **scope}}
        assert raw.post("/v1/count", json=nobody).status_code == 400
        assert raw.post("/v1/count", content=b"{").status_code == 400
        assert raw.post("/v1/burn", json={"store": store}).status_code == 404
        assert raw.get("/healthz").status_code == 200
    opened.close()


def test_a_bad_id_is_the_callers_fault(serving: VectorServing) -> None:
    store = client(serving)
    store.ensure()
    with pytest.raises(PoisonError):
        store.get(["not-a-uuid"])
    store.close()


def test_serving_beyond_this_machine_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMRIVER_QDRANT_API_KEY", raising=False)
    done = CliRunner().invoke(app, ["vectors", "serve", "--host", "0.0.0.0", "--data", str(tmp_path)])
    assert isinstance(done.exception, PoisonError)
    assert "MEMRIVER_QDRANT_API_KEY" in str(done.exception)
