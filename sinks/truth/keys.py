"""Truth, data keys: one per owner and beginning, wrapped; destroying one leaves a row that says so and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select, update

from sinks.truth.sql import KEYS, by_keys, chunks, insert_rows
from sinks.truth.tables import data_keys


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key at rest. `wrapped` None: destroyed."""

    key_id: str
    subject_key: str
    wrapped: bytes | None
    master: str


_WRAPPED = select(data_keys.c.key_id, data_keys.c.subject_key, data_keys.c.wrapped, data_keys.c.master)
_BY_ID = _WRAPPED.where(data_keys.c.key_id.in_(KEYS))


def add(connection: Connection, keys: Sequence[WrappedKey], now: datetime) -> None:
    """New keys."""
    insert_rows(
        connection,
        data_keys,
        [
            {
                "key_id": key.key_id,
                "subject_key": key.subject_key,
                "wrapped": key.wrapped,
                "master": key.master,
                "created_at": now,
                "destroyed_at": None,
            }
            for key in keys
        ],
    )


def by_id(connection: Connection, key_ids: Iterable[str]) -> dict[str, WrappedKey]:
    """Those that there ever were, the destroyed ones included."""
    return {
        row.key_id: WrappedKey(*row) for question in by_keys(_BY_ID, key_ids) for row in connection.execute(*question)
    }


def destroy(connection: Connection, subject_keys: Iterable[str], now: datetime, *, but: str | None = None) -> int:
    """Destroy every key of these subjects (but one); returns how many were still there."""
    gone = 0
    for chunk in chunks(sorted(set(subject_keys))):
        statement = update(data_keys).where(data_keys.c.subject_key.in_(chunk), data_keys.c.wrapped.is_not(None))
        if but is not None:
            statement = statement.where(data_keys.c.key_id != but)
        gone += connection.execute(statement.values(wrapped=None, destroyed_at=now)).rowcount
    return gone


def living(connection: Connection, subject_keys: Iterable[str]) -> list[str]:
    """Ids of the keys of these subjects that can still open something."""
    found: list[str] = []
    for chunk in chunks(sorted(set(subject_keys))):
        query = select(data_keys.c.key_id).where(data_keys.c.subject_key.in_(chunk), data_keys.c.wrapped.is_not(None))
        found += connection.execute(query).scalars()
    return found


def not_under(connection: Connection, master: str, limit: int) -> list[WrappedKey]:
    """Living keys that another master key wraps, locked until the transaction ends."""
    query = _WRAPPED.where(data_keys.c.master != master, data_keys.c.wrapped.is_not(None))
    query = query.order_by(data_keys.c.key_id).limit(limit).with_for_update()
    return [WrappedKey(*row) for row in connection.execute(query)]


def rewrap(connection: Connection, keys: Iterable[WrappedKey]) -> None:
    """The same keys under another master key; the caller holds the locks, so a destroyed one cannot come back."""
    for key in keys:
        statement = update(data_keys).where(data_keys.c.key_id == key.key_id, data_keys.c.wrapped.is_not(None))
        connection.execute(statement.values(wrapped=key.wrapped, master=key.master))


def count_by_master(connection: Connection) -> dict[str, int]:
    """Living keys per master key."""
    query = select(data_keys.c.master, func.count()).where(data_keys.c.wrapped.is_not(None))
    return {str(name): int(count) for name, count in connection.execute(query.group_by(data_keys.c.master))}
