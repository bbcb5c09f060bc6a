"""Truth, reading for recall: candidates in narrow rows and few statements; nothing here is ever unscoped by owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from schemas import Outcome, Role, Turn
from sinks.truth.sql import chunks
from sinks.truth.tables import memories, turns

_COLUMNS: tuple[Any, ...] = (
    memories.c.id,
    memories.c.owner_key,
    memories.c.slot_key,
    memories.c.namespace,
    memories.c.type,
    memories.c.category,
    memories.c.attribute,
    memories.c.value,
    memories.c.text,
    memories.c.language,
    memories.c.status,
    memories.c.version,
    memories.c.confidence,
    memories.c.sensitivity,
    memories.c.last_stated_at,
    memories.c.expires_at,
)
_UNEXTRACTED = (Outcome.STORED.value, Outcome.BATCHED.value)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What ranking needs of a memory: a row without its history and evidence."""

    id: str
    owner_key: str
    slot_key: str
    namespace: str
    type: str
    category: str
    attribute: str
    value: str
    text: str
    language: str
    status: str
    version: int
    confidence: float
    sensitivity: str
    last_stated_at: datetime
    expires_at: datetime | None


def candidates(
    connection: Connection,
    owner_keys: Sequence[str],
    statuses: Sequence[str],
    *,
    ids: Iterable[str],
    attributes: Sequence[str],
    newest: int,
) -> dict[str, Candidate]:
    """Memories of these owners in these statuses, by id: those among `ids`, those in the slots named by `attributes`,
    and the `newest` last stated ones, whose vectors may still be under way (SPEC R8).
    """
    scope = (memories.c.owner_key.in_(list(owner_keys)), memories.c.status.in_(list(statuses)))
    found: dict[str, Candidate] = {}
    _add(connection, found, scope, newest)
    if len(found) < newest:
        # That was all of them.
        return found
    if attributes:
        _add(connection, found, (*scope, memories.c.attribute.in_(list(attributes))), newest)
    for chunk in chunks(name for name in dict.fromkeys(ids) if name not in found):
        _add(connection, found, (*scope, memories.c.id.in_(chunk)), None)
    return found


def _add(
    connection: Connection, found: dict[str, Candidate], where: tuple[ColumnElement[bool], ...], limit: int | None
) -> None:
    query = select(*_COLUMNS).where(*where)
    if limit is not None:
        query = query.order_by(memories.c.last_stated_at.desc(), memories.c.id).limit(limit)
    for row in connection.execute(query):
        found[row.id] = Candidate(*row)


def any_held(connection: Connection, owner_keys: Sequence[str], statuses: Sequence[str]) -> bool:
    """Whether these owners have any memory in these statuses."""
    query = select(memories.c.id).where(
        memories.c.owner_key.in_(list(owner_keys)), memories.c.status.in_(list(statuses))
    )
    return connection.execute(query.limit(1)).first() is not None


def unextracted_turns(connection: Connection, owner_keys: Sequence[str], limit: int) -> list[Turn]:
    """What these people said last and nothing was made of yet, oldest first; filtered turns are not among them."""
    return _turns(connection, [turns.c.owner_key.in_(list(owner_keys))], limit)


def turns_of_conversation(
    connection: Connection, conversation_key: str, owner_keys: Sequence[str], limit: int
) -> list[Turn]:
    """The same within one conversation."""
    where = [turns.c.conversation_key == conversation_key, turns.c.owner_key.in_(list(owner_keys))]
    return _turns(connection, where, limit)


def _turns(connection: Connection, where: list[ColumnElement[bool]], limit: int) -> list[Turn]:
    query: Any = select(turns.c.body).where(
        *where, turns.c.role == Role.USER.value, turns.c.outcome.in_(list(_UNEXTRACTED))
    )
    bodies = connection.execute(query.order_by(turns.c.sent_at.desc(), turns.c.turn_key).limit(limit)).scalars()
    return [Turn.from_bytes(body.encode()) for body in reversed(bodies.all())]
