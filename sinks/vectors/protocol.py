"""Sinks, vectors: what every vector store promises, and the values that pass through it (SPEC R2, R3, L5).

A store holds one collection of one embedding model and dimension, so two vector spaces never mix. A point is a memory's
vectors plus the fields that filters need. The text stays in truth: a vector store that leaks, leaks no sentence.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from processors.exceptions import FatalError, PoisonError
from processors.keywords import Sparse
from schemas.base import digest

TOMBSTONE = "deleted"
"""Status of a point whose content is gone; equal to `schemas.memory.Status.DELETED`."""

REINDEX_COMMAND = "memriver reindex start"

PayloadValue = str | int | float | list[str]


@dataclass(frozen=True, slots=True)
class Point:
    """A memory as the vector store sees it.

    `id` is the memory id (a UUID string). `dense` is a unit vector of the store's dimension, `sparse` the BM25 vector
    of the same text. `event_time` and `expires_at` are seconds since the epoch, UTC; None when there is none.

    Raises:
        ValueError: no tenant, owner or namespace, or the status of a tombstone.
    """

    id: str
    owner_key: str
    tenant: str
    namespace: str
    status: str
    type: str
    category: str
    attribute: str
    version: int
    event_time: float | None
    expires_at: float | None
    language: str
    confidence: float
    sensitivity: str
    dense: Sequence[float]
    sparse: Sparse

    def __post_init__(self) -> None:
        if self.status == TOMBSTONE:
            raise ValueError("a deleted memory has no vectors; it goes to delete()")
        if not (self.tenant and self.owner_key and self.namespace):
            raise ValueError("a point needs a tenant, an owner and a namespace, or no search could be fenced in")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose points a request may see. Every search and count applies it inside the store.

    `namespaces` are allowed prefixes in whole segments: `user/1` covers `user/1` and `user/1/work`, not `user/10`.
    None leaves a field unrestricted; an empty tuple would read as "all" somewhere one day and is refused. `ids` narrows
    a search to known points, to score what another index has found. `not_expired_at` (epoch seconds) leaves out points
    whose `expires_at` is at or before it.

    Raises:
        ValueError: no tenant, no owner, or an empty restriction.
    """

    tenant: str
    owner_keys: tuple[str, ...]
    namespaces: tuple[str, ...] | None = None
    statuses: tuple[str, ...] = ("active",)
    types: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    attributes: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    not_expired_at: float | None = None

    def __post_init__(self) -> None:
        if not self.tenant:
            raise ValueError("the request names no tenant")
        if not self.owner_keys or not all(self.owner_keys):
            raise ValueError("the request names no owner")
        if self.namespaces is not None:
            # Kept without their closing slash, as `ancestors` writes them.
            object.__setattr__(self, "namespaces", tuple(name.rstrip("/") for name in self.namespaces))
        for field in ("namespaces", "statuses", "types", "categories", "attributes", "ids"):
            allowed: tuple[str, ...] | None = getattr(self, field)
            if allowed is not None and (not allowed or not all(allowed)):
                raise ValueError(f"the request's {field} allow nothing; leave the restriction out or name something")
        if self.not_expired_at is not None and not math.isfinite(self.not_expired_at):
            raise ValueError("not_expired_at is not a finite number of seconds")


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """What the store holds under an id, without vectors. A tombstone has status `deleted` and no other payload."""

    id: str
    version: int
    status: str
    payload: Mapping[str, PayloadValue]


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result.

    `score` is the raw cosine in [-1, 1] of a dense search (calibrate before comparing models), the unbounded BM25 sum
    of a sparse one, or the reciprocal-rank sum of a hybrid one. `version` is to be compared with truth's.
    """

    id: str
    score: float
    version: int
    payload: Mapping[str, PayloadValue]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A memory that is gone as of `version`."""

    id: str
    version: int


