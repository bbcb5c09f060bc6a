"""Sinks, vectors: the values of the protocol as JSON, for the server in front of an Edge directory and for its client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from processors.keywords import Sparse
from sinks.vectors.protocol import Hit, Point, Scope, StoredPoint, Tombstone

_POINT = (
    *("id", "owner_key", "tenant", "namespace", "status", "type", "category", "attribute", "version", "event_time"),
    *("expires_at", "language", "confidence", "sensitivity"),
)
_SCOPE = ("owner_keys", "namespaces", "statuses", "types", "categories", "attributes", "ids")


def point_out(point: Point) -> dict[str, Any]:
    """A point; doubles survive JSON unchanged."""
    fields = {name: getattr(point, name) for name in _POINT}
    return fields | {"dense": [float(x) for x in point.dense], "sparse": sparse_out(point.sparse)}


def point_in(data: Mapping[str, Any]) -> Point:
    """Raises KeyError or ValueError for what is none."""
    return Point(**{name: data[name] for name in _POINT}, dense=data["dense"], sparse=sparse_in(data["sparse"]))


def sparse_out(sparse: Sparse) -> list[list[Any]]:
    """[indices, values]."""
    return [[int(index) for index in sparse.indices], [float(value) for value in sparse.values]]


def sparse_in(data: Any) -> Sparse:
    """Inverse of `sparse_out`."""
    indices, values = data
    return Sparse(tuple(indices), tuple(values))


def scope_out(scope: Scope) -> dict[str, Any]:
    """A scope; what is unrestricted is null."""
    return {name: getattr(scope, name) for name in ("tenant", "not_expired_at", *_SCOPE)}


def scope_in(data: Mapping[str, Any]) -> Scope:
    """Raises ValueError for a scope that names no owner: the server refuses what the client should have refused."""
    lists = {name: tuple(data[name]) if data[name] is not None else None for name in _SCOPE}
    return Scope(tenant=data["tenant"], not_expired_at=data["not_expired_at"], **lists)  # type: ignore[arg-type]  # checked there


def hit_out(hit: Hit) -> dict[str, Any]:
    """A search result."""
    return {"id": hit.id, "score": hit.score, "version": hit.version, "payload": dict(hit.payload)}


def hit_in(data: Mapping[str, Any]) -> Hit:
    """Inverse of `hit_out`."""
    return Hit(id=data["id"], score=data["score"], version=data["version"], payload=data["payload"])


def stored_out(point: StoredPoint) -> dict[str, Any]:
    """A point read back."""
    return {"id": point.id, "version": point.version, "status": point.status, "payload": dict(point.payload)}


def stored_in(data: Mapping[str, Any]) -> StoredPoint:
    """Inverse of `stored_out`."""
    return StoredPoint(id=data["id"], version=data["version"], status=data["status"], payload=data["payload"])


def tombstone_out(tombstone: Tombstone) -> list[Any]:
    """[id, version]."""
    return [tombstone.id, tombstone.version]


def tombstone_in(data: Any) -> Tombstone:
    """Inverse of `tombstone_out`."""
    memory_id, version = data
    return Tombstone(memory_id, version)
