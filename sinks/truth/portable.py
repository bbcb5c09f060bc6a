"""Truth, portability: one owner read out whole, page by page, in one snapshot; and what an import puts back as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, func, select

from processors.resolution import Cell
from schemas import Candidate, ChangeKind, Memory, Outcome, Turn
from schemas.portable import (
    ExportedClaim,
    ExportedMemory,
    ExportedRetraction,
    ExportedReview,
    ExportedTurn,
    ExportedVersion,
)
from sinks.truth.engine import Truth, translated
from sinks.truth.sql import chunks, insert_rows
from sinks.truth.tables import cells, claims, memories, memory_versions, owners, retractions, reviews, turns
from sinks.truth.turns import Conversation, insert_turns, known, lock_conversations, save_conversations, turn_row

PAGE = 200
"""Rows or cells that are held at once while an owner is read out."""


@contextmanager
def snapshot(truth: Truth) -> Iterator[Connection]:
    """Everything read here is of one moment, on every backend, and nobody is kept from writing.

    MySQL and MariaDB: a transaction that is repeatable from its first read on. SQLite: a read transaction of its WAL.
    """
    options: dict[str, Any] = {"read_only": True}
    if truth.engine.dialect.name != "sqlite":
        options["isolation_level"] = "REPEATABLE READ"
    with translated(), truth.engine.connect().execution_options(**options) as connection:
        yield connection


def counts(connection: Connection, owner_key: str, *, with_turns: bool) -> dict[str, int]:
    """Lines of each kind that an export of this owner has."""
    tables = {
        "review": reviews,
        "retraction": retractions,
        "claim": claims,
        "memory": memories,
        "version": memory_versions,
    }
    if with_turns:
        tables["turn"] = turns
    found = {
        kind: int(
            connection.execute(select(func.count()).select_from(table).where(table.c.owner_key == owner_key)).scalar()
            or 0
        )
        for kind, table in tables.items()
    }
    return found | ({} if with_turns else {"turn": 0})


def owner_known(connection: Connection, owner_key: str) -> bool:
    """Whether truth has ever heard of this owner."""
    for table in (owners, turns):
        if connection.execute(select(table.c.owner_key).where(table.c.owner_key == owner_key).limit(1)).first():
            return True
    return False


def reviews_of(connection: Connection, owner_key: str) -> Iterator[ExportedReview]:
    """Every question about this owner, answered or not."""
    for row in pages(connection, select(reviews).where(reviews.c.owner_key == owner_key), reviews.c.review_id):
        fields = dict(row._mapping)
        fields.pop("owner_key")
        yield ExportedReview(review_kind=fields.pop("kind"), **fields)


def retractions_of(connection: Connection, owner_key: str) -> Iterator[ExportedRetraction]:
    """What this owner took back."""
    query = select(retractions).where(retractions.c.owner_key == owner_key)
    for row in pages(connection, query, retractions.c.retraction_key):
        fields = dict(row._mapping)
        fields.pop("owner_key")
        yield ExportedRetraction(**fields)


def cells_of(
    connection: Connection, owner_key: str
) -> Iterator[tuple[list[ExportedClaim], list[ExportedMemory], list[ExportedVersion]]]:
    """Cell by cell: its ledger in the order of what was said, its memories, and each version of them."""
    query = select(cells.c.cell_key, cells.c.body).where(cells.c.owner_key == owner_key)
    for page in chunks(pages(connection, query, cells.c.cell_key), PAGE):
        ids = {row.cell_key: _memory_ids(row.body) for row in page}
        entries = _claims(connection, list(ids))
        every = [name for names in ids.values() for name in names]
        held = {memory.id: memory for memory in _memories(connection, every)}
        history = _versions(connection, every)
        for cell_key, names in ids.items():
            lines = [ExportedMemory(cell_key=cell_key, memory=held[name]) for name in names if name in held]
            versions = [
                ExportedVersion(
                    cell_key=cell_key,
                    change=ChangeKind(row.change),
                    cause=row.cause,
                    recorded_at=row.recorded_at,
                    memory=Memory.from_bytes(row.body.encode()),
                )
                for name in names
                for row in history.get(name, [])
            ]
            yield entries.get(cell_key, []), lines, versions


def every_memory(connection: Connection) -> Iterator[Memory]:
    """All memories of everybody, by id."""
    for row in pages(connection, select(memories.c.id, memories.c.body), memories.c.id):
        yield Memory.from_bytes(row.body.encode())


def turns_of(connection: Connection, owner_key: str) -> Iterator[ExportedTurn]:
    """This owner's turns, as said in order."""
    query = select(turns).where(turns.c.owner_key == owner_key)
    for row in pages(connection, query, turns.c.sent_at, turns.c.turn_key):
        yield ExportedTurn(
            arrived_at=row.arrived_at,
            content_hash=row.content_hash,
            tokens=row.tokens,
            retracts=row.retracts,
            outcome=Outcome(row.outcome),
            reason=row.reason,
            turn=Turn.from_bytes(row.body.encode()),
        )


