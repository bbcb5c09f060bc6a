"""Truth, the ledger: claims, retractions and the folded cells; what the resolver reads and writes for one owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from processors.resolution import Cell, Entry, Retraction
from schemas import Candidate
from sinks.truth.sql import KEYS, by_keys, chunks, insert_rows, replace_rows
from sinks.truth.tables import cells, claims, owners, retractions
from sinks.truth.together import Question, Questions, foresee

_LOCKING = (
    select(owners.c.owner_key, owners.c.seq)
    .where(owners.c.owner_key.in_(KEYS))
    .order_by(owners.c.owner_key)
    .with_for_update()
)
_KNOWING = select(claims.c.claim_id).where(claims.c.claim_id.in_(KEYS))
_LOADING = select(cells.c.cell_key, cells.c.body).where(cells.c.cell_key.in_(KEYS))
_IN_SLOT = select(cells.c.cell_key, cells.c.body).where(cells.c.slot_key == bindparam("slot")).limit(bindparam("most"))
_BEHIND = select(claims.c.order_key, claims.c.body).where(
    claims.c.cell_key == bindparam("cell"), claims.c.order_key > bindparam("mark")
)
_RETRACTING = select(retractions).where(retractions.c.target_turn_key.in_(KEYS))


def locking_owners(owner_keys: Iterable[str]) -> Questions:
    """What `known_owners` asks."""
    return by_keys(_LOCKING, owner_keys)


def known_owners(connection: Connection, owner_keys: Iterable[str]) -> dict[str, int]:
    """Lock those that have a row, in key order, and return their event sequence.

    The row lock is what makes "one writer per owner" true even for a worker that was paused and came back. Of one who has no
    row yet `save_sequences` makes it, in the same transaction: if somebody else did meanwhile, that is a conflict.
    """
    return {row.owner_key: row.seq for question in locking_owners(owner_keys) for row in connection.execute(*question)}


def lock_owners(connection: Connection, wanted: Mapping[str, tuple[str, str, str]]) -> dict[str, int]:
    """As `known_owners`, and make the rows that are missing; `wanted` maps owner_key to tenant, kind, owner."""
    known = known_owners(connection, wanted)
    fresh = dict.fromkeys(sorted(wanted.keys() - known.keys()), 0)
    save_sequences(connection, wanted, fresh, fresh=fresh.keys())
    return known | fresh


def save_sequences(
    connection: Connection,
    wanted: Mapping[str, tuple[str, str, str]],
    sequences: Mapping[str, int],
    *,
    fresh: Set[str] = frozenset(),
) -> None:
    """Write the owners' sequences back; those in `fresh` have no row yet.

    Raises:
        ConflictError: one of those has a row meanwhile; here, or where it is sent (`together`).
    """

    def rows(keys: Iterable[str]) -> list[dict[str, Any]]:
        names = ("owner_key", "tenant", "owner_kind", "owner", "seq")
        return [dict(zip(names, (key, *wanted[key], sequences[key]), strict=True)) for key in keys]

    insert_rows(connection, owners, rows(key for key in sequences if key in fresh))
    replace_rows(connection, owners, rows(key for key in sequences if key not in fresh))


def knowing_claims(claim_ids: Iterable[str]) -> Questions:
    """What `known_claims` asks."""
    return by_keys(_KNOWING, claim_ids)


def known_claims(connection: Connection, claim_ids: Iterable[str]) -> set[str]:
    """Which claims the ledger already has: the resolver's inbox."""
    found: set[str] = set()
    for question in knowing_claims(claim_ids):
        found |= set(connection.execute(*question).scalars())
    return found


def insert_claims(connection: Connection, rows: Sequence[tuple[Entry, str, str]]) -> None:
    """New entries with their slot and cell."""
    insert_rows(
        connection,
        claims,
        [
            {
                "claim_id": entry.claim.candidate_id,
                "owner_key": entry.claim.owner_key,
                "slot_key": slot_key,
                "cell_key": cell_key,
                "turn_key": entry.claim.turn_key,
                "order_key": entry.key,
                "operation": entry.claim.operation.value,
                "body": entry.claim.to_bytes().decode(),
            }
            for entry, slot_key, cell_key in rows
        ],
    )


def entries(connection: Connection, cell_keys: Iterable[str]) -> dict[str, list[Entry]]:
    """The whole ledger of each cell."""
    found: dict[str, list[Entry]] = {}
    for chunk in chunks(cell_keys):
        query = select(claims.c.cell_key, claims.c.order_key, claims.c.body).where(claims.c.cell_key.in_(chunk))
        for row in connection.execute(query):
            found.setdefault(row.cell_key, []).append(_entry(row))
    return found


