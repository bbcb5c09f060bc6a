"""Truth, memories: the present state, every version, decisions and reviews; the rows a person reads in a SQL shell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, func, select

from processors.resolution import Change
from schemas import Candidate, Memory, MemoryUpdated, Status, new_id
from sinks.truth.sql import KEYS, by_keys, chunks, exactly, insert_rows, replace_rows
from sinks.truth.tables import decisions, memories, memory_versions, reviews
from sinks.truth.together import answers

_VERSIONS = select(memories.c.id, memories.c.version).where(memories.c.id.in_(KEYS))


def save(connection: Connection, rows: Iterable[tuple[Memory, str, str]]) -> None:
    """Write the present state: (memory, slot_key, cell_key)."""
    replace_rows(connection, memories, [_row(memory, slot, cell) for memory, slot, cell in rows])


def _row(memory: Memory, slot_key: str, cell_key: str) -> dict[str, Any]:
    return {
        "id": memory.id,
        "owner_key": memory.owner_key,
        "slot_key": slot_key,
        "cell_key": cell_key,
        "tenant": memory.tenant,
        "owner_kind": memory.owner_kind.value,
        "owner": memory.owner,
        "namespace": memory.namespace,
        "type": memory.type.value,
        "category": memory.category.value,
        "subject": memory.subject,
        "attribute": memory.attribute,
        "value": memory.value,
        "text": memory.text,
        "language": memory.language,
        "status": memory.status.value,
        "version": memory.version,
        "confidence": memory.confidence,
        "sensitivity": memory.sensitivity.value,
        "valid_from": memory.valid_from,
        "valid_to": memory.valid_to,
        "first_stated_at": memory.first_stated_at,
        "last_stated_at": memory.last_stated_at,
        "timezone": memory.timezone,
        "expires_at": memory.expires_at,
        "superseded_by": memory.superseded_by,
        "evidence_count": memory.evidence_count,
        "body": memory.to_bytes().decode(),
    }


def append_versions(
    connection: Connection, changes: Sequence[Change], now: datetime, *, events: Iterable[MemoryUpdated] = ()
) -> None:
    """One row per version, with its event's envelope; a version that exists raises, since history is never rewritten."""
    envelopes = {event.event_id: _envelope(event) for event in events}
    insert_rows(
        connection,
        memory_versions,
        [
            {
                "memory_id": change.memory.id,
                "version": change.memory.version,
                "owner_key": change.memory.owner_key,
                "change": change.change.value,
                "cause": change.cause[:128],
                "body": change.memory.to_bytes().decode(),
                "envelope": envelopes.get(f"{change.memory.id}:{change.memory.version}"),
                "recorded_at": now,
            }
            for change in changes
        ],
    )


def _envelope(event: MemoryUpdated) -> str:
    beside = event.model_dump(mode="json", include={"owner_seq", "cause", "cause_turn_ids", "replaces"})
    return orjson.dumps(beside).decode()


