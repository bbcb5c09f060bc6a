"""Truth, dead letters: messages that could not be processed, findable, with their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select, update

from schemas import DeadLetter
from sinks.truth.sql import chunks, insert_rows
from sinks.truth.tables import dead_letters


def put(connection: Connection, letters: Sequence[DeadLetter]) -> None:
    """Write those that are not there yet; the id is a digest of stage and place, so a redelivery adds nothing."""
    unique = {letter.dead_letter_id: letter for letter in letters}
    known: set[str] = set()
    for chunk in chunks(unique):
        query = select(dead_letters.c.dead_letter_id).where(dead_letters.c.dead_letter_id.in_(chunk))
        known |= set(connection.execute(query).scalars())
    insert_rows(
        connection,
        dead_letters,
        [
            {
                "dead_letter_id": letter.dead_letter_id,
                "stage": letter.stage,
                "reason": letter.reason,
                "detail": letter.detail,
                "place": letter.where[:512],
                "topic": letter.topic,
                "message_key": letter.key[:64] if letter.key else None,
                "attempts": letter.attempts,
                "raw": letter.raw_bytes,
                "failed_at": letter.failed_at,
                "status": "open",
            }
            for letter in unique.values()
            if letter.dead_letter_id not in known
        ],
    )


def listing(
    connection: Connection, *, status: str = "open", reason: str | None = None, limit: int = 200
) -> list[dict[str, Any]]:
    """Dead letters, oldest first, with their bytes."""
    query = select(dead_letters).where(dead_letters.c.status == status)
    if reason is not None:
        query = query.where(dead_letters.c.reason == reason)
    query = query.order_by(dead_letters.c.failed_at, dead_letters.c.dead_letter_id).limit(limit)
    return [dict(row._mapping) for row in connection.execute(query)]


def get(connection: Connection, dead_letter_id: str) -> dict[str, Any] | None:
    """One dead letter."""
    query = select(dead_letters).where(dead_letters.c.dead_letter_id == dead_letter_id)
    row = connection.execute(query).one_or_none()
    return dict(row._mapping) if row is not None else None


def close(connection: Connection, dead_letter_id: str, status: str) -> None:
    """Mark as redriven or dropped."""
    connection.execute(
        update(dead_letters).where(dead_letters.c.dead_letter_id == dead_letter_id).values(status=status)
    )


def count(connection: Connection) -> int:
    """Open dead letters."""
    query = select(func.count()).select_from(dead_letters).where(dead_letters.c.status == "open")
    return int(connection.execute(query).scalar() or 0)
