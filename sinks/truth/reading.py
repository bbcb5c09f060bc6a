"""Truth, reading for recall: candidates in narrow rows and few statements; nothing here is ever unscoped by owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, or_, select

from schemas import Memory, Outcome, Role, Status, Turn
from sinks.truth.sql import chunks
from sinks.truth.tables import memories, memory_access, turns

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
    memories.c.subject,
    func.coalesce(memory_access.c.used, 0),
)
_UNEXTRACTED = (Outcome.STORED.value, Outcome.BATCHED.value)


class Candidate(NamedTuple):
    """What ranking needs of a memory: a row without its history and evidence, in the order of `_COLUMNS`."""

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
    subject: str
    used: int
    """How often an agent said that it used it."""


# Built once: putting a statement together takes longer than running it.
_OWNED: Select[Any] = (
    select(*_COLUMNS)
    .select_from(memories.outerjoin(memory_access, memory_access.c.memory_id == memories.c.id))
    .where(
        memories.c.owner_key.in_(bindparam("owners", expanding=True)),
        memories.c.status.in_(bindparam("statuses", expanding=True)),
    )
)
_NEWEST_FIRST = _OWNED.order_by(memories.c.last_stated_at.desc(), memories.c.id).limit(bindparam("most"))
_OF_ATTRIBUTES = _NEWEST_FIRST.where(memories.c.attribute.in_(bindparam("attributes", expanding=True)))
_BY_ID = _OWNED.where(memories.c.id.in_(bindparam("ids", expanding=True)))

SELF = "user"
"""Subject of what somebody said of themselves; no name that a question could mean."""
LONGEST_NAME = 64
"""Characters of a value or subject that a question can name; what is longer is a sentence."""


def _named_in(question: ColumnElement[str], column: ColumnElement[str]) -> ColumnElement[bool]:
    length = func.char_length(column)
    return (length >= 2) & (length <= LONGEST_NAME) & (func.instr(question, func.lower(column)) > 0)


_QUESTION: ColumnElement[str] = bindparam("question")
_OF_NAMES = _NEWEST_FIRST.where(
    or_(
        _named_in(_QUESTION, memories.c.value),
        (memories.c.subject != SELF) & _named_in(_QUESTION, memories.c.subject),
    )
)


def candidates(
    connection: Connection,
    owner_keys: Sequence[str],
    statuses: Sequence[str],
    *,
    ids: Iterable[str],
    attributes: Sequence[str],
    question: str,
    newest: int,
) -> dict[str, Candidate]:
    """Memories of these owners in these statuses, by id.

    The `newest` last stated ones, whose vectors may still be under way (SPEC R8); those in the slots named by
    `attributes`; those whose value or subject the question names (`question` is normalised); those among `ids`. Of
    owners who have fewer than `newest`, one statement reads them all.
    """
    scope: dict[str, Any] = {"owners": list(owner_keys), "statuses": list(statuses), "most": newest}
    found: dict[str, Candidate] = {}
    _add(connection, found, _NEWEST_FIRST, scope)
    if len(found) < newest:
        return found
    if attributes:
        _add(connection, found, _OF_ATTRIBUTES, scope | {"attributes": list(attributes)})
    _add(connection, found, _OF_NAMES, scope | {"question": question})
    for chunk in chunks(name for name in dict.fromkeys(ids) if name not in found):
        _add(connection, found, _BY_ID, {"owners": scope["owners"], "statuses": scope["statuses"], "ids": chunk})
    return found


def _add(connection: Connection, found: dict[str, Candidate], query: Select[Any], values: dict[str, Any]) -> None:
    for row in connection.execute(query, values).all():
        found[row[0]] = Candidate._make(row)


_BODIES: Select[Any] = select(memories.c.body).where(memories.c.id.in_(bindparam("ids", expanding=True)))


def whole(connection: Connection, ids: Sequence[str]) -> dict[str, Memory]:
    """A few memories with everything, by id, for the last look at each (`recall.service.may_leave`)."""
    if not ids:
        return {}
    bodies = connection.execute(_BODIES, {"ids": list(ids)}).scalars().all()
    return {memory.id: memory for memory in (Memory.from_bytes(body.encode()) for body in bodies)}


_STANDING: Select[Any] = (
    select(memories.c.body)
    .where(memories.c.owner_key == bindparam("owner"), memories.c.status == Status.ACTIVE.value)
    .order_by(memories.c.id)
    .limit(1_000)
)


def standing_of(connection: Connection, owner_key: str) -> list[Memory]:
    """What holds for one owner; for owners with few memories, as the one of the retrieval policy is."""
    bodies = connection.execute(_STANDING, {"owner": owner_key}).scalars().all()
    return [Memory.from_bytes(body.encode()) for body in bodies]


_ANY = (
    select(memories.c.id)
    .where(
        memories.c.owner_key.in_(bindparam("owners", expanding=True)),
        memories.c.status.in_(bindparam("statuses", expanding=True)),
    )
    .limit(1)
)


def any_held(connection: Connection, owner_keys: Sequence[str], statuses: Sequence[str]) -> bool:
    """Whether these owners have any memory in these statuses."""
    values = {"owners": list(owner_keys), "statuses": list(statuses)}
    return connection.execute(_ANY, values).first() is not None


_UNEXTRACTED_TURNS: Select[Any] = (
    select(turns.c.body)
    .where(
        turns.c.owner_key.in_(bindparam("owners", expanding=True)),
        turns.c.role == Role.USER.value,
        turns.c.outcome.in_(_UNEXTRACTED),
    )
    .order_by(turns.c.sent_at.desc(), turns.c.turn_key)
    .limit(bindparam("most"))
)
_OF_CONVERSATION = _UNEXTRACTED_TURNS.where(turns.c.conversation_key == bindparam("conversation"))


def unextracted_turns(connection: Connection, owner_keys: Sequence[str], limit: int) -> list[Turn]:
    """What these people said last and nothing was made of yet, oldest first; filtered turns are not among them."""
    return _turns(connection, _UNEXTRACTED_TURNS, {"owners": list(owner_keys), "most": limit})


def turns_of_conversation(
    connection: Connection, conversation_key: str, owner_keys: Sequence[str], limit: int
) -> list[Turn]:
    """The same within one conversation."""
    values = {"owners": list(owner_keys), "most": limit, "conversation": conversation_key}
    return _turns(connection, _OF_CONVERSATION, values)


def _turns(connection: Connection, query: Select[Any], values: dict[str, Any]) -> list[Turn]:
    bodies = connection.execute(query, values).scalars()
    return [Turn.from_bytes(body.encode()) for body in reversed(bodies.all())]
