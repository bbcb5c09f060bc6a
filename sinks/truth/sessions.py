"""Truth, sessions: the turns of a conversation that stand, its rolling summary, and who takes part (SPEC W13)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, or_, select, update

from processors.resolution.entry import order_key
from processors.session import Said, Summary
from schemas import Memory, Outcome, Status, Turn
from sinks.truth.sql import chunks, insert_rows
from sinks.truth.tables import conversations, memories, session_people, session_states, session_summaries, turns

_GONE = ("retracted", "deleted")
_COLUMNS = (turns.c.turn_key, turns.c.arrived_at, turns.c.outcome, turns.c.reason, turns.c.body)


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a conversation's turns were read, in the order in which they arrived."""

    arrived_at: datetime
    turn_key: str


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary as it is stored, with the version that a writer must name to replace it."""

    summary: Summary
    version: int
    through: Cursor | None
    made_at: datetime


def takes_part(connection: Connection, conversation_key: str, owner_key: str) -> bool:
    """Whether the person has a turn in the conversation, as speaker or as the one who is served."""
    query = select(turns.c.turn_key).where(turns.c.conversation_key == conversation_key, turns.c.owner_key == owner_key)
    return connection.execute(query.limit(1)).first() is not None


def said(connection: Connection, conversation_key: str, *, limit: int = 20) -> list[Said]:
    """The last turns that stand, oldest first: filtered ones are in and marked, retracted and deleted ones are not."""
    query = _standing(conversation_key).order_by(turns.c.sent_at.desc(), turns.c.turn_key.desc()).limit(limit)
    return _in_order(connection.execute(query).all())


def said_since(
    connection: Connection, conversation_key: str, through: Cursor | None, *, limit: int, newest: bool = False
) -> tuple[list[Said], Cursor | None]:
    """Turns that arrived after `through`, in the order they were said, and the cursor of the last one.

    At most `limit`, the earliest to arrive, or the latest if `newest`. By arrival, so that late and edited turns come
    too. The cursor is `through` itself when nothing came.
    """
    query = _standing(conversation_key)
    if through is not None:
        query = query.where(_after(through))
    order = (turns.c.arrived_at, turns.c.turn_key)
    rows = connection.execute(
        query.order_by(*((column.desc() for column in order) if newest else order)).limit(limit)
    ).all()
    last = max(((row.arrived_at, row.turn_key) for row in rows), default=None)
    return _in_order(rows), Cursor(*last) if last is not None else through


def _after(through: Cursor) -> ColumnElement[bool]:
    later = turns.c.arrived_at > through.arrived_at
    return or_(later, and_(turns.c.arrived_at == through.arrived_at, turns.c.turn_key > through.turn_key))


def _standing(conversation_key: str) -> Select[Any]:
    stands = or_(turns.c.reason.is_(None), turns.c.reason.not_in(_GONE))
    return select(*_COLUMNS).where(turns.c.conversation_key == conversation_key, stands)


def _in_order(rows: Iterable[Row[Any]]) -> list[Said]:
    found: list[Said] = []
    for row in rows:
        turn = Turn.from_bytes(row.body.encode())
        if not turn.deleted:
            # A reason beside another outcome says why a batch waits; the turn may be used.
            found.append(Said(turn, (row.reason or "filtered") if row.outcome == Outcome.FILTERED.value else None))
    return sorted(found, key=lambda item: order_key(item.turn.sent_at, item.turn.turn_id, 0, item.turn.turn_key))


def revisions(connection: Connection, turn_keys: Iterable[str]) -> dict[str, int]:
    """The revision at which each of these turns stands; one that was retracted, deleted or erased is missing."""
    found: dict[str, int] = {}
    stands = or_(turns.c.reason.is_(None), turns.c.reason.not_in(_GONE))
    for chunk in chunks(sorted(set(turn_keys))):
        query = select(turns.c.turn_key, turns.c.revision).where(turns.c.turn_key.in_(chunk), stands)
        found.update((row.turn_key, row.revision) for row in connection.execute(query))
    return found


def summary(connection: Connection, conversation_key: str) -> StoredSummary | None:
    """The rolling summary, as written; `Summary.standing` takes out what no longer stands."""
    query = select(session_summaries).where(session_summaries.c.conversation_key == conversation_key)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    through = Cursor(row.through_at, row.through_key) if row.through_at is not None else None
    return StoredSummary(Summary.from_bytes(row.body.encode()), row.version, through, row.made_at)


def save_summary(
    connection: Connection,
    conversation_key: str,
    made: Summary,
    *,
    through: Cursor | None,
    expected_version: int,
    now: datetime,
) -> bool:
    """Put a summary in place of version `expected_version` (0: there is none); False when somebody was faster.

    Raises:
        ConflictError: another writer inserted the first one at the same moment.
    """
    place = select(conversations).where(conversations.c.conversation_key == conversation_key)
    row = connection.execute(place).one_or_none()
    if row is None:
        # Erased while the model was thinking: what it thought is not written.
        return False
    values = {
        "method": made.method,
        "through_at": through.arrived_at if through else None,
        "through_key": through.turn_key if through else None,
        "seen_turns": row.turn_count,
        "body": made.to_bytes().decode(),
        "made_at": now,
    }
    if expected_version == 0:
        if summary(connection, conversation_key) is not None:
            return False
        key = {"conversation_key": conversation_key, "tenant": row.tenant, "conversation_id": row.conversation_id}
        insert_rows(connection, session_summaries, [key | values | {"version": 1}])
    else:
        statement = update(session_summaries).where(
            session_summaries.c.conversation_key == conversation_key,
            session_summaries.c.version == expected_version,
        )
        if connection.execute(statement.values(**values, version=expected_version + 1)).rowcount != 1:
            return False
    _note_people(connection, conversation_key)
    return True


def _note_people(connection: Connection, conversation_key: str) -> None:
    there = select(turns.c.owner_key).where(turns.c.conversation_key == conversation_key).distinct()
    people = set(connection.execute(there).scalars())
    noted = select(session_people.c.owner_key).where(session_people.c.conversation_key == conversation_key)
    new = sorted(people - set(connection.execute(noted).scalars()))
    insert_rows(connection, session_people, [{"conversation_key": conversation_key, "owner_key": key} for key in new])


def due(connection: Connection, *, turns_apart: int = 10, limit: int = 100, offset: int = 0) -> list[str]:
    """Conversations with at least so many turns since their last summary, longest silent first; for a clock.

    `offset` passes over the first ones.
    """
    seen = func.coalesce(session_summaries.c.seen_turns, 0)
    query = (
        select(conversations.c.conversation_key)
        .outerjoin(session_summaries, session_summaries.c.conversation_key == conversations.c.conversation_key)
        .where(conversations.c.turn_count - seen >= turns_apart)
        .order_by(conversations.c.last_sent_at, conversations.c.conversation_key)
        .limit(limit)
        .offset(offset)
    )
    return list(connection.execute(query).scalars())


def standing_memories(connection: Connection, owner_key: str, now: datetime, *, limit: int = 2_000) -> list[Memory]:
    """A person's active memories that have not run out, newest first."""
    query = (
        select(memories.c.body)
        .where(
            memories.c.owner_key == owner_key,
            memories.c.status == Status.ACTIVE.value,
            or_(memories.c.expires_at.is_(None), memories.c.expires_at > now),
        )
        .order_by(memories.c.last_stated_at.desc(), memories.c.id)
        .limit(limit)
    )
    return [Memory.from_bytes(body.encode()) for body in connection.execute(query).scalars()]


