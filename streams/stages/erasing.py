"""Erasing, the resolver's part: memories go at their single writer, so that their tombstones follow their last events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, or_, select

from processors.exceptions import PoisonError
from processors.resolution import Cell, Entry, Memories
from schemas import Audit, Candidate, Command, CommandKind, Memory, OwnerKind, Status, new_id
from sinks.truth import erasure, ledger
from sinks.truth.erasure import Erasure, Scope
from sinks.truth.sql import chunks
from sinks.truth.tables import cells, claims, decisions, memories, memory_versions, owners, retractions, reviews


@dataclass(slots=True)
class Gone:
    """`tombstones` are (memory id, last version); `left` the entries of each cell that go on: (slot, entries).

    `whole`: nothing of the owner is left, not even the counter of their events.
    """

    whole: bool
    tombstones: list[tuple[str, int]] = field(default_factory=list)
    left: dict[str, tuple[str, list[Entry]]] = field(default_factory=dict)


def order_of(item: Erasure, tenant: str, kind: str, owner: str, now: datetime) -> Command:
    """What makes an owner's single writer do it."""
    return Command(
        command_id=new_id("erase", item.erasure_id, kind, owner),
        kind=CommandKind.ERASE,
        tenant=tenant,
        owner_kind=OwnerKind(kind),
        owner=owner,
        issued_by="erasure",
        issued_at=now,
        payload={"erasure_id": item.erasure_id},
    )


def erased(connection: Connection, command: Command) -> Gone:
    """Delete what an erasure means of this owner's ledger and memories, and count it; once, by the caller's inbox.

    A cell that loses some of its claims is taken down whole and folded anew from those that are left, above the versions
    that were given out: an older version may quote what is to be erased.

    Raises:
        PoisonError: there is no such erasure under way, or it is not about this owner.
    """
    item = erasure.get(connection, str(command.payload.get("erasure_id", "")))
    target = item.target if item is not None and item.status == "open" else None
    if item is None or target is None or (command.owner_kind.value, command.owner) not in target.owners:
        raise PoisonError("unknown_erasure", "there is no erasure under way that is about this owner")
    owner_key = command.owner_key
    whole = item.scope in (Scope.OWNER, Scope.TENANT)
    gone = Gone(whole)
    found: dict[str, int] = {}

    def drop(store: str, where: ColumnElement[bool]) -> None:
        table = {t.name: t for t in (cells, claims, decisions, memories, memory_versions, owners, retractions, reviews)}
        found[store] = found.get(store, 0) + connection.execute(delete(table[store]).where(where)).rowcount

    buried: list[tuple[str, str, int]] = []
    if whole:
        rows = connection.execute(
            select(memories.c.id, memories.c.cell_key, memories.c.version).where(memories.c.owner_key == owner_key)
        )
        buried = [(row.id, row.cell_key, row.version) for row in rows]
        for table in (memories, memory_versions, claims, cells, retractions, decisions, reviews, owners):
            drop(table.name, table.c.owner_key == owner_key)
    else:
        taken = _taken(connection, item, owner_key)
        for cell_key, (slot_key, entries, claim_ids) in taken.items():
            rest = [entry for entry in entries if entry.claim.candidate_id not in claim_ids]
            if rest:
                gone.left[cell_key] = (slot_key, rest)
            for chunk in chunks(sorted(claim_ids)):
                drop("decisions", decisions.c.candidate_id.in_(chunk))
                found["claims"] = found.get("claims", 0) + len(chunk)
        for chunk in chunks(taken):
            rows = connection.execute(
                select(memories.c.id, memories.c.cell_key, memories.c.version).where(memories.c.cell_key.in_(chunk))
            )
            buried += [(row.id, row.cell_key, row.version) for row in rows]
            drop("cells", cells.c.cell_key.in_(chunk))
            # What is left of them is written again by the fold.
            connection.execute(delete(claims).where(claims.c.cell_key.in_(chunk)))
        for chunk in chunks([memory_id for memory_id, _cell, _version in buried]):
            drop("memories", memories.c.id.in_(chunk))
            drop("memory_versions", memory_versions.c.memory_id.in_(chunk))
            drop("reviews", or_(reviews.c.memory_id.in_(chunk), reviews.c.other_memory_id.in_(chunk)))
        if item.scope is Scope.CONVERSATION:
            for chunk in chunks(target.turn_keys):
                mine = retractions.c.owner_key == owner_key
                drop("retractions", mine & retractions.c.target_turn_key.in_(chunk))
                drop("retractions", mine & retractions.c.retraction_key.in_(chunk))
                drop("decisions", (decisions.c.owner_key == owner_key) & decisions.c.turn_key.in_(chunk))
    gone.tombstones = [(memory_id, version) for memory_id, _cell, version in buried]
    erasure.bury(connection, item.erasure_id, buried)
    erasure.count(connection, item.erasure_id, found)
    return gone


