"""The vector server: the one process that owns a Qdrant Edge directory, and its HTTP door for all the others.

`POST /v1/VERB` for each method of `sinks.vectors.VectorStore`; the body names the collection, so one server holds those
of several models side by side. 503: try again; 422: this message is wrong; 409: going on makes no sense.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from processors.exceptions import FatalError, MemriverError, PoisonError, TransientError
from sinks.vectors import VectorStore, collection_name, wire
from sinks.vectors.edge import EdgeVectors
from sinks.vectors.remote import END, KEY_HEADER

log = logging.getLogger("memriver.vectors")

Verb = Callable[[EdgeVectors, Mapping[str, Any]], Any]


class Collections:
    """The open collections of one directory. Safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._open: dict[str, EdgeVectors] = {}

    def ensure(self, store: Mapping[str, Any], *, beside: bool) -> None:
        """Open a collection, creating it if the rules of `VectorStore.ensure` allow."""
        name, edge = self._made(store)
        with self._lock:
            edge = self._open.get(name, edge)
            edge.ensure(beside=beside)
            self._open[name] = edge

    def get(self, store: Mapping[str, Any]) -> EdgeVectors:
        """A collection that exists. A client opened it before this process began; it need not know that it is a new one.

        Raises:
            FatalError: it is not there; `ensure` would make it.
        """
        name, edge = self._made(store)
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                return found
            if not (self._directory / name).exists():
                raise FatalError(f"the collection {name} is not there; ensure() makes it")
            edge.ensure(beside=True)
            self._open[name] = edge
            return edge

    def drop(self, store: Mapping[str, Any]) -> None:
        """Delete a collection with everything in it."""
        edge = self.get(store)
        with self._lock:
            edge.drop()
            self._open.pop(edge.collection, None)

    def close(self) -> None:
        """Flush and give the directory back."""
        with self._lock:
            for edge in self._open.values():
                edge.close()
            self._open.clear()

    def _made(self, store: Mapping[str, Any]) -> tuple[str, EdgeVectors]:
        prefix, model, dimension = str(store["prefix"]), str(store["model"]), int(store["dimension"])
        edge = EdgeVectors(self._directory, prefix=prefix, model=model, dimension=dimension)
        return collection_name(prefix, model, dimension), edge


def _upsert(store: VectorStore, body: Mapping[str, Any]) -> None:
    store.upsert([wire.point_in(item) for item in body["points"]])


def _delete(store: VectorStore, body: Mapping[str, Any]) -> None:
    store.delete([wire.tombstone_in(item) for item in body["tombstones"]])


def _search(store: VectorStore, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    scope, limit, kind = wire.scope_in(body["scope"]), int(body["limit"]), body["kind"]
    if kind == "dense":
        hits = store.search_dense(body["vector"], scope, limit)
    elif kind == "sparse":
        hits = store.search_sparse(wire.sparse_in(body["query"]), scope, limit)
    elif kind == "hybrid":
        hits = store.search_hybrid(body["vector"], wire.sparse_in(body["query"]), scope, limit)
    else:
        raise ValueError("kind is dense, sparse or hybrid")
    return [wire.hit_out(hit) for hit in hits]


def _get(store: VectorStore, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [wire.stored_out(point) for point in store.get(body["ids"])]


_VERBS: Mapping[str, Verb] = {
    "upsert": _upsert,
    "delete": _delete,
    "search": _search,
    "get": _get,
    "count": lambda store, body: store.count(wire.scope_in(body["scope"])),
    "total": lambda store, _body: store.total(),
    "compact": lambda store, _body: store.compact(),
}


def vector_app(collections: Collections, *, api_key: str | None = None) -> Starlette:
    """The door. With a key, a request without it is refused."""

    def done(verb: str, body: Mapping[str, Any]) -> Any:
        store = body["store"]
        if verb == "ensure":
            return collections.ensure(store, beside=bool(body["beside"]))
        if verb == "drop":
            return collections.drop(store)
        return _VERBS[verb](collections.get(store), body)

    async def answer(request: Request) -> Response:
        if not _allowed(request, api_key):
            return _refusal(401, "the vector server wants another key")
        verb = str(request.path_params["verb"])
        if verb not in (*_VERBS, "ensure", "drop", "scroll"):
            return _refusal(404, "the vector server knows no such verb; it is older or newer than its client")
        try:
            body = orjson.loads(await request.body())
            if verb == "scroll":
                store = await run_in_threadpool(collections.get, body["store"])
                return StreamingResponse(_lines(store, int(body["page"])), media_type="application/x-ndjson")
            result = await run_in_threadpool(done, verb, body)
        except PoisonError as error:
            return _refusal(422, error.detail, reason=error.reason)
        except TransientError as error:
            return _refusal(503, str(error))
        except MemriverError as error:
            return _refusal(409, str(error))
        except (ValueError, KeyError, TypeError) as error:
            return _refusal(400, f"the vector server could not read the request ({type(error).__name__})")
        return Response(orjson.dumps({"result": result}), media_type="application/json")

    async def health(_request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    return Starlette(routes=[Route("/healthz", health), Route("/v1/{verb}", answer, methods=["POST"])])


def _lines(store: VectorStore, page: int) -> Iterator[bytes]:
    for point in store.scroll(page):
        yield orjson.dumps(wire.stored_out(point)) + b"\n"
    yield END.encode() + b"\n"


def _allowed(request: Request, api_key: str | None) -> bool:
    return not api_key or hmac.compare_digest(request.headers.get(KEY_HEADER, "").encode(), api_key.encode())


def _refusal(status: int, detail: str, *, reason: str = "") -> Response:
    body = {"detail": detail} | ({"reason": reason} if reason else {})
    return Response(orjson.dumps(body), status_code=status, media_type="application/json")