def erase_conversation(connection: Connection, conversation_key: str) -> dict[str, int]:
    """Delete what a session derived from one conversation; returns exact counts by table (SPEC L4)."""
    return _erase(connection, [conversation_key], None)


def erase_owner(connection: Connection, owner_key: str) -> dict[str, int]:
    """Delete every summary that holds a person's words and every state kept for them; counts by table.

    A summary of a group goes as a whole; the next one is made from the turns that are left.
    """
    noted = select(session_people.c.conversation_key).where(session_people.c.owner_key == owner_key)
    said_in = select(turns.c.conversation_key).where(turns.c.owner_key == owner_key).distinct()
    keys = {*connection.execute(noted).scalars(), *connection.execute(said_in).scalars()}
    return _erase(connection, sorted(keys), owner_key)


def _erase(connection: Connection, conversation_keys: list[str], owner_key: str | None) -> dict[str, int]:
    counts = dict.fromkeys(("session_summaries", "session_people", "session_states"), 0)
    for chunk in chunks(conversation_keys):
        for table in (session_summaries, session_people):
            counts[table.name] += connection.execute(delete(table).where(table.c.conversation_key.in_(chunk))).rowcount
        if owner_key is None:
            statement = delete(session_states).where(session_states.c.conversation_key.in_(chunk))
            counts["session_states"] += connection.execute(statement).rowcount
    if owner_key is not None:
        statement = delete(session_states).where(session_states.c.owner_key == owner_key)
        counts["session_states"] += connection.execute(statement).rowcount
    return counts