def _taken(connection: Connection, item: Erasure, owner_key: str) -> dict[str, tuple[str, list[Entry], set[str]]]:
    """Cells that lose claims: slot, all entries, and the ids of those that go."""
    target = item.target
    assert target is not None  # the caller has looked
    if item.scope is Scope.MEMORY:
        row = connection.execute(
            select(memories.c.cell_key, memories.c.slot_key).where(
                memories.c.id == target.memory_id, memories.c.owner_key == owner_key
            )
        ).one_or_none()
        if row is None:
            return {}
        entries = ledger.entries(connection, [row.cell_key]).get(row.cell_key, [])
        cell = ledger.load_cells(connection, [row.cell_key]).get(row.cell_key, Cell())
        names = claims_of_memory(cell, entries, target.memory_id or "")
        return {row.cell_key: (row.slot_key, entries, names)}
    touched: dict[str, str] = {}
    for chunk in chunks(target.turn_keys):
        query = select(claims.c.cell_key, claims.c.slot_key).where(
            claims.c.owner_key == owner_key, claims.c.turn_key.in_(chunk)
        )
        touched |= {row.cell_key: row.slot_key for row in connection.execute(query)}
    gone_turns = set(target.turn_keys)
    return {
        cell_key: (
            touched[cell_key],
            entries,
            {entry.claim.candidate_id for entry in entries if entry.claim.turn_key in gone_turns},
        )
        for cell_key, entries in ledger.entries(connection, touched).items()
    }


def claims_of_memory(cell: Cell, entries: Iterable[Entry], memory_id: str) -> set[str]:
    """Ids of the claims that say what this memory says; those that name no value (an ending) belong to the whole cell."""
    mine = {rep for rep, memory in cell.memories.items() if memory.id == memory_id}
    others = set(cell.memories) - mine
    return {
        entry.claim.candidate_id
        for entry in entries
        if cell.representative(entry.claim.value) in mine or (not others and not cell.retired)
    }


def risen(buried: dict[str, int], claim: Candidate, now: datetime) -> Cell:
    """An empty cell that knows the versions its erased memories had: what is said anew goes on above them."""
    husks = {memory_id: _husk(memory_id, version, claim, now) for memory_id, version in buried.items()}
    return Cell(retired=Memories(husks))


def _husk(memory_id: str, version: int, claim: Candidate, now: datetime) -> Memory:
    return Memory(
        id=memory_id,
        tenant=claim.tenant,
        owner_kind=claim.owner_kind,
        owner=claim.owner,
        namespace=claim.namespace,
        type=claim.type,
        category=claim.category,
        subject=claim.subject,
        attribute=claim.attribute,
        value="",
        cardinality=claim.cardinality,
        text="",
        language=claim.language,
        status=Status.DELETED,
        version=version,
        confidence=0.0,
        sensitivity=claim.sensitivity,
        source_kind=claim.source_kind,
        first_stated_at=now,
        last_stated_at=now,
        audit=Audit(writer="erasure", decision="erase", policy_version="1"),
    )


def with_risen(
    connection: Connection, stored: dict[str, Cell], new: Sequence[tuple[str, Candidate]], now: datetime
) -> dict[str, Cell]:
    """`stored`, with an empty cell for each new one (key, first claim) whose memories were erased once."""
    missing = {cell_key: claim for cell_key, claim in new if cell_key not in stored}
    if not missing:
        return stored
    found = erasure.buried_in(connection, missing)
    return stored | {cell_key: risen(buried, missing[cell_key], now) for cell_key, buried in found.items()}