def entries_behind(connection: Connection, marks: Mapping[str, str]) -> dict[str, list[Entry]]:
    """The ledger of each cell in `marks`, behind the order key that it has there; asked in one round trip."""
    questions = [Question(_BEHIND, {"cell": cell_key, "mark": mark}) for cell_key, mark in marks.items()]
    foresee(connection, questions)
    return {
        cell_key: [_entry(row) for row in connection.execute(*question)]
        for cell_key, question in zip(marks, questions, strict=True)
    }


def _entry(row: Row[Any]) -> Entry:
    return Entry(row.order_key, Candidate.from_bytes(row.body.encode()))


def says_before(connection: Connection, cell_key: str, order_key: str, turn_keys: Iterable[str]) -> bool:
    """Whether the ledger of this cell has a claim of one of these turns up to an order key, that one included."""
    for chunk in chunks(turn_keys):
        query = select(claims.c.claim_id).where(
            claims.c.turn_key.in_(chunk), claims.c.cell_key == cell_key, claims.c.order_key <= order_key
        )
        if connection.execute(query.limit(1)).first() is not None:
            return True
    return False


def cells_of_turns(connection: Connection, turn_keys: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Cells that hold a claim of one of these turns: cell_key to (owner_key, slot_key)."""
    found: dict[str, tuple[str, str]] = {}
    for chunk in chunks(turn_keys):
        query = select(claims.c.cell_key, claims.c.owner_key, claims.c.slot_key).where(claims.c.turn_key.in_(chunk))
        for row in connection.execute(query):
            found[row.cell_key] = (row.owner_key, row.slot_key)
    return found


def loading_cells(cell_keys: Iterable[str]) -> Questions:
    """What `load_cells` asks."""
    return by_keys(_LOADING, cell_keys)


def load_cells(connection: Connection, cell_keys: Iterable[str]) -> dict[str, Cell]:
    """Folded state of the cells that exist."""
    found: dict[str, Cell] = {}
    for question in loading_cells(cell_keys):
        for row in connection.execute(*question):
            found[row.cell_key] = Cell.from_bytes(row.body)
    return found


def slots_of_cells(connection: Connection, cell_keys: Iterable[str]) -> dict[str, str]:
    """The slot of each of these cells that exists."""
    found: dict[str, str] = {}
    for chunk in chunks(cell_keys):
        query = select(cells.c.cell_key, cells.c.slot_key).where(cells.c.cell_key.in_(chunk))
        found |= {row.cell_key: row.slot_key for row in connection.execute(query)}
    return found


def looking_into_slots(slot_keys: Iterable[str], *, limit: int) -> Questions:
    """What `cells_of_slots` asks, a slot at a time in the order of their keys."""
    for slot_key in sorted(set(slot_keys)):
        yield Question(_IN_SLOT, {"slot": slot_key, "most": limit})


def cells_of_slots(connection: Connection, slot_keys: Iterable[str], *, limit: int) -> dict[str, dict[str, Cell]]:
    """The cells of each slot (a multi-valued slot has one per value), at most `limit` each."""
    wanted = sorted(set(slot_keys))
    found: dict[str, dict[str, Cell]] = {}
    for slot_key, question in zip(wanted, looking_into_slots(wanted, limit=limit), strict=True):
        found[slot_key] = {row.cell_key: Cell.from_bytes(row.body) for row in connection.execute(*question)}
    return found


def save_cells(connection: Connection, rows: Iterable[tuple[str, str, str, Cell]]) -> None:
    """Write (cell_key, owner_key, slot_key, cell)."""
    replace_rows(
        connection,
        cells,
        [
            {"cell_key": key, "owner_key": owner_key, "slot_key": slot_key, "body": cell.to_bytes()}
            for key, owner_key, slot_key, cell in rows
        ],
    )


def save_retraction(
    connection: Connection, retraction_key: str, owner_key: str, retraction: Retraction | None
) -> str | None:
    """Set what one retraction aims at (None: nothing any more); returns the turn it aimed at before."""
    query = select(retractions.c.target_turn_key).where(retractions.c.retraction_key == retraction_key)
    before = connection.execute(query).scalar()
    row: dict[str, Any] = {
        "retraction_key": retraction_key,
        "owner_key": owner_key,
        "target_turn_key": retraction.target_turn_key if retraction else None,
        "below_revision": retraction.below_revision if retraction else None,
        "order_key": retraction.key if retraction else "",
    }
    replace_rows(connection, retractions, [row])
    return before


def retracting(turn_keys: Iterable[str]) -> Questions:
    """What `retractions_of` asks."""
    return by_keys(_RETRACTING, turn_keys)


def retractions_of(connection: Connection, turn_keys: Iterable[str]) -> dict[str, list[Retraction]]:
    """Retractions by the turn they aim at."""
    found: dict[str, list[Retraction]] = {}
    for question in retracting(turn_keys):
        for row in connection.execute(*question):
            item = Retraction(row.order_key, row.target_turn_key, row.below_revision)
            found.setdefault(row.target_turn_key, []).append(item)
    return found