def pages(connection: Connection, query: Any, *key: Any) -> Iterator[Any]:
    """The rows of a query in the order of `key`, which must be unique together; a page of them is held at a time."""
    after: tuple[Any, ...] | None = None
    while True:
        page = query.order_by(*key).limit(PAGE)
        if after is not None:
            later = key[-1] > after[-1]
            for column, value in zip(reversed(key[:-1]), reversed(after[:-1]), strict=True):
                later = (column > value) | ((column == value) & later)
            page = page.where(later)
        rows = connection.execute(page).all()
        yield from rows
        if len(rows) < PAGE:
            return
        after = tuple(getattr(rows[-1], column.name) for column in key)


def _memory_ids(body: bytes) -> list[str]:
    return sorted(Cell.from_bytes(body).known())


def _claims(connection: Connection, cell_keys: Sequence[str]) -> dict[str, list[ExportedClaim]]:
    found: dict[str, list[ExportedClaim]] = {}
    query = select(claims.c.cell_key, claims.c.body).where(claims.c.cell_key.in_(cell_keys))
    for row in connection.execute(query.order_by(claims.c.cell_key, claims.c.order_key)):
        line = ExportedClaim(cell_key=row.cell_key, claim=Candidate.from_bytes(row.body.encode()))
        found.setdefault(row.cell_key, []).append(line)
    return found


def _memories(connection: Connection, ids: Sequence[str]) -> Iterator[Memory]:
    for chunk in chunks(ids):
        for body in connection.execute(select(memories.c.body).where(memories.c.id.in_(chunk))).scalars():
            yield Memory.from_bytes(body.encode())


def _versions(connection: Connection, ids: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for chunk in chunks(ids):
        query = select(memory_versions).where(memory_versions.c.memory_id.in_(chunk))
        for row in connection.execute(query.order_by(memory_versions.c.memory_id, memory_versions.c.version)):
            found.setdefault(row.memory_id, []).append(row)
    return found


def keep_history(connection: Connection, lines: Sequence[ExportedVersion]) -> None:
    """Versions as another deployment recorded them; one that exists raises, since history is never rewritten."""
    insert_rows(
        connection,
        memory_versions,
        [
            {
                "memory_id": line.memory.id,
                "version": line.memory.version,
                "owner_key": line.memory.owner_key,
                "change": line.change.value,
                "cause": line.cause,
                "body": line.memory.to_bytes().decode(),
                "recorded_at": line.recorded_at,
            }
            for line in lines
        ],
    )


def known_memories(connection: Connection, ids: Iterable[str]) -> set[str]:
    """Which of these memories truth has already, in whatever cell."""
    found: set[str] = set()
    for chunk in chunks(ids):
        found |= set(connection.execute(select(memories.c.id).where(memories.c.id.in_(chunk))).scalars())
    return found


def new_retractions(connection: Connection, lines: Sequence[ExportedRetraction]) -> list[ExportedRetraction]:
    """Those that truth does not have: one that is there may have been aimed anew since."""
    have: set[str] = set()
    for chunk in chunks(line.retraction_key for line in lines):
        query = select(retractions.c.retraction_key).where(retractions.c.retraction_key.in_(chunk))
        have |= set(connection.execute(query).scalars())
    return [line for line in lines if line.retraction_key not in have]


def keep_reviews(connection: Connection, owner_key: str, lines: Sequence[ExportedReview]) -> None:
    """Questions that truth does not have; an answer given here is not undone by an older export."""
    have: set[str] = set()
    for chunk in chunks(line.review_id for line in lines):
        have |= set(connection.execute(select(reviews.c.review_id).where(reviews.c.review_id.in_(chunk))).scalars())
    rows = []
    for line in lines:
        if line.review_id not in have:
            have.add(line.review_id)
            row = {column.name: getattr(line, column.name, None) for column in reviews.c}
            rows.append(row | {"kind": line.review_kind, "owner_key": owner_key})
    insert_rows(connection, reviews, rows)


def keep_turns(connection: Connection, lines: Sequence[ExportedTurn]) -> None:
    """Turns that truth does not have, with what became of them; none of them is judged or batched again."""
    fresh = {line.turn.turn_key: line for line in lines}
    for key in known(connection, list(fresh)):
        fresh.pop(key)
    insert_turns(
        connection,
        [
            turn_row(
                line.turn,
                arrived_at=line.arrived_at,
                content_hash=line.content_hash,
                tokens=line.tokens,
                pending=False,
                retracts=line.retracts,
                outcome=line.outcome,
                reason=line.reason,
            )
            for line in fresh.values()
        ],
    )
    rooms: dict[str, Conversation] = lock_conversations(
        connection, {line.turn.conversation_key for line in fresh.values()}
    )
    for line in fresh.values():
        turn = line.turn
        room = rooms.setdefault(
            turn.conversation_key,
            Conversation(turn.conversation_key, turn.tenant, turn.conversation_id, turn.sent_at),
        )
        room.turn_count += 1
        room.last_sent_at = max(room.last_sent_at, turn.sent_at)
    save_conversations(connection, rooms.values())
