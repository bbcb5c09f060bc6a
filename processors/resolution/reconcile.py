"""Resolution, the difference: from the stored state of a cell to the right one, without gaps and without going back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from processors.resolution.cell import Cell, Checkpoint
from processors.resolution.entry import Entry, Retraction
from processors.resolution.fold import Folding, Simulation, Step
from schemas import ChangeKind, Memory, Status

Change = Step
"""One version to write and to publish."""

BEHIND = 500
"""Entries that a claim may be late by, at most, and still be folded from a checkpoint; see `behind_of`."""


def advance(stored: Cell, new: Sequence[Entry]) -> tuple[Cell, list[Change]] | None:
    """The short way: fold the new entries onto the stored state.

    Returns None when one of them belongs before something already folded; then the whole ledger must be simulated.
    """
    ordered = sorted(new, key=lambda entry: entry.key)
    if ordered and ordered[0].key <= stored.last_key:
        return None
    work = Folding(stored.copy())
    steps = [step for entry in ordered for step in work.apply(entry)]
    return work.finish(), _without_gaps(stored, steps)


def reconcile(
    stored: Cell,
    entries: Sequence[Entry],
    retractions: Sequence[Retraction],
    *,
    start: Checkpoint | None = None,
    behind: int = BEHIND,
) -> tuple[Cell, list[Change]]:
    """The long way: simulate the ledger and bring the stored state up to it.

    Where the simulation is ahead, its versions are written; where the content differs at a version already given out,
    the next one is. Versions never fall, and nothing stored is dropped: a memory that the simulation does not know (its
    first claim turned out not to be the first of its kind) is retired in favour of the one that stands for it.

    With the stored cell's checkpoint as `start`, `entries` are those behind it, and no retraction voids one before it.
    """
    known = stored.known()
    simulation = Simulation(start, {memory_id: held.version for memory_id, held in known.items()})
    cell = simulation.run(entries, retractions, behind=behind)
    cell.checkpoint = simulation.checkpoint
    history: dict[str, list[Step]] = {}
    for step in simulation.steps:
        history.setdefault(step.memory.id, []).append(step)
    changes: list[Change] = []
    for rep, held in list(cell.memories.held()):
        before = known.pop(held.id, None)
        if before is None:
            changes += history[held.id]
            continue
        same_content = held.agrees_with(before)
        if same_content and (held.status is not Status.ACTIVE or held.version <= before.version):
            cell.memories.hold(rep, before)
            cell.counts[rep] = max(cell.counts[rep], before.version)
            continue
        right = held.at(max(held.version, before.version + (not same_content))).memory
        cell.memories[rep] = right
        cell.counts[rep] = max(cell.counts[rep], right.version)
        newer = [step for step in history.get(right.id, []) if step.memory.version < right.version]
        changes += [*newer, Change(right, change_kind(before.memory, right), simulation.causes[right.id])]
    for memory_id, held in known.items():
        retired = _retire(held.memory, cell)
        if retired != held.memory:
            changes.append(Change(retired, ChangeKind.SUPERSEDED, "merged"))
        cell.retired[memory_id] = retired
    return cell, _without_gaps(stored, changes)


def _without_gaps(stored: Cell, steps: Sequence[Step]) -> list[Change]:
    """Fill the versions that a step skips (a memory rests while it is not active) with the state that it arrives at."""
    versions = {memory_id: held.version for memory_id, held in stored.known().items()}
    changes: list[Change] = []
    for step in steps:
        memory = step.memory
        for version in range(versions.get(memory.id, 0) + 1, memory.version + 1):
            changes.append(replace(step, memory=memory.model_copy(update={"version": version})))
        versions[memory.id] = memory.version
    return changes


def change_kind(before: Memory, after: Memory) -> ChangeKind:
    """What agents are told of a memory that was `before` and is `after`."""
    if after.status is before.status:
        return ChangeKind.UPDATED
    return {
        Status.ACTIVE: ChangeKind.RESTORED,
        Status.EXPIRED: ChangeKind.EXPIRED,
        Status.DELETED: ChangeKind.DELETED,
        Status.RETRACTED: ChangeKind.DELETED,
        Status.QUARANTINED: ChangeKind.QUARANTINED,
        Status.PENDING: ChangeKind.QUARANTINED,
    }.get(after.status, ChangeKind.SUPERSEDED)


def _retire(memory: Memory, cell: Cell) -> Memory:
    if memory.status in (Status.SUPERSEDED, Status.RETRACTED, Status.DELETED):
        return memory
    heir = next(iter(cell.memories.values()), None)
    update = {
        "status": Status.SUPERSEDED,
        "version": memory.version + 1,
        "superseded_by": heir.id if heir else None,
        "intervals": (),
    }
    return memory.model_copy(update=update)
