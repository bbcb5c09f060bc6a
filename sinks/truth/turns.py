"""Truth, turns and conversations: what was said, what became of it, and which turns wait for a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, case, func, or_, select, true, update

from processors.resolution.entry import order_key
from schemas import Outcome, Turn
from sinks.truth.sql import KEYS, by_keys, chunks, exactly, insert_rows, replace_rows
from sinks.truth.tables import claims, conversations, turns
from sinks.truth.together import Questions, later, prepared

RECENT = 8
"""Texts a conversation remembers to see that one is repeated."""


@dataclass(slots=True)
class Conversation:
    """The row that closes batches: how many turns wait, since when, and how many tokens they hold."""

    conversation_key: str
    tenant: str
    conversation_id: str
    last_sent_at: datetime
    turn_count: int = 0
    pending_count: int = 0
    pending_tokens: int = 0
    first_pending_at: datetime | None = None
    ended: bool = False
    recent: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """The whole database row."""
        return {
            "conversation_key": self.conversation_key,
            "tenant": self.tenant,
            "conversation_id": self.conversation_id,
            "last_sent_at": self.last_sent_at,
            "turn_count": self.turn_count,
            "pending_count": self.pending_count,
            "pending_tokens": self.pending_tokens,
            "first_pending_at": self.first_pending_at,
            "ended": self.ended,
            "recent": " ".join(self.recent[-RECENT:]),
        }


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of a turn that is already in truth."""

    turn_key: str
    revision: int
    content_hash: str
    sent_at: datetime
    pending: bool
    outcome: str
    tokens: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that waits for a batch."""

    turn_key: str
    conversation_key: str
    revision: int
    tokens: int
    sent_at: datetime
    arrived_at: datetime
    turn: Turn


_KNOWING = select(
    turns.c.turn_key,
    turns.c.revision,
    turns.c.content_hash,
    turns.c.sent_at,
    turns.c.pending,
    turns.c.outcome,
    turns.c.tokens,
    turns.c.reason,
).where(turns.c.turn_key.in_(KEYS))
_LOCKING = (
    select(conversations)
    .where(conversations.c.conversation_key.in_(KEYS))
    .order_by(conversations.c.conversation_key)
    .with_for_update()
)


def knowing(turn_keys: Iterable[str]) -> Questions:
    """What `known` asks; see `together.foresee`."""
    return by_keys(_KNOWING, turn_keys)


def known(connection: Connection, turn_keys: Iterable[str]) -> dict[str, Stored]:
    """The turns among `turn_keys` that truth has."""
    found: dict[str, Stored] = {}
    for question in knowing(turn_keys):
        for row in connection.execute(*question):
            found[row.turn_key] = Stored(
                row.turn_key,
                row.revision,
                row.content_hash,
                row.sent_at,
                row.pending,
                row.outcome,
                row.tokens,
                deleted=row.reason == "deleted",
            )
    return found


def locking_conversations(keys: Iterable[str]) -> Questions:
    """What `lock_conversations` asks; see `together.foresee`."""
    return by_keys(_LOCKING, keys)


def lock_conversations(connection: Connection, keys: Iterable[str]) -> dict[str, Conversation]:
    """The conversations among `keys` that exist, locked in key order so that two writers cannot deadlock."""
    found: dict[str, Conversation] = {}
    for question in locking_conversations(keys):
        for row in connection.execute(*question):
            found[row.conversation_key] = _conversation(row)
    return found


def lock_due(
    connection: Connection, before: datetime, limit: int, *, ahead: datetime | None = None
) -> dict[str, Conversation]:
    """Conversations whose first waiting turn arrived by `before`, or, by a clock that was set back since, after `ahead`.

    Those that another worker holds are skipped.
    """
    due = conversations.c.first_pending_at <= before
    query = (
        select(conversations)
        .where(due if ahead is None else or_(due, conversations.c.first_pending_at > ahead))
        .order_by(conversations.c.first_pending_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return {row.conversation_key: _conversation(row) for row in connection.execute(query)}


def _conversation(row: Any) -> Conversation:
    return Conversation(
        row.conversation_key,
        row.tenant,
        row.conversation_id,
        row.last_sent_at,
        row.turn_count,
        row.pending_count,
        row.pending_tokens,
        row.first_pending_at,
        row.ended,
        tuple(row.recent.split()),
    )


def save_conversations(connection: Connection, rows: Iterable[Conversation]) -> None:
    """Write whole rows; the caller holds the locks."""
    replace_rows(connection, conversations, [row.row() for row in rows])


def turn_row(
    turn: Turn,
    *,
    arrived_at: datetime,
    content_hash: str,
    tokens: int,
    pending: bool,
    retracts: bool,
    outcome: Outcome,
    reason: str | None,
) -> dict[str, Any]:
    """The database row of a judged turn."""
    return {
        "turn_key": turn.turn_key,
        "conversation_key": turn.conversation_key,
        "owner_key": turn.owner_key,
        "tenant": turn.tenant,
        "turn_id": turn.turn_id,
        "role": turn.role.value,
        "sent_at": turn.sent_at,
        "arrived_at": arrived_at,
        "revision": turn.revision,
        "content_hash": content_hash,
        "tokens": tokens,
        "pending": pending,
        "retracts": retracts,
        "outcome": outcome.value,
        "reason": reason,
        "body": turn.to_bytes().decode(),
    }


def insert_turns(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """New turns; one that is already there raises, and the group is judged again."""
    insert_rows(connection, turns, rows)


def replace_turns(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """A newer revision in place of an older one."""
    replace_rows(connection, turns, rows)


def waiting(
    connection: Connection, conversation_keys: Iterable[str], at_hand: Mapping[str, Turn] | None = None
) -> dict[str, list[Waiting]]:
    """Turns that wait for a batch, by conversation, in the order in which they were said.

    `at_hand` are turns by key that the caller has parsed already, and need not be parsed again.
    """
    parsed = at_hand or {}
    found: dict[str, list[Waiting]] = {}
    for chunk in chunks(sorted(set(conversation_keys))):
        query = select(turns).where(turns.c.conversation_key.in_(chunk), turns.c.pending == true())
        for row in connection.execute(query):
            turn = parsed.get(row.turn_key)
            if turn is None or turn.revision != row.revision:
                turn = Turn.from_bytes(row.body.encode())
            item = Waiting(
                row.turn_key, row.conversation_key, row.revision, row.tokens, row.sent_at, row.arrived_at, turn
            )
            found.setdefault(row.conversation_key, []).append(item)
    for items in found.values():
        items.sort(key=lambda item: order_key(item.sent_at, item.turn.turn_id, 0, item.turn_key))
    return found


def bodies(connection: Connection, turn_keys: Iterable[str]) -> dict[str, Turn]:
    """Whole turns by key."""
    found: dict[str, Turn] = {}
    for chunk in chunks(turn_keys):
        for row in connection.execute(select(turns.c.turn_key, turns.c.body).where(turns.c.turn_key.in_(chunk))):
            found[row.turn_key] = Turn.from_bytes(row.body.encode())
    return found


_FURTHER = case((turns.c.outcome == Outcome.STORED.value, Outcome.BATCHED.value), else_=turns.c.outcome)
_BATCHING = update(turns).where(turns.c.turn_key.in_(KEYS)).values(pending=False, outcome=_FURTHER)


def mark_batched(connection: Connection, turn_keys: Iterable[str]) -> None:
    """They wait no more; an outcome that is already further along stays."""
    for chunk in chunks(sorted(turn_keys)):
        prepared(connection, _BATCHING, {"keys": chunk})


_MARKING = update(turns).where(turns.c.turn_key.in_(KEYS)).values(outcome=bindparam("to"), reason=bindparam("why"))
_MARKING_FROM = _MARKING.where(turns.c.outcome.in_(bindparam("earlier", expanding=True)))
# What its speaker took back stays taken back.
_MARKING_REMEMBERED = _MARKING.where(or_(turns.c.reason.is_(None), turns.c.reason.not_in(["retracted", "deleted"])))


def mark(connection: Connection, turn_keys: Iterable[str], outcome: Outcome, reason: str | None = None) -> None:
    """Move turns on to `outcome`; remembered is the last word and is never replaced by extracted or batched."""
    values: dict[str, Any] = {"to": outcome.value, "why": reason}
    earlier = {
        Outcome.BATCHED: [Outcome.STORED],
        Outcome.EXTRACTED: [Outcome.STORED, Outcome.BATCHED],
        Outcome.DEAD_LETTERED: [Outcome.STORED, Outcome.BATCHED],
    }.get(outcome)
    statement = _MARKING
    if earlier is not None:
        statement = _MARKING_FROM
        values["earlier"] = [item.value for item in earlier]
    elif outcome is Outcome.REMEMBERED:
        statement = _MARKING_REMEMBERED
    for chunk in chunks(sorted(set(turn_keys))):
        prepared(connection, statement, values | {"keys": chunk})


def remember_again(connection: Connection, revisions: Mapping[str, int]) -> None:
    """Turns (key to revision) whose claims the ledger had before the turns themselves: a log that is read again after a
    restore brings its topics in any order.
    """
    by_revision: dict[int, list[str]] = {}
    for key, revision in revisions.items():
        by_revision.setdefault(revision, []).append(key)
    earlier = [Outcome.STORED.value, Outcome.BATCHED.value, Outcome.EXTRACTED.value]
    for revision, keys in by_revision.items():
        for chunk in chunks(sorted(keys)):
            statement = update(turns).where(
                turns.c.turn_key.in_(chunk), turns.c.revision == revision, turns.c.outcome.in_(earlier)
            )
            later(connection, statement.values(outcome=Outcome.REMEMBERED.value, reason=None))


def ask_again(connection: Connection, turn_keys: Iterable[str]) -> None:
    """Turns that were given up on are in a batch once more."""
    for chunk in chunks(sorted(set(turn_keys))):
        statement = update(turns).where(turns.c.turn_key.in_(chunk), turns.c.outcome == Outcome.DEAD_LETTERED.value)
        later(connection, statement.values(outcome=Outcome.BATCHED.value, reason=None))


def note(connection: Connection, turn_keys: Iterable[str], reason: str) -> None:
    """Say why batched turns go no further for now."""
    for chunk in chunks(sorted(set(turn_keys))):
        statement = update(turns).where(turns.c.turn_key.in_(chunk), turns.c.outcome == Outcome.BATCHED.value)
        later(connection, statement.values(reason=reason))


def take_back(connection: Connection, turn_key: str) -> int:
    """Mark a turn retracted; returns the tokens it gave back if it was still waiting for a batch, else -1."""
    row = connection.execute(select(turns.c.pending, turns.c.tokens).where(turns.c.turn_key == turn_key)).one_or_none()
    # A deleted turn stays one: nothing that arrives late may take its place again.
    reason = case((turns.c.reason == "deleted", "deleted"), else_="retracted")
    values = {"pending": False, "outcome": Outcome.FILTERED.value, "reason": reason}
    connection.execute(update(turns).where(turns.c.turn_key == turn_key).values(**values))
    return int(row.tokens) if row is not None and row.pending else -1


def give_back(connection: Connection, turn_keys: Iterable[str], now: datetime) -> None:
    """A retraction turned out to mean another turn: these stand again.

    One that has claims is remembered; one that never reached the model waits for a batch once more.
    """
    for chunk in chunks(sorted(set(turn_keys))):
        held = set(connection.execute(select(claims.c.turn_key).where(claims.c.turn_key.in_(chunk))).scalars())
        columns = (turns.c.turn_key, turns.c.conversation_key, turns.c.tokens)
        query = select(*columns).where(turns.c.turn_key.in_(chunk), turns.c.reason == "retracted")
        for row in connection.execute(query).all():
            waits = row.turn_key not in held
            outcome = Outcome.STORED if waits else Outcome.REMEMBERED
            statement = update(turns).where(turns.c.turn_key == row.turn_key)
            connection.execute(statement.values(outcome=outcome.value, reason=None, pending=waits))
            for conversation in lock_conversations(connection, [row.conversation_key] if waits else []).values():
                conversation.pending_count += 1
                conversation.pending_tokens += row.tokens
                conversation.first_pending_at = conversation.first_pending_at or now
                save_conversations(connection, [conversation])


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A user turn beside another one in its conversation."""

    turn_key: str
    turn_id: str
    sent_at: datetime
    retracts: bool


