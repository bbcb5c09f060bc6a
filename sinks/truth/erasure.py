"""Truth, erasures: what was asked for, how far it is, what it found; and the numbers of memories that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection, Select, func, or_, select, update

from sinks.truth.sql import chunks, insert_rows, replace_rows
from sinks.truth.tables import erased_memories, erasure_counts, erasures, memories


class Scope(StrEnum):
    """What is erased."""

    MEMORY = "memory"
    CONVERSATION = "conversation"
    OWNER = "owner"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Target:
    """What is meant, in plain words; kept only until it is done.

    `owners` are (kind, id) whose memories are concerned; `turn_keys` the turns that go although their owner stays, and
    `speakers` the owner keys of those turns.
    """

    tenant: str
    owners: tuple[tuple[str, str], ...] = ()
    conversation_key: str | None = None
    conversation_id: str | None = None
    memory_id: str | None = None
    turn_keys: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()

    def to_json(self) -> str:
        """For the row."""
        return orjson.dumps({name: getattr(self, name) for name in self.__dataclass_fields__}).decode()

    @classmethod
    def from_json(cls, text: str) -> Target:
        """Inverse of `to_json`."""
        data = orjson.loads(text)
        owners = tuple((kind, owner) for kind, owner in data.pop("owners"))
        lists = {name: tuple(data[name]) for name in ("turn_keys", "speakers")}
        return cls(**data | lists | {"owners": owners})


@dataclass(frozen=True, slots=True)
class Erasure:
    """One row. `target` None and `receipt` set: done."""

    erasure_id: str
    scope: Scope
    subject_key: str
    tenant_key: str
    status: str
    opened_at: datetime
    target: Target | None
    done_at: datetime | None = None
    steps: Mapping[str, Any] = field(default_factory=dict)
    receipt: Mapping[str, Any] | None = None


def open_(connection: Connection, erasure: Erasure) -> None:
    """A new one."""
    row = {
        "erasure_id": erasure.erasure_id,
        "scope": erasure.scope.value,
        "subject_key": erasure.subject_key,
        "tenant_key": erasure.tenant_key,
        "status": erasure.status,
        "target": erasure.target.to_json() if erasure.target is not None else None,
        "steps": orjson.dumps(dict(erasure.steps)).decode(),
        "holder": None,
        "held_until": None,
        "opened_at": erasure.opened_at,
        "done_at": None,
        "receipt": None,
    }
    insert_rows(connection, erasures, [row])


def get(connection: Connection, erasure_id: str) -> Erasure | None:
    """One of them."""
    row = connection.execute(select(erasures).where(erasures.c.erasure_id == erasure_id)).one_or_none()
    return _erasure(row) if row is not None else None


def open_of(connection: Connection, subject_key: str) -> Erasure | None:
    """One that is under way for this subject."""
    query = select(erasures).where(erasures.c.subject_key == subject_key, erasures.c.status == "open")
    row = connection.execute(query.order_by(erasures.c.opened_at).limit(1)).one_or_none()
    return _erasure(row) if row is not None else None


def claim(connection: Connection, holder: str, now: datetime, lease: timedelta) -> Erasure | None:
    """The oldest open one that nobody is at work on; it is the holder's until the lease ends."""
    free = or_(erasures.c.held_until.is_(None), erasures.c.held_until <= now, erasures.c.holder == holder)
    query = select(erasures).where(erasures.c.status == "open", free).order_by(erasures.c.opened_at).limit(1)
    row = connection.execute(query.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    statement = update(erasures).where(erasures.c.erasure_id == row.erasure_id)
    connection.execute(statement.values(holder=holder, held_until=now + lease))
    return _erasure(row)


def let_go(connection: Connection, holder: str) -> None:
    """What this holder had may be taken by another one."""
    connection.execute(update(erasures).where(erasures.c.holder == holder).values(holder=None, held_until=None))


def step(connection: Connection, erasure_id: str, name: str, found: Any) -> None:
    """This step is done, and found this; the row is locked while it is read and written."""
    query = select(erasures.c.steps).where(erasures.c.erasure_id == erasure_id).with_for_update()
    steps = orjson.loads(connection.execute(query).scalar_one())
    steps[name] = found
    statement = update(erasures).where(erasures.c.erasure_id == erasure_id)
    connection.execute(statement.values(steps=orjson.dumps(steps).decode()))


def unstep(connection: Connection, erasure_id: str, names: Iterable[str]) -> None:
    """These steps have to be done once more."""
    query = select(erasures.c.steps).where(erasures.c.erasure_id == erasure_id).with_for_update()
    steps = orjson.loads(connection.execute(query).scalar_one())
    kept = {name: found for name, found in steps.items() if name not in set(names)}
    statement = update(erasures).where(erasures.c.erasure_id == erasure_id)
    connection.execute(statement.values(steps=orjson.dumps(kept).decode()))


def close(connection: Connection, erasure_id: str, receipt: Mapping[str, Any], now: datetime) -> None:
    """Done: what it was about is forgotten, the receipt stays."""
    statement = update(erasures).where(erasures.c.erasure_id == erasure_id)
    values = {"status": "done", "target": None, "holder": None, "held_until": None, "done_at": now}
    connection.execute(statement.values(**values, receipt=orjson.dumps(dict(receipt)).decode()))


def listing(connection: Connection, *, status: str | None = None, limit: int = 100) -> list[Erasure]:
    """The newest first."""
    query = select(erasures).order_by(erasures.c.opened_at.desc()).limit(limit)
    if status is not None:
        query = query.where(erasures.c.status == status)
    return [_erasure(row) for row in connection.execute(query)]


def oldest_open(connection: Connection) -> datetime | None:
    """When the erasure that has waited longest was asked for."""
    return connection.execute(select(func.min(erasures.c.opened_at)).where(erasures.c.status == "open")).scalar()


def count(connection: Connection, erasure_id: str, found: Mapping[str, int]) -> None:
    """Add to what was erased per store; in the transaction that erases it, so that a repetition counts nothing twice."""
    known = counts(connection, erasure_id)
    rows = [
        {"erasure_id": erasure_id, "store": store, "count": known.get(store, 0) + number}
        for store, number in found.items()
    ]
    replace_rows(connection, erasure_counts, rows)


def counts(connection: Connection, erasure_id: str) -> dict[str, int]:
    """What was erased so far, per store."""
    columns = (erasure_counts.c.store, erasure_counts.c["count"])
    rows = connection.execute(select(*columns).where(erasure_counts.c.erasure_id == erasure_id))
    return {store: int(number) for store, number in rows}


def bury(connection: Connection, erasure_id: str, gone: Sequence[tuple[str, str, int]]) -> None:
    """Keep the numbers of memories that are gone: (memory id, cell, last version)."""
    rows = [
        {"memory_id": memory_id, "cell_key": cell_key, "version": version, "erasure_id": erasure_id}
        for memory_id, cell_key, version in gone
    ]
    replace_rows(connection, erased_memories, rows)


def buried_in(connection: Connection, cell_keys: Iterable[str]) -> dict[str, dict[str, int]]:
    """Memories that once lived in these cells: their last versions, by cell."""
    found: dict[str, dict[str, int]] = {}
    for chunk in chunks(sorted(set(cell_keys))):
        for row in connection.execute(select(erased_memories).where(erased_memories.c.cell_key.in_(chunk))):
            found.setdefault(row.cell_key, {})[row.memory_id] = row.version
    return found


def buried_by(connection: Connection, erasure_id: str) -> list[tuple[str, int]]:
    """(memory id, last version) of everything that this erasure took."""
    query: Select[Any] = select(erased_memories.c.memory_id, erased_memories.c.version)
    rows = connection.execute(query.where(erased_memories.c.erasure_id == erasure_id))
    return [(row.memory_id, row.version) for row in rows]


def buried_after(connection: Connection, after: str, limit: int) -> list[tuple[str, int]]:
    """The next (memory id, last version) by id of what all erasures took, but for those that truth knows again."""
    query: Select[Any] = select(erased_memories.c.memory_id, erased_memories.c.version)
    anew = select(memories.c.id).where(memories.c.id == erased_memories.c.memory_id).exists()
    query = query.where(erased_memories.c.memory_id > after, ~anew).order_by(erased_memories.c.memory_id).limit(limit)
    return [(row.memory_id, row.version) for row in connection.execute(query)]


def _erasure(row: Any) -> Erasure:
    return Erasure(
        erasure_id=row.erasure_id,
        scope=Scope(row.scope),
        subject_key=row.subject_key,
        tenant_key=row.tenant_key,
        status=row.status,
        opened_at=row.opened_at,
        target=Target.from_json(row.target) if row.target is not None else None,
        done_at=row.done_at,
        steps=orjson.loads(row.steps),
        receipt=orjson.loads(row.receipt) if row.receipt is not None else None,
    )