def versions_of(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    """The present version of each of these memories that exists, in a read-only transaction, which is over with that."""
    return dict(answers(connection, by_keys(_VERSIONS, ids)))


def overtaking(connection: Connection, said: Mapping[str, int]) -> tuple[list[MemoryUpdated], list[str]]:
    """The present events, as they were published, of memories that are further than `said` (id to version); and what is gone."""
    found: list[MemoryUpdated] = []
    versions = versions_of(connection, said)
    gone = sorted(said.keys() - versions.keys())
    for memory_id, version in versions.items():
        if version > said[memory_id]:
            place = (memory_versions.c.memory_id == memory_id, memory_versions.c.version == version)
            row = connection.execute(select(memory_versions).where(*place)).one_or_none()
            if row is not None and row.envelope is not None:
                found.append(
                    MemoryUpdated(
                        event_id=f"{memory_id}:{version}",
                        change=row.change,
                        memory=Memory.from_bytes(row.body.encode()),
                        occurred_at=row.recorded_at,
                        **orjson.loads(row.envelope),
                    )
                )
    return found, gone


def get(connection: Connection, memory_id: str) -> Memory | None:
    """One memory, whatever its status."""
    body = connection.execute(select(memories.c.body).where(memories.c.id == memory_id)).scalar()
    return Memory.from_bytes(body.encode()) if body is not None else None


def fetch(connection: Connection, ids: Iterable[str]) -> dict[str, Memory]:
    """Memories by id."""
    found: dict[str, Memory] = {}
    for chunk in chunks(ids):
        for body in connection.execute(select(memories.c.body).where(memories.c.id.in_(chunk))).scalars():
            memory = Memory.from_bytes(body.encode())
            found[memory.id] = memory
    return found


def listing(
    connection: Connection,
    *,
    tenant: str | None = None,
    owner: str | None = None,
    status: Status | None = None,
    limit: int | None = None,
) -> list[Memory]:
    """Memories for an operator, ordered by owner, attribute and time."""
    query = select(memories.c.body).order_by(
        memories.c.tenant, memories.c.owner, memories.c.attribute, memories.c.first_stated_at, memories.c.id
    )
    if tenant is not None:
        query = query.where(exactly(memories.c.tenant, tenant))
    if owner is not None:
        query = query.where(exactly(memories.c.owner, owner))
    if status is not None:
        query = query.where(memories.c.status == status.value)
    if limit is not None:
        query = query.limit(limit)
    return [Memory.from_bytes(body.encode()) for body in connection.execute(query).scalars()]


def cell_of(connection: Connection, memory_id: str) -> tuple[str, str] | None:
    """Slot and cell that a memory lives in."""
    query = select(memories.c.slot_key, memories.c.cell_key).where(memories.c.id == memory_id)
    row = connection.execute(query).one_or_none()
    return (row.slot_key, row.cell_key) if row is not None else None


def history(connection: Connection, memory_id: str) -> list[dict[str, Any]]:
    """Every version, oldest first."""
    query = select(memory_versions).where(memory_versions.c.memory_id == memory_id)
    rows = connection.execute(query.order_by(memory_versions.c.version))
    return [
        {
            "version": row.version,
            "change": row.change,
            "cause": row.cause,
            "recorded_at": row.recorded_at,
            "memory": Memory.from_bytes(row.body.encode()),
        }
        for row in rows
    ]


def last_change(connection: Connection, memory_id: str) -> tuple[str, str] | None:
    """Kind and cause of a memory's latest version."""
    query = select(memory_versions.c.change, memory_versions.c.cause).where(memory_versions.c.memory_id == memory_id)
    row = connection.execute(query.order_by(memory_versions.c.version.desc()).limit(1)).one_or_none()
    return (row.change, row.cause) if row is not None else None


def expired(connection: Connection, now: datetime, limit: int) -> list[Memory]:
    """Active memories whose time is over, longest over first."""
    query = select(memories.c.body).where(memories.c.status == Status.ACTIVE.value, memories.c.expires_at <= now)
    rows = connection.execute(query.order_by(memories.c.expires_at).limit(limit)).scalars()
    return [Memory.from_bytes(body.encode()) for body in rows]


def version_ids(connection: Connection) -> set[str]:
    """ "memory:version" of every version ever written: the ids of the events that left or will leave."""
    rows = connection.execute(select(memory_versions.c.memory_id, memory_versions.c.version))
    return {f"{memory_id}:{version}" for memory_id, version in rows}


def record_decisions(connection: Connection, stage: str, candidates: Iterable[Candidate], now: datetime) -> None:
    """Every verdict of the policy gate, refusals included; no content, only what was decided and why (SPEC W7)."""
    rows = {
        candidate.candidate_id: {
            "candidate_id": candidate.candidate_id,
            "owner_key": candidate.owner_key,
            "turn_key": candidate.turn_key,
            "stage": stage,
            "channel": candidate.channel.value,
            "attribute": candidate.attribute[:64],
            "decision": candidate.decision,
            "reasons": " ".join(candidate.decision_reasons)[:512],
            "policy_version": candidate.policy_version[:64],
            "decided_at": now,
        }
        for candidate in candidates
    }
    replace_rows(connection, decisions, list(rows.values()))


def open_reviews(connection: Connection, rows: Iterable[Mapping[str, Any]], now: datetime) -> None:
    """Put questions for a person into the queue; the same question is there once."""
    unique: dict[str, dict[str, Any]] = {}
    for row in rows:
        parts = (
            row["kind"],
            row.get("memory_id") or "",
            row.get("other_memory_id") or "",
            row.get("candidate_id") or "",
        )
        review_id = new_id("review", *parts)
        unique[review_id] = {
            "review_id": review_id,
            "owner_key": row["owner_key"],
            "kind": row["kind"],
            "memory_id": row.get("memory_id"),
            "other_memory_id": row.get("other_memory_id"),
            "candidate_id": row.get("candidate_id"),
            "detail": row["detail"],
            "status": "open",
            "opened_at": now,
            "body": row.get("body"),
        }
    known: set[str] = set()
    for chunk in chunks(unique):
        known |= set(connection.execute(select(reviews.c.review_id).where(reviews.c.review_id.in_(chunk))).scalars())
    insert_rows(connection, reviews, [row for key, row in unique.items() if key not in known])


def reviews_open(connection: Connection, *, limit: int = 200) -> list[dict[str, Any]]:
    """Questions nobody has answered."""
    query = select(reviews).where(reviews.c.status == "open").order_by(reviews.c.opened_at).limit(limit)
    return [dict(row._mapping) for row in connection.execute(query)]


def count_by_status(connection: Connection) -> dict[str, int]:
    """How many memories stand where."""
    rows = connection.execute(select(memories.c.status, func.count()).group_by(memories.c.status))
    return {str(status): int(count) for status, count in rows}
