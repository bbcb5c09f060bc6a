"""Truth, traces: where something of an erased person, conversation or memory may be, table by table; to erase it and to look.

Text that others said about a person is theirs and is no trace of this kind. Memories and their ledger are looked for here
and erased by the resolver, which is their single writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Table, delete, func, or_, select, true, update

from schemas import OwnerKind, digest
from sinks.sealing.mentions import Mentions
from sinks.truth import tables as t
from sinks.truth.erasure import Scope
from sinks.truth.sql import chunks
from sinks.truth.turns import lock_conversations, save_conversations

Has = Callable[[str], bool]
_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A column by whose value a row belongs to somebody: owner, conversation, turn, memory or tenant."""

    table: Table[Any]
    column: str
    kind: str


_LEDGER = (
    _Keyed(t.owners, "owner_key", "owner"),
    _Keyed(t.owners, "tenant", "tenant"),
    _Keyed(t.claims, "owner_key", "owner"),
    _Keyed(t.claims, "turn_key", "turn"),
    _Keyed(t.cells, "owner_key", "owner"),
    _Keyed(t.retractions, "owner_key", "owner"),
    _Keyed(t.retractions, "target_turn_key", "turn"),
    _Keyed(t.memories, "owner_key", "owner"),
    _Keyed(t.memories, "tenant", "tenant"),
    _Keyed(t.memory_versions, "owner_key", "owner"),
    _Keyed(t.reviews, "owner_key", "owner"),
    _Keyed(t.decisions, "owner_key", "owner"),
)
_OTHERS = (
    _Keyed(t.turns, "owner_key", "owner"),
    _Keyed(t.turns, "conversation_key", "conversation"),
    _Keyed(t.turns, "turn_key", "turn"),
    _Keyed(t.turns, "tenant", "tenant"),
    _Keyed(t.conversations, "conversation_key", "conversation"),
    _Keyed(t.conversations, "tenant", "tenant"),
    _Keyed(t.batches, "conversation_key", "conversation"),
    _Keyed(t.batches, "tenant", "tenant"),
    _Keyed(t.session_summaries, "conversation_key", "conversation"),
    _Keyed(t.session_summaries, "tenant", "tenant"),
    _Keyed(t.session_people, "owner_key", "owner"),
    _Keyed(t.session_people, "conversation_key", "conversation"),
    _Keyed(t.session_states, "owner_key", "owner"),
    _Keyed(t.session_states, "conversation_key", "conversation"),
    _Keyed(t.session_states, "tenant", "tenant"),
    _Keyed(t.questions_asked, "owner_key", "owner"),
    _Keyed(t.memory_access, "owner_key", "owner"),
    _Keyed(t.feedback, "owner_key", "owner"),
    _Keyed(t.feedback, "tenant", "tenant"),
    _Keyed(t.read_log, "owner_key", "owner"),
)
# A resolver may record a decision or a review after the ledger's part is done; both are no part of a fold.
_LATE = (t.decisions, t.reviews)
# Of an erased memory only its own claims go: what else its turns said stays where others hold it.
_LEDGER_OF_MEMORY = (_Keyed(t.memories, "id", "memory"), _Keyed(t.memory_versions, "memory_id", "memory"))
_BY_MEMORY = (
    _Keyed(t.read_log, "memory_id", "memory"),
    _Keyed(t.memory_access, "memory_id", "memory"),
    _Keyed(t.reviews, "memory_id", "memory"),
    _Keyed(t.reviews, "other_memory_id", "memory"),
)
_ACTORS = (
    (t.grants, "granted_by"),
    (t.api_keys, "created_by"),
    (t.read_log, "reader"),
    (t.reviews, "decided_by"),
    (t.dead_letter_log, "actor"),
)


