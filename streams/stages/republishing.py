"""Republishing: memories told once more as they are, or at a version that no replica has seen yet (after a restore)."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection

from processors.exceptions import PoisonError
from processors.resolution import Cell, Change
from schemas import ChangeKind, Command
from sinks.truth import ledger, memories

MAX_LIFT = 100_000
"""Versions that one memory is lifted by at most: each is a row, and a wrong order must not write millions."""


@dataclass(slots=True)
class Republished:
    """`again`: told as it is; `lifted`: a next version with the same content; each with its slot and cell."""

    again: list[tuple[Change, str, str]] = field(default_factory=list)
    lifted: list[tuple[Change, str, str]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    owner_seq: int = 0


def republished(connection: Connection, command: Command) -> Republished:
    """What a `republish` command comes to; cells of lifted memories are written here.

    Raises:
        PoisonError: a payload that is none, or that lifts a version too far.
    """
    wanted, gone, owner_seq = _payload(command)
    held = {
        name: memory
        for name, memory in memories.fetch(connection, wanted).items()
        if memory.owner_key == command.owner_key
    }
    done = Republished(owner_seq=owner_seq)
    for name, memory in held.items():
        place = memories.cell_of(connection, name)
        row = memories.last_change(connection, name)
        if place is None or row is None:
            continue
        slot_key, cell_key = place
        floor = wanted[name]
        if floor - memory.version > MAX_LIFT:
            raise PoisonError("invalid_field", "a version so far ahead is none of ours")
        if floor <= memory.version:
            change, cause = row
            done.again.append((Change(memory, ChangeKind(change), cause), slot_key, cell_key))
            continue
        for version in range(memory.version + 1, floor + 1):
            lifted = memory.model_copy(update={"version": version})
            done.lifted.append((Change(lifted, ChangeKind.UPDATED, "republish"), slot_key, cell_key))
        _lift(connection, command.owner_key, slot_key, cell_key, name, floor)
    done.gone = [name for name in gone if name not in memories.fetch(connection, gone)]
    return done


def _payload(command: Command) -> tuple[dict[str, int], list[str], int]:
    wanted, gone = command.payload.get("memories", {}), command.payload.get("gone", [])
    owner_seq = command.payload.get("owner_seq", 0)
    fits = (
        isinstance(wanted, dict)
        and all(isinstance(name, str) and isinstance(floor, int) for name, floor in wanted.items())
        and isinstance(gone, list)
        and all(isinstance(name, str) and 0 < len(name) <= 36 for name in gone)
        and isinstance(owner_seq, int)
        and 0 <= owner_seq < 2**62
    )
    if not fits:
        raise PoisonError("invalid_field", "republish needs memories, gone and owner_seq")
    return wanted, gone, owner_seq


def _lift(connection: Connection, owner_key: str, slot_key: str, cell_key: str, memory_id: str, version: int) -> None:
    """The cell counts on from there, so that the next change is the next version."""
    cell = ledger.load_cells(connection, [cell_key]).get(cell_key)
    if cell is None:
        return
    changed: Cell = cell.copy()
    for rep, memory in cell.memories.items():
        if memory.id == memory_id:
            changed.memories[rep] = memory.model_copy(update={"version": version})
            changed.counts[rep] = max(changed.counts.get(rep, 0), version)
    if memory_id in cell.retired:
        changed.retired[memory_id] = cell.retired[memory_id].model_copy(update={"version": version})
    ledger.save_cells(connection, [(cell_key, owner_key, slot_key, changed)])
