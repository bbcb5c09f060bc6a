"""Adopting: part of an export becomes ledger, memories and history again, under the owner's lock (SPEC G2).

A cell that truth does not know is taken with the history it had, and then reconciled with its own ledger like any other:
what does not follow from the claims is corrected by a next version. Of a cell that is there already only the claims that are
new are entered, so versions grow from where they are. Nothing that truth has is replaced by what an export says.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from processors.exceptions import PoisonError
from processors.resolution import Cell, Change, Entry, Memories, slot_key_of
from schemas import Candidate, Command, CommandKind, Memory, Turn
from schemas.portable import Bundle, ExportedRetraction, ExportedVersion, Portion
from sinks.truth import ledger, portable

MAX_UNPACKED = 64 * 1024 * 1024
"""Bytes that a packed payload may have: a message is small, what it unpacks to must not fill the memory."""


LetsIn = Callable[[Sequence[Candidate | Turn]], list[bool]]


@dataclass(frozen=True, slots=True)
class Adopted:
    """A cell as the other deployment had it, on its way into the ledger here."""

    slot_key: str
    cell: Cell
    versions: tuple[ExportedVersion, ...]

    def changes(self) -> list[Change]:
        """One event for each memory, of its latest version: those before it were told where they happened."""
        last = {line.memory.id: line for line in self.versions}
        return [
            Change(memory, last[memory.id].change, last[memory.id].cause, _turns(memory))
            for memory in self.cell.memories.values()
        ]


@dataclass(slots=True)
class Adoption:
    """What one command comes to. `entries` go into the cells they name, `claims` find their cells as any others do."""

    cells: dict[str, Adopted] = field(default_factory=dict)
    entries: dict[str, tuple[str, list[Entry]]] = field(default_factory=dict)
    claims: list[Candidate] = field(default_factory=list)
    retractions: list[Command] = field(default_factory=list)


def packed(portion: Portion) -> dict[str, Any]:
    """The portion as a payload that is a fraction of its size: history repeats itself."""
    return {"packed": base64.b64encode(zlib.compress(portion.to_bytes(), 9)).decode()}


def portion_of(command: Command) -> Portion:
    """The payload of an `adopt` command.

    Raises:
        ValueError: it is none.
    """
    raw = command.payload.get("packed")
    if raw is None:
        return Portion.from_dict(command.payload)
    try:
        unpacking = zlib.decompressobj()
        whole = unpacking.decompress(base64.b64decode(str(raw), validate=True), MAX_UNPACKED)
    except (binascii.Error, zlib.error) as error:
        raise ValueError("the packed payload is damaged") from error
    if not unpacking.eof:
        raise ValueError(f"the packed payload is damaged, or larger than {MAX_UNPACKED} bytes")
    return Portion.from_bytes(whole)


def adopted(connection: Connection, command: Command, lets_in: LetsIn | None = None) -> Adoption:
    """The effect of an `adopt` command on what is not a cell is done here; cells are handed back to be folded.

    `lets_in` says of claims and turns whether they may come: what was erased here stays out, and a cell that loses a claim by
    it comes without its history, which may quote it.

    Raises:
        PoisonError, ValueError: the payload is about another owner, or is none.
    """
    portion = portion_of(command)
    owner_key = command.owner_key
    about = {claim.owner_key for bundle in portion.cells for claim in bundle.claims}
    about |= {memory.owner_key for bundle in portion.cells for memory in bundle.memories}
    about |= {line.memory.owner_key for bundle in portion.cells for line in bundle.versions}
    about |= {line.turn.owner_key for line in portion.turns}
    if about - {owner_key}:
        raise PoisonError("foreign_owner", "the export is about another owner than the command")
    for bundle in portion.cells:
        if not bundle.claims or len({slot_key_of(claim) for claim in bundle.claims}) != 1:
            raise PoisonError("invalid_field", "a cell needs claims, all of one slot")
    done = Adoption()
    _cells(connection, portion.cells, done, lets_in or _everything)
    portable.keep_reviews(connection, owner_key, portion.reviews)
    welcome = (lets_in or _everything)([line.turn for line in portion.turns])
    portable.keep_turns(connection, [line for line, may in zip(portion.turns, welcome, strict=True) if may])
    done.retractions = [
        _retraction(command, line) for line in portable.new_retractions(connection, portion.retractions)
    ]
    return done


def _everything(about: Sequence[Candidate | Turn]) -> list[bool]:
    return [True] * len(about)


def _cells(connection: Connection, bundles: tuple[Bundle, ...], done: Adoption, lets_in: LetsIn) -> None:
    every = [claim for bundle in bundles for claim in bundle.claims]
    known = ledger.known_claims(connection, [claim.candidate_id for claim in every])
    erased = {claim.candidate_id for claim, may in zip(every, lets_in(every), strict=True) if not may}
    stored = ledger.slots_of_cells(connection, [bundle.cell_key for bundle in bundles])
    held = portable.known_memories(connection, [memory.id for bundle in bundles for memory in bundle.memories])
    for bundle in bundles:
        fresh = [claim for claim in bundle.claims if claim.candidate_id not in known | erased]
        slot_key = slot_key_of(bundle.claims[0])
        entries = [Entry.of(claim) for claim in fresh]
        if bundle.cell_key in stored:
            if stored[bundle.cell_key] != slot_key:
                raise PoisonError("invalid_field", "the cell belongs to another slot")
            done.entries[bundle.cell_key] = (slot_key, entries)
        elif len(fresh) < len(bundle.claims) or held & {memory.id for memory in bundle.memories}:
            # Here these words went into another cell; that is where the rest belongs too.
            done.claims += fresh
        else:
            cell = Cell(Memories({memory.id: memory for memory in bundle.memories}))
            done.cells[bundle.cell_key] = Adopted(slot_key, cell, bundle.versions)
            done.entries[bundle.cell_key] = (slot_key, entries)


def _retraction(command: Command, line: ExportedRetraction) -> Command:
    return command.model_copy(
        update={
            "kind": CommandKind.RETRACT_TURN,
            "retraction_turn_key": line.retraction_key,
            "target_turn_key": line.target_turn_key,
            "below_revision": line.below_revision,
            "payload": {"order_key": line.order_key},
        }
    )


def _turns(memory: Memory) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.turn_id for item in memory.evidence))
