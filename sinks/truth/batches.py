"""Truth, batches and model replies: what went to the model, what it said, and what is still to be asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, func, select, update

from schemas import ExtractionBatch
from sinks.truth import turns as turn_store
from sinks.truth.sql import chunks, insert_rows
from sinks.truth.tables import batches, model_replies
from sinks.truth.together import later

_UNANSWERED = ("closed", "waiting")


def insert(connection: Connection, closed: Sequence[ExtractionBatch]) -> None:
    """Newly closed batches."""
    rows = [
        {
            "batch_id": batch.batch_id,
            "conversation_key": batch.conversation_key,
            "tenant": batch.tenant,
            "conversation_id": batch.conversation_id,
            "turn_count": len(batch.turns),
            "token_estimate": batch.token_estimate,
            "language": batch.language,
            "closed_by": batch.closed_by,
            "closed_at": batch.closed_at,
            "status": "closed",
            "attempts": 0,
            "candidates": 0,
            "turn_keys": orjson.dumps([turn.turn_key for turn in batch.turns]).decode(),
        }
        for batch in closed
    ]
    insert_rows(connection, batches, rows)


def existing(connection: Connection, batch_ids: Iterable[str]) -> set[str]:
    """Which of these are already closed."""
    found: set[str] = set()
    for chunk in chunks(batch_ids):
        found |= set(connection.execute(select(batches.c.batch_id).where(batches.c.batch_id.in_(chunk))).scalars())
    return found


def states(connection: Connection, batch_ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Status and attempts of the batches that truth has seen."""
    found: dict[str, tuple[str, int]] = {}
    columns = (batches.c.batch_id, batches.c.status, batches.c.attempts)
    for chunk in chunks(batch_ids):
        for row in connection.execute(select(*columns).where(batches.c.batch_id.in_(chunk))):
            found[row.batch_id] = (row.status, row.attempts)
    return found


def lock_unanswered(connection: Connection, batch_ids: Iterable[str]) -> set[str]:
    """Which of these nobody has answered or given up; locked, so that of two who asked about one the first one counts."""
    found: set[str] = set()
    for chunk in chunks(sorted(set(batch_ids))):
        query = select(batches.c.batch_id).where(batches.c.batch_id.in_(chunk), batches.c.status.in_(_UNANSWERED))
        found |= set(connection.execute(query.order_by(batches.c.batch_id).with_for_update()).scalars())
    return found


def count_attempts(connection: Connection, batch_ids: Iterable[str], *, by: int = 1) -> None:
    """Attempts are counted when the work is claimed, so that one that kills its worker is counted too.

    `by` -1 takes an attempt back: the provider was away, and that was none.
    """
    for chunk in chunks(batch_ids):
        statement = update(batches).where(batches.c.batch_id.in_(chunk))
        later(connection, statement.values(attempts=batches.c.attempts + by))


def finish_all(connection: Connection, done: Iterable[tuple[str, str, int]]) -> None:
    """`finish` for many: (batch id, status, candidates), one statement for those that ended alike."""
    alike: dict[tuple[str, int], list[str]] = {}
    for batch_id, status, candidates in done:
        alike.setdefault((status, candidates), []).append(batch_id)
    for (status, candidates), batch_ids in sorted(alike.items()):
        for chunk in chunks(batch_ids):
            values = {"status": status, "candidates": candidates}
            later(connection, update(batches).where(batches.c.batch_id.in_(chunk)).values(**values))


def finish(connection: Connection, batch_id: str, status: str, candidates: int) -> None:
    """The batch's last state: extracted, empty, dead; or waiting while the model channel is off."""
    values = {"status": status, "candidates": candidates}
    later(connection, update(batches).where(batches.c.batch_id == batch_id).values(**values))


def keep_replies(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """The model's own words under the batch id, for replay and for explaining."""
    insert_rows(connection, model_replies, rows)


def waiting(connection: Connection, *, limit: int = 1000) -> list[tuple[str, list[str], str, int, str, datetime]]:
    """Batches that nobody asked the model about yet: id, turn keys, language, tokens, closed_by, closed_at."""
    query = select(batches).where(batches.c.status == "waiting").order_by(batches.c.closed_at).limit(limit)
    return [
        (row.batch_id, orjson.loads(row.turn_keys), row.language, row.token_estimate, row.closed_by, row.closed_at)
        for row in connection.execute(query)
    ]


def rebuild(connection: Connection, *, limit: int = 1000) -> tuple[list[ExtractionBatch], list[str]]:
    """Waiting batches as messages again, and the ids of those of which no turn is left; deleted turns are left out."""
    rebuilt: list[ExtractionBatch] = []
    gone: list[str] = []
    for batch_id, keys, language, tokens, closed_by, closed_at in waiting(connection, limit=limit):
        bodies = turn_store.bodies(connection, keys)
        held = tuple(bodies[key] for key in keys if key in bodies and not bodies[key].deleted)
        if held:
            rebuilt.append(
                ExtractionBatch(
                    batch_id=batch_id,
                    tenant=held[0].tenant,
                    conversation_id=held[0].conversation_id,
                    conversation_key=held[0].conversation_key,
                    turns=held,
                    language=language,
                    token_estimate=tokens,
                    closed_by=closed_by,
                    closed_at=closed_at,
                )
            )
        else:
            gone.append(batch_id)
    return rebuilt, gone


def reopen(connection: Connection, batch_ids: Iterable[str]) -> None:
    """Waiting batches are on their way to the model again."""
    for chunk in chunks(batch_ids):
        statement = update(batches).where(batches.c.batch_id.in_(chunk), batches.c.status == "waiting")
        later(connection, statement.values(status="closed"))


def ask_again(connection: Connection, batch_id: str) -> None:
    """A batch that was given up on is asked once more, with all its attempts."""
    statement = update(batches).where(batches.c.batch_id == batch_id, batches.c.status == "dead")
    later(connection, statement.values(status="closed", attempts=0))


def close_empty(connection: Connection, batch_ids: Iterable[str]) -> None:
    """Nothing is left to ask about."""
    for chunk in chunks(batch_ids):
        later(connection, update(batches).where(batches.c.batch_id.in_(chunk)).values(status="empty"))


def count_by_status(connection: Connection) -> dict[str, int]:
    """How many batches stand where."""
    rows = connection.execute(select(batches.c.status, func.count()).group_by(batches.c.status))
    return {str(status): int(count) for status, count in rows}
