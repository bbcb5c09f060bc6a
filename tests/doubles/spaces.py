"""Tests, doubles: vectors that say which model made them, and stores that notice one of another model."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from sinks.embedders.hashing import HashingEmbedder
from sinks.vectors import Hit, Point, Scope, StoredPoint, Tombstone, VectorStore

_MARK = 0.3


class Marked:
    """Hashed words with a mark in front: positive for models that end in `a`, negative for the others."""

    def __init__(self, name: str) -> None:
        model, _, dimension = name.partition(":")
        self.model, self.dimension = model, int(dimension)
        self._inner = HashingEmbedder(self.dimension - 1)
        self.documents = 0
        self.away: Exception | None = None

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        if self.away is not None:
            raise self.away
        self.documents += len(texts)
        return [self._marked(vector) for vector in self._inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self._marked(self._inner.embed_query(text))

    def _marked(self, vector: list[float]) -> list[float]:
        rest = (1 - _MARK**2) ** 0.5
        return [mark_of(self.model), *(x * rest for x in vector)]


def mark_of(model: str) -> float:
    """The first coordinate of a model's vectors."""
    return _MARK if model.endswith("a") else -_MARK


class Watched:
    """A store that counts what it is asked, and writes down every vector that is not of its own model."""

    def __init__(
        self, inner: VectorStore, model: str, dimension: int, seen: Seen, lock: threading.RLock | None
    ) -> None:
        self._inner = inner
        self._model = model
        self._dimension = dimension
        self._seen = seen
        # qdrant-client's engine in memory is not for several threads.
        self._one: AbstractContextManager[object] = lock or nullcontext()

    @property
    def collection(self) -> str:
        return self._inner.collection

    def _check(self, what: str, vector: Sequence[float]) -> None:
        self._seen.calls[what, self._model] += 1
        if len(vector) != self._dimension or vector[0] * mark_of(self._model) <= 0:
            self._seen.mixed.append(f"{what} in {self.collection}")

    def ensure(self, *, beside: bool = False) -> None:
        with self._one:
            self._inner.ensure(beside=beside)

    def upsert(self, points: Sequence[Point]) -> None:
        for point in points:
            self._check("upsert", point.dense)
        with self._one:
            self._inner.upsert(points)

    def delete(self, tombstones: Sequence[Tombstone]) -> None:
        with self._one:
            self._inner.delete(tombstones)

    def search_dense(self, vector: Sequence[float], scope: Scope, limit: int) -> list[Hit]:
        self._check("search", vector)
        with self._one:
            return self._inner.search_dense(vector, scope, limit)

    def search_sparse(self, query: object, scope: Scope, limit: int) -> list[Hit]:
        with self._one:
            return self._inner.search_sparse(query, scope, limit)  # type: ignore[arg-type]  # passed on as it came

    def search_hybrid(self, vector: Sequence[float], query: object, scope: Scope, limit: int) -> list[Hit]:
        self._check("search", vector)
        with self._one:
            return self._inner.search_hybrid(vector, query, scope, limit)  # type: ignore[arg-type]  # as above

    def get(self, ids: Sequence[str]) -> list[StoredPoint]:
        with self._one:
            return self._inner.get(ids)

    def count(self, scope: Scope) -> int:
        with self._one:
            return self._inner.count(scope)

    def total(self) -> int:
        with self._one:
            return self._inner.total()

    def scroll(self, page: int = 1_000) -> Iterator[StoredPoint]:
        with self._one:
            found = list(self._inner.scroll(page))
        yield from found

    def drop(self) -> None:
        with self._one:
            self._inner.drop()

    def close(self) -> None:
        with self._one:
            self._inner.close()


class Seen:
    """What all stores of a test saw: calls by (what, model), and vectors of a wrong model."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.mixed: list[str] = []

    def opener(
        self, open_store: Callable[[str, int], VectorStore], lock: threading.RLock | None = None
    ) -> Callable[[str, int], VectorStore]:
        """`open_store` with each store watched."""
        return lambda model, dimension: Watched(open_store(model, dimension), model, dimension, self, lock)