def user_turns_around(
    connection: Connection, turn: Turn, *, limit: int = 20
) -> tuple[list[Neighbour], list[Neighbour]]:
    """The same person's turns before (newest first) and after (oldest first) `turn` in its conversation."""
    base = select(turns.c.turn_key, turns.c.turn_id, turns.c.sent_at, turns.c.retracts).where(
        turns.c.conversation_key == turn.conversation_key,
        # The digest and not the id: MySQL's comparison pads, so that "ann" would be "ann " as well.
        turns.c.owner_key == turn.owner_key,
        turns.c.role == "user",
        turns.c.turn_key != turn.turn_key,
    )
    earlier = base.where(turns.c.sent_at <= turn.sent_at).order_by(turns.c.sent_at.desc()).limit(limit)
    later = base.where(turns.c.sent_at >= turn.sent_at).order_by(turns.c.sent_at).limit(limit)
    return _neighbours(connection, earlier), _neighbours(connection, later)


def _neighbours(connection: Connection, query: Select[Any]) -> list[Neighbour]:
    rows = connection.execute(query)
    return [Neighbour(row.turn_key, row.turn_id, row.sent_at, row.retracts) for row in rows]


def status(connection: Connection, turn_id: str, *, tenant: str | None = None) -> list[dict[str, Any]]:
    """What became of the turns with this id; ids are unique within a conversation only, so there may be several."""
    where = [exactly(turns.c.turn_id, turn_id)]
    if tenant is not None:
        where.append(exactly(turns.c.tenant, tenant))
    return _outcomes(connection, and_(*where))


