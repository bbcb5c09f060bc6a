"""Truth, scanning: memories in the order of their ids, page by page, for whoever rebuilds or compares a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from sinks.truth.tables import memories


@dataclass(frozen=True, slots=True)
class Entry:
    """What a point is made of, from one row of `memories`; times are UTC, None where there is none."""

    id: str
    owner_key: str
    tenant: str
    namespace: str
    status: str
    type: str
    category: str
    attribute: str
    version: int
    valid_from: datetime | None
    last_stated_at: datetime
    expires_at: datetime | None
    language: str
    confidence: float
    sensitivity: str
    text: str
    value: str


_ENTRY = (
    memories.c.id,
    memories.c.owner_key,
    memories.c.tenant,
    memories.c.namespace,
    memories.c.status,
    memories.c.type,
    memories.c.category,
    memories.c.attribute,
    memories.c.version,
    memories.c.valid_from,
    memories.c.last_stated_at,
    memories.c.expires_at,
    memories.c.language,
    memories.c.confidence,
    memories.c.sensitivity,
    memories.c.text,
    memories.c.value,
)


def entries_after(connection: Connection, after: str, limit: int) -> list[Entry]:
    """The next memories by id, whatever their status: archived, superseded and deleted ones too."""
    query = select(*_ENTRY).where(memories.c.id > after).order_by(memories.c.id).limit(limit)
    return [_entry(row) for row in connection.execute(query)]


def entries(connection: Connection, ids: Sequence[str]) -> dict[str, Entry]:
    """Memories by id; at most a few hundred ids."""
    found = [_entry(row) for row in connection.execute(select(*_ENTRY).where(memories.c.id.in_(ids)))]
    return {entry.id: entry for entry in found}


@dataclass(frozen=True, slots=True)
class Mark:
    """A memory's id, version, status and owner: what a comparison of stores needs."""

    id: str
    version: int
    status: str
    owner_key: str


_MARK = (memories.c.id, memories.c.version, memories.c.status, memories.c.owner_key)


def marks_after(connection: Connection, after: str, limit: int) -> list[Mark]:
    """The next marks by id."""
    query = select(*_MARK).where(memories.c.id > after).order_by(memories.c.id).limit(limit)
    return [Mark(*row) for row in connection.execute(query)]


def marks(connection: Connection, ids: Sequence[str]) -> dict[str, Mark]:
    """Marks by id; at most a few hundred ids."""
    return {row.id: Mark(*row) for row in connection.execute(select(*_MARK).where(memories.c.id.in_(ids)))}


def size(connection: Connection) -> int:
    """How many memories truth holds, whatever their status."""
    return int(connection.execute(select(func.count()).select_from(memories)).scalar_one())


def owners(connection: Connection) -> int:
    """How many owners have memories."""
    return int(connection.execute(select(func.count(func.distinct(memories.c.owner_key)))).scalar_one())


def _entry(row: Any) -> Entry:
    return Entry(*row)
