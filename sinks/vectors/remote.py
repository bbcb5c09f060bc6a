"""Sinks, vectors: Qdrant Edge behind `memriver vectors serve`, so that several processes share one directory.

Edge has one owner (its log is locked). This is the client's half of a small HTTP protocol: one POST for each method of
`VectorStore`, the collection named in each, JSON both ways. Any request may be sent twice: writes are fenced by
version, so an answer that was lost costs nothing but the repetition.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import orjson

from processors.exceptions import FatalError, Outage, PoisonError, TransientError
from processors.keywords import Sparse
from sinks import outages
from sinks.vectors import payload as p
from sinks.vectors import wire
from sinks.vectors.protocol import Hit, Point, Scope, StoredPoint, Tombstone, check_vector, collection_name

KEY_HEADER = "api-key"

BUSY = (408, 425, 429)

_COMPACTING_SECONDS = 1_800.0
"""How long an answer to `compact` may take: every point is written anew, at some ten thousand a second."""


class RemoteVectors:
    """A `VectorStore` at `http://HOST:PORT` of a vector server. Nothing is sent before `ensure`."""

    def __init__(
        self, url: str, *, prefix: str, model: str, dimension: int, api_key: str | None = None, timeout_s: float = 10
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout_s
        self._headers = {"content-type": "application/json"} | ({KEY_HEADER: api_key} if api_key else {})
        self._collection = collection_name(prefix, model, dimension)
        self._store = {"prefix": prefix, "model": model, "dimension": dimension}
        self._dimension = dimension
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    @property
    def collection(self) -> str:
        return self._collection

    def ensure(self, *, beside: bool = False) -> None:
        with self._lock:
            client = self._client or httpx.Client(
                base_url=self._url, headers=self._headers, timeout=self._timeout, trust_env=False
            )
            try:
                self._post(client, "ensure", {"beside": beside})
            except BaseException:
                if self._client is None:
                    client.close()
                raise
            self._client = client

    def upsert(self, points: Sequence[Point]) -> None:
        # All are checked before the first is sent, so that a bad one leaves nothing half written.
        batches = [batch for _version, batch in p.fenced_points(points, self._dimension, self._collection)]
        for batch in batches:
            self._ask("upsert", {"points": [wire.point_out(point) for point in batch]})

    def delete(self, tombstones: Sequence[Tombstone]) -> None:
        for _version, batch in p.fenced_tombstones(tombstones):
            self._ask("delete", {"tombstones": [wire.tombstone_out(tombstone) for tombstone in batch]})

    def search_dense(self, vector: Sequence[float], scope: Scope, limit: int) -> list[Hit]:
        return self._search("dense", scope, limit, vector=self._checked(vector))

    def search_sparse(self, query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        return self._search("sparse", scope, limit, query=wire.sparse_out(query)) if query else []

    def search_hybrid(self, vector: Sequence[float], query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        return self._search("hybrid", scope, limit, vector=self._checked(vector), query=wire.sparse_out(query))

    def get(self, ids: Sequence[str]) -> list[StoredPoint]:
        return [wire.stored_in(item) for item in self._ask("get", {"ids": p.canonical_ids(ids)})]

    def count(self, scope: Scope) -> int:
        return int(self._ask("count", {"scope": wire.scope_out(scope)}))

    def total(self) -> int:
        return int(self._ask("total", {}))

    def scroll(self, page: int = 1_000) -> Iterator[StoredPoint]:
        body = orjson.dumps({"store": self._store, "page": page})
        with _away("scroll"), self._open().stream("POST", "/v1/scroll", content=body) as answer:
            if answer.status_code != 200:
                answer.read()
                _result("scroll", answer)
            for line in answer.iter_lines():
                if line == END:
                    return
                yield wire.stored_in(orjson.loads(line))
        raise TransientError("cannot scroll: the vector server went away in the middle", part="vectors")

    def compact(self) -> None:
        """As `EdgeVectors.compact`, where the directory is. Repeated after a lost answer, it does it once more."""
        self._post(self._open(), "compact", {}, timeout=httpx.Timeout(self._timeout, read=_COMPACTING_SECONDS))

    def drop(self) -> None:
        # As Edge itself: it is opened first, so that nobody drops what was never there.
        self.ensure(beside=True)
        self._ask("drop", {})
        self.close()

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _search(self, kind: str, scope: Scope, limit: int, **query: Any) -> list[Hit]:
        asked = {"kind": kind, "scope": wire.scope_out(scope), "limit": limit, **query}
        return [wire.hit_in(item) for item in self._ask("search", asked)]

    def _checked(self, vector: Sequence[float]) -> list[float]:
        check_vector(vector, self._dimension, self._collection)
        return [float(x) for x in vector]

    def _ask(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        return self._post(self._open(), verb, arguments)

    def _open(self) -> httpx.Client:
        client = self._client
        if client is None:
            raise FatalError("the vector store is not open; ensure() opens it")
        return client

    def _post(
        self, client: httpx.Client, verb: str, arguments: Mapping[str, Any], *, timeout: httpx.Timeout | None = None
    ) -> Any:
        body = orjson.dumps({"store": self._store, **arguments})
        # As a stream that is over once it is sent: request and answer hold each other, and would hold a body of hundreds of
        # kilobytes until the garbage collector comes by.
        size = {"Content-Length": str(len(body))}
        with _away(verb):
            answer = client.post(f"/v1/{verb}", content=iter((body,)), headers=size, timeout=timeout or client.timeout)
        return _result(verb, answer)


END = '"end"'
"""The last line of a scroll: without it the stream was cut, which looks like its end."""


@contextlib.contextmanager
def _away(verb: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        # The name only: httpx quotes addresses, and a server's bytes, in its messages.
        raise TransientError(
            f"cannot {verb}: the vector server does not answer ({type(error).__name__})", part="vectors"
        ) from error


def _result(verb: str, answer: httpx.Response) -> Any:
    """The server's answer, or its refusal as the exception that it stands for."""
    status = answer.status_code
    try:
        data = orjson.loads(answer.content)
    except orjson.JSONDecodeError as error:
        raise TransientError(
            f"cannot {verb}: what answers ({status}) is no vector server, or a broken one", part="vectors"
        ) from error
    if status == 200:
        return data["result"]
    detail = str(data.get("detail", "")) if isinstance(data, dict) else ""
    if status in BUSY or status >= 500:
        raise TransientError(
            f"cannot {verb}: {detail or f'the vector server answered {status}'}",
            part="vectors",
            outage=outages.http(status, detail) or Outage.AWAY,
        )
    if status == 422:
        raise PoisonError(str(data.get("reason", "refused")), detail)
    raise FatalError(detail or f"cannot {verb}: the vector server answered {status}")