class Traces:
    """One erasure's eye. `person` are the names under which the person acted (`person:ann`); known only while it is open."""

    def __init__(self, scope: Scope, mentions: Mentions, person: Sequence[str] = ()) -> None:
        self._scope = scope
        self._mentions = mentions
        self._person = tuple(person)
        self._tests: dict[str, Has] = {
            "owner": mentions.owner,
            "tenant": mentions.tenant,
            "conversation": mentions.conversation,
            "turn": mentions.turn,
            "memory": mentions.memory,
        }

    def look(self, connection: Connection) -> dict[str, int]:
        """Rows per table that are still there; every table is named, also those with none."""
        # A table's name is SQLAlchemy's own kind of string, which no JSON writer takes.
        found: Counter[str] = Counter()
        for item in self._columns():
            found[item.table.name] += sum(number for _value, number in self._values(connection, item))
        found["model_replies"] += len(self._replies(connection))
        for table, rows in self._unkeyed(connection):
            found[table.name] += len(rows)
        return {str(store): number for store, number in sorted(found.items())}

    def erase(self, connection: Connection) -> dict[str, int]:
        """Everything but the ledger; exact counts per table, of this transaction."""
        gone: Counter[str] = Counter()
        replies = self._replies(connection)
        for chunk in chunks(replies):
            gone["model_replies"] += connection.execute(
                delete(t.model_replies).where(t.model_replies.c.id.in_(chunk))
            ).rowcount
        gone.update(self._sessions(connection))
        gone.update(self._turns(connection))
        for item in (*_OTHERS, *_BY_MEMORY, *(item for item in self._ledger() if item.table in _LATE)):
            if item.table is t.turns or (item.kind == "turn" and self._scope is Scope.MEMORY):
                continue
            values = [value for value, _number in self._values(connection, item)]
            gone[item.table.name] += _drop(connection, item.table.c[item.column], item.table, values)
        for table, rows in list(self._unkeyed(connection)):
            key = next(iter(table.primary_key.columns))
            gone[table.name] += _drop(connection, key, table, rows)
            if table is t.dead_letters:
                log = t.dead_letter_log
                gone[log.name] += _drop(connection, log.c.dead_letter_id, log, rows)
        for table, column in _ACTORS if self._person else ():
            statement = update(table).where(table.c[column].in_(self._person)).values({column: "erased"})
            gone[f"{table.name}.{column}"] += connection.execute(statement).rowcount
        return {str(store): number for store, number in gone.items() if number}

    def erase_ledger(self, connection: Connection) -> dict[str, int]:
        """Memories and their ledger, where no resolver works: in a schema beside the live one, before `erase`.

        A cell that loses a claim goes whole; nobody is there to fold the rest anew.
        """
        gone: Counter[str] = Counter()
        touched: set[str] = set()
        by_turn = () if self._scope is Scope.MEMORY else (_Keyed(t.claims, "turn_key", "turn"),)
        for item in (*by_turn, _Keyed(t.memories, "id", "memory")):
            column = item.table.c[item.column]
            for chunk in chunks([value for value, _number in self._values(connection, item)], _PAGE):
                query = select(item.table.c.cell_key).where(column.in_(chunk)).distinct()
                touched |= set(connection.execute(query).scalars())
        ids: list[str] = []
        for chunk in chunks(sorted(touched), _PAGE):
            ids += connection.execute(select(t.memories.c.id).where(t.memories.c.cell_key.in_(chunk))).scalars()
        gone["memory_versions"] += _drop(connection, t.memory_versions.c.memory_id, t.memory_versions, ids)
        for table in (t.memories, t.claims, t.cells):
            gone[table.name] += _drop(connection, table.c.cell_key, table, sorted(touched))
        for item in self._ledger():
            values = [value for value, _number in self._values(connection, item)]
            gone[item.table.name] += _drop(connection, item.table.c[item.column], item.table, values)
        return {str(store): number for store, number in gone.items() if number}

    def _ledger(self) -> tuple[_Keyed, ...]:
        return _LEDGER_OF_MEMORY if self._scope is Scope.MEMORY else _LEDGER

    def _columns(self) -> Iterator[_Keyed]:
        yield from self._ledger()
        yield from _OTHERS
        yield from _BY_MEMORY

    def _values(self, connection: Connection, item: _Keyed) -> list[tuple[str, int]]:
        """The column's values that are meant, with their rows."""
        has, column = self._tests[item.kind], item.table.c[item.column]
        rows = connection.execute(select(column, func.count()).group_by(column))
        return [(value, int(number)) for value, number in rows if value is not None and has(value)]

    def _sessions(self, connection: Connection) -> Counter[str]:
        """Summaries that hold an erased person's words go as a whole; the next one is made from the turns that are left."""
        people, said = t.session_people, t.turns
        keys: set[str] = set()
        for item in (_Keyed(people, "owner_key", "owner"), _Keyed(said, "owner_key", "owner")):
            for chunk in chunks([value for value, _number in self._values(connection, item)]):
                query = select(item.table.c.conversation_key).where(item.table.c.owner_key.in_(chunk)).distinct()
                keys |= set(connection.execute(query).scalars())
        for chunk in chunks([value for value, _n in self._values(connection, _Keyed(said, "turn_key", "turn"))]):
            query = select(said.c.conversation_key).where(said.c.turn_key.in_(chunk)).distinct()
            keys |= set(connection.execute(query).scalars())
        gone: Counter[str] = Counter()
        for table in (t.session_summaries, people):
            gone[table.name] += _drop(connection, table.c.conversation_key, table, sorted(keys))
        return gone

    def _turns(self, connection: Connection) -> Counter[str]:
        """Turns; conversations of which none is left; the counters and digests of those that go on."""
        gone: Counter[str] = Counter()
        table = t.turns
        for item in (item for item in _OTHERS if item.table is table):
            for chunk in chunks([value for value, _number in self._values(connection, item)], _PAGE):
                where = table.c[item.column].in_(chunk)
                keys = set(connection.execute(select(table.c.conversation_key).where(where).distinct()).scalars())
                held = lock_conversations(connection, keys)
                gone["turns"] += connection.execute(delete(table).where(where)).rowcount
                for key in sorted(keys):
                    left = _left(connection, key)
                    if key in held and left.turn_count:
                        row = held[key]
                        row.turn_count, row.pending_count, row.pending_tokens = (
                            left.turn_count,
                            left.pending,
                            left.tokens,
                        )
                        row.first_pending_at, row.recent = left.first_pending_at, ()
                        save_conversations(connection, [row])
                        continue
                    for other in (t.conversations, t.batches):
                        gone[other.name] += connection.execute(
                            delete(other).where(other.c.conversation_key == key)
                        ).rowcount
        return gone

    def _replies(self, connection: Connection) -> list[int]:
        """Raw replies of the model to batches that held a turn which is meant. A batch mixes people, so a reply goes whole."""
        columns = (t.batches.c.batch_id, t.batches.c.conversation_key, t.batches.c.tenant, t.batches.c.turn_keys)
        meant: list[str] = []
        mine = self._turn_keys(connection)
        for row in connection.execute(select(*columns)):
            whole = self._mentions.conversation(row.conversation_key) or self._mentions.tenant(row.tenant)
            if whole or any(key in mine or self._mentions.turn(key) for key in orjson.loads(row.turn_keys)):
                meant.append(row.batch_id)
        found: list[int] = []
        for chunk in chunks(meant):
            query = select(t.model_replies.c.id).where(t.model_replies.c.batch_id.in_(chunk))
            found += connection.execute(query).scalars()
        return found

    def _turn_keys(self, connection: Connection) -> set[str]:
        """Turns of erased owners that are still there: only they say which batches were theirs."""
        found: set[str] = set()
        for chunk in chunks([value for value, _n in self._values(connection, _Keyed(t.turns, "owner_key", "owner"))]):
            found |= set(connection.execute(select(t.turns.c.turn_key).where(t.turns.c.owner_key.in_(chunk))).scalars())
        return found

    def _unkeyed(self, connection: Connection) -> Iterator[tuple[Table[Any], list[Any]]]:
        """Rows that only their content tells, by primary key."""
        yield (
            t.dead_letters,
            [
                row.dead_letter_id
                for row in _pages(connection, t.dead_letters, ("raw", "mended", "tenant"))
                if self._in(row.raw)
                or (row.mended is not None and self._in(row.mended))
                or (row.tenant is not None and self._mentions.tenant(row.tenant))
            ],
        )
        yield (
            t.outbox,
            [
                row.id
                for row in _pages(connection, t.outbox, ("payload",))
                if row.payload is not None and self._mentions.in_bytes(row.payload) and not _is_order(row.payload)
            ],
        )
        yield (
            t.idempotency_keys,
            [
                row.request_key
                for row in _pages(connection, t.idempotency_keys, ("body",))
                if row.body is not None and self._in(row.body.encode())
            ],
        )
        yield (
            t.grants,
            [
                row.grant_id
                for row in connection.execute(select(t.grants))
                if self._mentions.tenant(row.tenant)
                or (row.owner is not None and self._mentions.owner(digest(row.tenant, row.owner_kind, row.owner)))
                or self._is_principal(row)
            ],
        )
        yield (
            t.api_keys,
            [
                row.prefix
                for row in connection.execute(select(t.api_keys))
                if self._mentions.tenant(row.tenant) or self._is_principal(row)
            ],
        )
        if self._scope is Scope.MEMORY:
            yield (
                t.feedback,
                [
                    row.feedback_key
                    for row in _pages(connection, t.feedback, ("shown",))
                    if self._mentions.in_bytes(row.shown.encode())
                ],
            )

    def _in(self, raw: bytes) -> bool:
        return self._mentions.in_bytes(raw)

    def _is_principal(self, row: Any) -> bool:
        kind = OwnerKind.USER if row.principal_kind == "person" else OwnerKind.AGENT
        return self._mentions.owner(digest(row.tenant, kind, row.principal))