def outcomes(connection: Connection) -> list[dict[str, Any]]:
    """What became of every turn, as said in order; for one-shot runs and tests."""
    return _outcomes(connection, None)


def _outcomes(connection: Connection, where: Any) -> list[dict[str, Any]]:
    query = select(turns.c.outcome, turns.c.reason, turns.c.body).order_by(turns.c.sent_at, turns.c.turn_key)
    if where is not None:
        query = query.where(where)
    rows = []
    for row in connection.execute(query):
        turn = Turn.from_bytes(row.body.encode())
        names = ("tenant", "conversation_id", "turn_id", "user_id", "role", "sent_at", "revision", "text")
        view = {name: getattr(turn, name) for name in names}
        rows.append(view | {"role": turn.role.value, "outcome": row.outcome, "reason": row.reason})
    return rows


def recent(connection: Connection, conversation_key: str, *, limit: int = 20) -> list[Turn]:
    """The last turns of a conversation, filtered ones included, oldest first (SPEC W4, R8)."""
    query = select(turns.c.body).where(turns.c.conversation_key == conversation_key)
    rows = connection.execute(query.order_by(turns.c.sent_at.desc()).limit(limit)).scalars().all()
    return [Turn.from_bytes(body.encode()) for body in reversed(rows)]


def wait_since_arrival(connection: Connection) -> None:
    """Conversations wait for a batch since the first waiting turn arrived, whatever was noted of when to look at them again."""
    first = (
        select(func.min(turns.c.arrived_at))
        .where(turns.c.conversation_key == conversations.c.conversation_key, turns.c.pending == true())
        .scalar_subquery()
    )
    statement = update(conversations).where(conversations.c.first_pending_at.is_not(None))
    connection.execute(statement.values(first_pending_at=func.coalesce(first, conversations.c.first_pending_at)))


def oldest_unextracted(connection: Connection) -> datetime | None:
    """When the turn that has waited longest for a batch arrived."""
    return connection.execute(select(func.min(conversations.c.first_pending_at))).scalar()