class VectorStore(Protocol):
    """One collection. Methods may be called from several threads.

    Writes are fenced by version inside the store: for each id the state with the highest version wins, and at equal
    versions a tombstone wins, in whatever order and however often writes arrive, from any number of processes.

    Every method raises `TransientError` while a server is away or overloaded, and `FatalError` when the store cannot go
    on (locked by another process, wrong schema, refused request).
    """

    @property
    def collection(self) -> str:
        """Name of the collection: prefix, model and dimension."""

    def ensure(self, *, beside: bool = False) -> None:
        """Open the collection, creating it if absent; must come first.

        Args:
            beside: allow a new collection while one of another model exists under the same prefix. Only re-embedding
                does; otherwise a changed embedder would start from an empty space and forget everyone.

        Raises:
            FatalError: another model's collection is there, or this one has a different shape.
        """

    def upsert(self, points: Sequence[Point]) -> None:
        """Write points whose version is higher than the stored one; others are left as they are.

        Raises:
            FatalError: a vector has another dimension.
            PoisonError: a vector is not finite or all zeros, or an id is no UUID; nothing is written.
        """

    def delete(self, tombstones: Sequence[Tombstone]) -> None:
        """Replace points of the same or a lower version by tombstones; an id never seen gets one too.

        The tombstone keeps id and version, so that a late writer with an older version cannot bring the memory back.
        """

    def search_dense(self, vector: Sequence[float], scope: Scope, limit: int) -> list[Hit]:
        """Nearest points by cosine, best first."""

    def search_sparse(self, query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        """Best keyword matches, best first; points without a common token are not returned."""

    def search_hybrid(self, vector: Sequence[float], query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        """Both, fused by reciprocal rank (Cormack et al., SIGIR 2009, k = 60)."""

    def get(self, ids: Sequence[str]) -> list[StoredPoint]:
        """What is stored under the ids, tombstones included, in any order; unscoped, so for reconcilers only."""

    def count(self, scope: Scope) -> int:
        """How many points the scope covers."""

    def total(self) -> int:
        """How many points the collection holds for everyone, tombstones not counted; for verification and metrics."""

    def scroll(self, page: int = 1_000) -> Iterator[StoredPoint]:
        """Every point and tombstone, ascending by id, read page by page; for reconcilers."""

    def drop(self) -> None:
        """Delete the collection with everything in it, and close."""

    def close(self) -> None:
        """Flush and release; calling it again is harmless."""


_PREFIX = re.compile(r"[a-z][a-z0-9-]*(?:_[a-z0-9-]+)*")


def collection_name(prefix: str, model: str, dimension: int) -> str:
    """`{prefix}_{model}_{dimension}`, fit for a directory, a URL and Qdrant.

    A model name that has to be altered for that gets a few digits of its digest, so two models never share a name.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ValueError("a collection prefix is lower-case letters, digits, '-' and '_', and begins with a letter")
    if not model or dimension < 1:
        raise ValueError("a collection needs a model name and a positive dimension")
    slug = re.sub(r"[^a-z0-9.-]+", "-", model.lower())[:80].strip("-.")
    if slug != model:
        slug = f"{slug}-{digest(model)[:8]}".lstrip("-")
    return f"{prefix}_{slug}_{dimension}"


def of_same_prefix(names: Sequence[str], prefix: str) -> list[str]:
    """The collections among `names` that belong to `prefix`, whatever their model."""
    # The model part holds no underscore, so prefix `memories` does not claim `memories_docs_…`.
    pattern = re.compile(re.escape(prefix) + r"_[a-z0-9.-]+_[0-9]+")
    return sorted(name for name in names if pattern.fullmatch(name))


def refuse_beside(wanted: str, others: Sequence[str]) -> None:
    """Raise because `wanted` would be created next to other models' collections."""
    raise FatalError(
        f"the vectors are in {', '.join(others)}, but the configured embedder needs {wanted}; "
        f"configure the former embedder, or run `{REINDEX_COMMAND}` to build the new collection from truth"
    )


def check_vector(vector: Sequence[float], dimension: int, collection: str) -> None:
    """Refuse a vector that does not belong into the collection.

    Raises:
        FatalError: wrong dimension: the embedder is not the one that the collection was made for.
        PoisonError: not a number, infinite, or all zeros, which has no direction.
    """
    if len(vector) != dimension:
        raise FatalError(
            f"a vector of {len(vector)} dimensions does not fit {collection}; "
            f"run `{REINDEX_COMMAND}` after a change of embedder"
        )
    norm = math.hypot(*vector)
    if not math.isfinite(norm) or norm == 0.0:
        raise PoisonError("bad_vector", "a vector must be finite and not all zeros")


_CANONICAL = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_id(memory_id: str) -> str:
    """The id in the canonical form of 36 characters.

    Raises:
        PoisonError: not a UUID.
    """
    try:
        # Nearly always it is in that form already, which is faster seen than made.
        return memory_id if _CANONICAL.fullmatch(memory_id) else str(uuid.UUID(memory_id))
    except (ValueError, AttributeError, TypeError) as exc:
        raise PoisonError("bad_id", "a memory id must be a UUID") from exc