@dataclass(frozen=True, slots=True)
class _Left:
    turn_count: int
    pending: int
    tokens: int
    first_pending_at: Any


def _left(connection: Connection, conversation_key: str) -> _Left:
    c = t.turns.c
    here = c.conversation_key == conversation_key
    total = connection.execute(select(func.count()).select_from(t.turns).where(here)).scalar_one()
    waiting = connection.execute(
        select(func.count(), func.coalesce(func.sum(c.tokens), 0), func.min(c.arrived_at)).where(
            here, c.pending == true()
        )
    ).one()
    return _Left(int(total), int(waiting[0]), int(waiting[1]), waiting[2])


def _is_order(payload: bytes) -> bool:
    """The erasure's own command, which names whom it is about until the resolver has it."""
    data = orjson.loads(payload)
    return isinstance(data, dict) and data.get("kind") == "erase"


def _pages(connection: Connection, table: Table[Any], columns: Sequence[str]) -> Iterator[Any]:
    """Rows with their primary key, in pages: what they hold may be large."""
    [key] = table.primary_key.columns
    last: Any = None
    while True:
        query = select(key, *(table.c[name] for name in columns)).order_by(key).limit(_PAGE)
        rows = connection.execute(query if last is None else query.where(key > last)).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = getattr(rows[-1], key.name)


def _drop(connection: Connection, column: ColumnElement[Any], table: Table[Any], values: Iterable[Any]) -> int:
    gone = 0
    for chunk in chunks(values, _PAGE):
        gone += connection.execute(delete(table).where(or_(column.in_(chunk)))).rowcount
    return gone
