"""Truth, feedback: how often each memory served, and the labelled data set of what became of recalls (SPEC A4, R10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, delete, select

from processors.access import HIDDEN
from processors.feedback import Label, Shown
from schemas import Command, FeedbackKind, Memory, Status
from sinks.truth import ledger
from sinks.truth.memories import open_reviews
from sinks.truth.sql import chunks, exactly, insert_rows, replace_rows
from sinks.truth.tables import feedback, memories, memory_access, memory_versions, owners, reviews

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Access:
    """How often a memory was recalled and judged since it exists, and when last. `accesses` = used + ignored + corrected."""

    accesses: int
    used: int
    ignored: int
    corrected: int
    last_accessed_at: datetime


@dataclass(frozen=True, slots=True)
class Touch:
    """One outcome for one memory."""

    memory_id: str
    owner_key: str
    kind: FeedbackKind
    at: datetime


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label with its keys, as it is written. `recorded_at` is when it arrived."""

    feedback_key: str
    owner_key: str
    recorded_at: datetime
    label: Label


def recorded(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Which of these have a label: what was done stays known when the inbox has long forgotten it."""
    found: set[str] = set()
    for chunk in chunks(keys):
        found |= set(
            connection.execute(select(feedback.c.feedback_key).where(feedback.c.feedback_key.in_(chunk))).scalars()
        )
    return found


def access(connection: Connection, memory_ids: Iterable[str]) -> dict[str, Access]:
    """By memory id; one that no feedback has named is not in it."""
    found: dict[str, Access] = {}
    for chunk in chunks(memory_ids):
        for row in connection.execute(select(memory_access).where(memory_access.c.memory_id.in_(chunk))):
            found[row.memory_id] = Access(row.accesses, row.used, row.ignored, row.corrected, row.last_accessed_at)
    return found


def touch(connection: Connection, touches: Sequence[Touch]) -> None:
    """Count a group's outcomes: one read and two writes, however many there are.

    Rows that exist are locked, and of two first writers of one row the later gets a conflict, so no count is lost.

    Raises:
        ConflictError: another worker counted a memory for the first time meanwhile; run the transaction again.
    """
    ids = sorted({item.memory_id for item in touches})
    rows: dict[str, dict[str, Any]] = {}
    for chunk in chunks(ids):
        query = select(memory_access).where(memory_access.c.memory_id.in_(chunk))
        for found in connection.execute(query.order_by(memory_access.c.memory_id).with_for_update()):
            rows[found.memory_id] = dict(found._mapping)
    known = set(rows)
    for item in touches:
        row = rows.setdefault(item.memory_id, _untouched(item))
        row["accesses"] += 1
        row[item.kind.value] += 1
        row["last_accessed_at"] = max(row["last_accessed_at"], item.at)
    replace_rows(connection, memory_access, [rows[key] for key in ids if key in known])
    insert_rows(connection, memory_access, [rows[key] for key in ids if key not in known])


def _untouched(item: Touch) -> dict[str, Any]:
    counts = {"accesses": 0, "used": 0, "ignored": 0, "corrected": 0}
    return {"memory_id": item.memory_id, "owner_key": item.owner_key, "last_accessed_at": item.at} | counts


def versions(connection: Connection, memory_ids: Iterable[str]) -> dict[str, list[tuple[datetime, int]]]:
    """When each version of these memories was written, oldest first."""
    columns = (memory_versions.c.memory_id, memory_versions.c.version, memory_versions.c.recorded_at)
    found: dict[str, list[tuple[datetime, int]]] = {}
    for chunk in chunks(memory_ids):
        query = select(*columns).where(memory_versions.c.memory_id.in_(chunk)).order_by(memory_versions.c.version)
        for row in connection.execute(query):
            found.setdefault(row.memory_id, []).append((row.recorded_at, row.version))
    return found


def record(connection: Connection, rows: Sequence[Labelled]) -> None:
    """Add to the labelled data set; one that is there already raises ConflictError."""
    insert_rows(
        connection,
        feedback,
        [
            {
                "feedback_key": row.feedback_key,
                "owner_key": row.owner_key,
                "tenant": row.label.tenant,
                "kind": row.label.kind.value,
                "agent_id": row.label.agent_id,
                "query": row.label.query,
                "correction": row.label.correction,
                "shown": orjson.dumps(row.label.shown).decode(),
                "decision": row.label.decision,
                "policy_version": row.label.policy_version,
                "model": row.label.model,
                "given_at": row.label.given_at,
                "recorded_at": row.recorded_at,
            }
            for row in rows
        ],
    )


def pages(
    connection: Connection, *, tenant: str | None = None, since: datetime | None = None, size: int = _PAGE
) -> Iterator[list[Label]]:
    """The labelled data set in the order of arrival, `size` at a time; for operators, it sees every owner."""
    joined = feedback.outerjoin(owners, owners.c.owner_key == feedback.c.owner_key)
    base = select(feedback, owners.c.owner).select_from(joined)
    base = base.order_by(feedback.c.recorded_at, feedback.c.feedback_key).limit(size)
    if tenant is not None:
        base = base.where(exactly(feedback.c.tenant, tenant))
    if since is not None:
        base = base.where(feedback.c.recorded_at >= since)
    query = base
    while True:
        rows = connection.execute(query).all()
        if rows:
            yield [_label(row) for row in rows]
        if len(rows) < size:
            return
        at, key = rows[-1].recorded_at, rows[-1].feedback_key
        later = (feedback.c.recorded_at > at) | ((feedback.c.recorded_at == at) & (feedback.c.feedback_key > key))
        query = base.where(later)


def _label(row: Any) -> Label:
    return Label(
        kind=FeedbackKind(row.kind),
        tenant=row.tenant,
        owner=row.owner or "",
        agent_id=row.agent_id,
        query=row.query,
        correction=row.correction,
        shown=tuple(Shown(**item) for item in orjson.loads(row.shown)),
        decision=row.decision,
        policy_version=row.policy_version,
        model=row.model,
        given_at=row.given_at,
    )


def texts(connection: Connection, labels: Iterable[Label]) -> dict[tuple[str, int], str]:
    """The words of each shown (memory id, version); none of a memory that was deleted since, or that nobody let in."""
    wanted = {(item.memory_id, item.version) for label in labels for item in label.shown}
    untold = [status.value for status in (*HIDDEN, Status.DELETED)]
    joined = memory_versions.join(memories, memories.c.id == memory_versions.c.memory_id)
    columns = (memory_versions.c.memory_id, memory_versions.c.version, memory_versions.c.body)
    base = select(*columns).select_from(joined).where(memories.c.status.not_in(untold))
    found: dict[tuple[str, int], str] = {}
    for chunk in chunks(sorted({memory_id for memory_id, _version in wanted})):
        numbers = sorted({version for memory_id, version in wanted if memory_id in set(chunk)})
        query = base.where(memory_versions.c.memory_id.in_(chunk), memory_versions.c.version.in_(numbers))
        for row in connection.execute(query):
            if (row.memory_id, row.version) in wanted:
                found[row.memory_id, row.version] = Memory.from_bytes(row.body.encode()).text
    return found


def tenants(connection: Connection) -> list[str]:
    """Every tenant that feedback came from."""
    return sorted(connection.execute(select(feedback.c.tenant).distinct()).scalars())


def propose(connection: Connection, commands: Sequence[Command], now: datetime) -> int:
    """Put policy hints before a person, each once; returns how many are new."""
    ids = [command.command_id for command in commands]
    known: set[str] = set()
    for chunk in chunks(ids):
        query = select(reviews.c.candidate_id).where(reviews.c.kind == "policy_hint", reviews.c.candidate_id.in_(chunk))
        known |= set(connection.execute(query).scalars())
    fresh = [command for command in commands if command.command_id not in known]
    # A review is found through its owner, and the policy's has no memory yet.
    ledger.lock_owners(connection, {item.owner_key: (item.tenant, item.owner_kind.value, item.owner) for item in fresh})
    rows = [
        {
            "kind": "policy_hint",
            "owner_key": command.owner_key,
            "candidate_id": command.command_id,
            "detail": str(command.payload["text"]),
            "body": command.to_bytes().decode(),
        }
        for command in fresh
    ]
    open_reviews(connection, rows, now)
    return len(fresh)


def erase(connection: Connection, owner_keys: Iterable[str]) -> int:
    """Drop what these people's recalls came to, counts and labels; returns how many rows."""
    gone = 0
    for chunk in chunks(sorted(set(owner_keys))):
        for table in (feedback, memory_access):
            gone += connection.execute(delete(table).where(table.c.owner_key.in_(chunk))).rowcount
    return gone
