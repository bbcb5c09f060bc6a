"""Truth, reviews: the questions for a person, read by those who may answer, and answered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from schemas import Memory
from sinks.truth.sql import chunks
from sinks.truth.tables import claims, memories, owners, reviews


@dataclass(frozen=True, slots=True)
class Review:
    """One question. `memory` is what it is about (None when it is gone); `body` the stale command, as JSON."""

    review_id: str
    tenant: str
    owner_kind: str
    owner: str
    owner_key: str
    kind: str
    memory_id: str | None
    other_memory_id: str | None
    candidate_id: str | None
    detail: str
    status: str
    opened_at: datetime
    body: str | None
    decided_by: str | None
    decided_at: datetime | None
    decision_id: str | None


def get(connection: Connection, review_id: str) -> Review | None:
    """One question, answered or not."""
    row = connection.execute(_joined().where(reviews.c.review_id == review_id)).one_or_none()
    return _review(row) if row is not None else None


def listing(
    connection: Connection,
    owner_keys: Sequence[str] | None,
    *,
    status: str | None = "open",
    after: tuple[datetime, str] | None = None,
    limit: int = 50,
) -> list[Review]:
    """Questions about these owners, oldest first; None is an operator at the database's own machine and means every owner.

    An empty list of owners has no questions.
    """
    query = _joined()
    if owner_keys is not None:
        query = query.where(reviews.c.owner_key.in_(list(owner_keys)))
    if status is not None:
        query = query.where(reviews.c.status == status)
    if after is not None:
        at, review_id = after
        query = query.where(
            (reviews.c.opened_at > at) | ((reviews.c.opened_at == at) & (reviews.c.review_id > review_id))
        )
    query = query.order_by(reviews.c.opened_at, reviews.c.review_id).limit(limit)
    return [_review(row) for row in connection.execute(query)]


def decide(connection: Connection, review_id: str, status: str, *, by: str, at: datetime, decision_id: str) -> None:
    """Write the answer, and the command that carried it; status `open` takes an answer back."""
    statement = update(reviews).where(reviews.c.review_id == review_id)
    connection.execute(statement.values(status=status, decided_by=by, decided_at=at, decision_id=decision_id))


def is_open(connection: Connection, memory_id: str) -> bool:
    """Whether somebody is being asked about this memory itself (not about a command that names it)."""
    query = select(reviews.c.review_id).where(
        reviews.c.memory_id == memory_id, reviews.c.status == "open", reviews.c.body.is_(None)
    )
    return connection.execute(query.limit(1)).first() is not None


def memory_of_claim(connection: Connection, claim_id: str) -> Memory | None:
    """The memory that a claim went into, when its cell holds one only (a value of a list does)."""
    cell = connection.execute(select(claims.c.cell_key).where(claims.c.claim_id == claim_id)).scalar()
    if cell is None:
        return None
    bodies = connection.execute(select(memories.c.body).where(memories.c.cell_key == cell)).scalars().all()
    return Memory.from_bytes(bodies[0].encode()) if len(bodies) == 1 else None


def memories_of(connection: Connection, found: Sequence[Review]) -> dict[str, Memory]:
    """The memories that these questions are about, by id."""
    ids = {name for review in found for name in (review.memory_id, review.other_memory_id) if name is not None}
    held: dict[str, Memory] = {}
    for chunk in chunks(sorted(ids)):
        for body in connection.execute(select(memories.c.body).where(memories.c.id.in_(chunk))).scalars():
            memory = Memory.from_bytes(body.encode())
            held[memory.id] = memory
    return held


def _joined() -> Any:
    joined = reviews.join(owners, owners.c.owner_key == reviews.c.owner_key)
    return select(reviews, owners.c.tenant, owners.c.owner_kind, owners.c.owner).select_from(joined)


def _review(row: Any) -> Review:
    return Review(
        review_id=row.review_id,
        tenant=row.tenant,
        owner_kind=row.owner_kind,
        owner=row.owner,
        owner_key=row.owner_key,
        kind=row.kind,
        memory_id=row.memory_id,
        other_memory_id=row.other_memory_id,
        candidate_id=row.candidate_id,
        detail=row.detail,
        status=row.status,
        opened_at=row.opened_at,
        body=row.body,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        decision_id=row.decision_id,
    )
