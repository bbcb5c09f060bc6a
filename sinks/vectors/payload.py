"""Sinks, vectors: between points and payloads, and the order of fenced writes; shared by the backends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sinks.vectors.protocol import TOMBSTONE, PayloadValue, Point, Scope, StoredPoint, Tombstone, check_id, check_vector

DENSE = "dense"
SPARSE = "sparse"
BATCH = 256
"""Points per write: large enough to amortise a round trip, small enough that a request of 3,072 floats a point stays
far below Qdrant's limit of 32 MB."""

INDEXED = ("tenant", "status")
"""Keyword-indexed payload fields next to `OWNER`."""
OWNER = "owner_key"
SPACES = "spaces"
RRF_K = 60

T = TypeVar("T", Point, Tombstone)


def payload_of(point: Point) -> dict[str, PayloadValue]:
    """The fields that filters and reconcilers need; no text."""
    payload: dict[str, PayloadValue] = {
        "tenant": point.tenant,
        OWNER: point.owner_key,
        "namespace": point.namespace,
        SPACES: ancestors(point.namespace),
        "status": point.status,
        "type": point.type,
        "category": point.category,
        "attribute": point.attribute,
        "version": point.version,
        "language": point.language,
        "confidence": point.confidence,
        "sensitivity": point.sensitivity,
    }
    if point.event_time is not None:
        payload["event_time"] = point.event_time
    if point.expires_at is not None:
        payload["expires_at"] = point.expires_at
    return payload


def tombstone_payload(tombstone: Tombstone) -> dict[str, PayloadValue]:
    """Only what the fence needs; not even the owner is left."""
    return {"status": TOMBSTONE, "version": tombstone.version}


def ancestors(namespace: str) -> list[str]:
    """`user/1/work` → [`user`, `user/1`, `user/1/work`]: a prefix by whole segments becomes an exact keyword match."""
    parts = namespace.rstrip("/").split("/")
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def stored(point_id: object, payload: Mapping[str, Any] | None) -> StoredPoint:
    """A point read back."""
    fields = dict(payload or {})
    fields.pop(SPACES, None)
    return StoredPoint(
        id=str(point_id), version=int(fields.get("version", 0)), status=str(fields.get("status", "")), payload=fields
    )


def fenced_points(points: Iterable[Point], dimension: int, collection: str) -> Iterator[tuple[int, list[Point]]]:
    """Batches of points of one version each, since a store's write condition is one per request; newest per id only.

    Everything is checked before the first batch is handed out, so a bad point leaves nothing half written.
    """
    newest: dict[str, Point] = {}
    for point in points:
        point_id = check_id(point.id)
        check_vector(point.dense, dimension, collection)
        known = newest.get(point_id)
        if known is None or known.version < point.version:
            newest[point_id] = point
    return _by_version(newest.values())


def fenced_tombstones(tombstones: Iterable[Tombstone]) -> Iterator[tuple[int, list[Tombstone]]]:
    """As `fenced_points`."""
    newest: dict[str, Tombstone] = {}
    for tombstone in tombstones:
        point_id = check_id(tombstone.id)
        known = newest.get(point_id)
        if known is None or known.version < tombstone.version:
            newest[point_id] = tombstone
    return _by_version(newest.values())


def canonical_ids(ids: Sequence[str]) -> list[str]:
    """Distinct ids in canonical form."""
    return list(dict.fromkeys(check_id(memory_id) for memory_id in ids))


def _by_version(items: Iterable[T]) -> Iterator[tuple[int, list[T]]]:
    groups: dict[int, list[T]] = defaultdict(list)
    for item in items:
        groups[item.version].append(item)
    for version, group in sorted(groups.items()):
        for start in range(0, len(group), BATCH):
            yield version, group[start : start + BATCH]


def keyword_limits(scope: Scope) -> list[tuple[str, tuple[str, ...]]]:
    """(payload field, allowed values) of a scope; each pair must match. The owner is always among them."""
    limits = {
        OWNER: scope.owner_keys,
        "status": scope.statuses,
        SPACES: scope.namespaces,
        "type": scope.types,
        "category": scope.categories,
        "attribute": scope.attributes,
    }
    return [(field, allowed) for field, allowed in limits.items() if allowed is not None]
