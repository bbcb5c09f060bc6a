"""Replay, merging: before the schema beside takes the live one's place it takes over what agents have seen.

A version that was published stands. So every memory that is live keeps its history; one that a replay sees differently gets
the next version, with the replay's content, one that it does not know is retracted in the next version, and each of these
leaves as an event when the tables are exchanged. What is equal stays at the version and in the words that agents have.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from processors.resolution import Cell, Change, change_kind
from schemas import ChangeKind, Memory, MemoryUpdated, Status
from sinks.truth import ledger, memories, merging, outbox, replays
from sinks.truth.outbox import Outgoing
from sinks.truth.replays import Held
from sinks.truth.sql import chunks
from streams.replay.comparing import changed_fields

STAGE = "resolve"
"""Whose outbox rows they are: it is the one that writes vectors and publishes, when it gets its partitions back."""


@dataclass(slots=True)
class Merged:
    """Events that leave with the exchange, by kind of change; memories that agents need not be told about."""

    events: dict[str, int] = field(default_factory=dict)
    same: int = 0


@dataclass(slots=True)
class _Page:
    """What one page of memories changes."""

    rows: list[tuple[Memory, str, str]] = field(default_factory=list)
    cells: dict[str, tuple[str, str, list[Memory]]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def write(self, memory: Memory, place: Held) -> None:
        self.rows.append((memory, place.slot_key, place.cell_key))
        self.cells.setdefault(place.cell_key, (place.owner_key, place.slot_key, []))[2].append(memory)


def merge(live: Connection, beside: Connection, *, cause: str, partitions: int, now: datetime) -> Merged:
    """Prepare the schema beside, in its transaction; doing it again comes to the same. `partitions` are those of `candidates`."""
    merged = Merged()
    sequences = _Sequences(live)
    merging.empty_outbox(beside)
    merging.copy_outbox(live, beside)
    for pairs in chunks(replays.side_by_side(live, beside), replays.PAGE):
        page = _Page()
        for one, other in pairs:
            _pair(page, one, other, cause)
        merged.same += len(pairs) - len(page.changes)
        memories.save(beside, page.rows)
        _fit_cells(beside, page)
        merging.take_history(live, beside, page.known)
        memories.append_versions(beside, [c for c in page.changes if c.change is not ChangeKind.CREATED], now)
        sequences.load(page.changes)
        outbox.put(beside, STAGE, list(_events(page.changes, sequences, partitions, now)), now)
        for change in page.changes:
            merged.events[change.change.value] = merged.events.get(change.change.value, 0) + 1
    merging.take_sequences(live, beside, sequences.counts)
    merging.take_answers(live, beside)
    merging.let_wait(live, beside)
    return merged


def _pair(page: _Page, one: Held | None, other: Held | None, cause: str) -> None:
    if one is not None:
        page.known.append(one.id)
    if one is None:
        assert other is not None  # a pair has one side at least
        memory = Memory.from_bytes(other.body.encode())
        page.changes.append(Change(memory, ChangeKind.CREATED, cause))
        return
    if other is not None and one.body == other.body:
        return
    live = Memory.from_bytes(one.body.encode())
    if other is None:
        memory = _retracted(live)
        page.write(memory, one)
        if memory != live:
            page.changes.append(Change(memory, ChangeKind.DELETED, cause))
        return
    replayed = Memory.from_bytes(other.body.encode())
    if not changed_fields(live, replayed):
        page.write(live, other)
        return
    memory = replayed.model_copy(update={"version": live.version + 1})
    page.write(memory, other)
    page.changes.append(Change(memory, change_kind(live, memory), cause))


def _retracted(live: Memory) -> Memory:
    """As when its turn is taken back: nothing that was said stands behind it any more."""
    if live.status in (Status.RETRACTED, Status.DELETED):
        return live
    update = {"status": Status.RETRACTED, "intervals": (), "superseded_by": None, "version": live.version + 1}
    return live.model_copy(update=update)


def _fit_cells(beside: Connection, page: _Page) -> None:
    """The folded cells hold the memories as they are now: the next claim counts on from the version that agents have."""
    cells = ledger.load_cells(beside, page.cells)
    for key, (_owner, _slot, held) in page.cells.items():
        cell = cells.setdefault(key, Cell())
        for memory in held:
            rep = next((rep for rep, item in cell.memories.items() if item.id == memory.id), None)
            if rep is None:
                cell.retired[memory.id] = memory
            else:
                cell.memories[rep] = memory
    ledger.save_cells(beside, [(key, owner, slot, cells[key]) for key, (owner, slot, _held) in page.cells.items()])


class _Sequences:
    """The owners' event counters, going on from the live ones."""

    def __init__(self, live: Connection) -> None:
        self._live = live
        self.counts: dict[str, int] = {}

    def load(self, changes: Iterable[Change]) -> None:
        missing = {change.memory.owner_key for change in changes} - self.counts.keys()
        self.counts |= dict.fromkeys(missing, 0) | merging.sequences(self._live, missing)

    def next(self, owner_key: str) -> int:
        self.counts[owner_key] += 1
        return self.counts[owner_key]


def _events(changes: Iterable[Change], sequences: _Sequences, partitions: int, now: datetime) -> Iterator[Outgoing]:
    for change in changes:
        memory = change.memory
        owner_key = memory.owner_key
        event = MemoryUpdated(
            event_id=f"{memory.id}:{memory.version}",
            change=change.change,
            memory=memory,
            owner_seq=sequences.next(owner_key),
            cause=change.cause,
            occurred_at=now,
        )
        # Where the owner's candidates come in: the worker that is given that partition sends these first.
        partition = zlib.crc32(owner_key.encode()) % partitions
        yield Outgoing("memory_updated", memory.id, owner_key, event.to_bytes(), partition)
        if memory.status is Status.DELETED:
            yield Outgoing("memory_updated", memory.id, owner_key, None, partition)


def report(merged: Merged) -> dict[str, Any]:
    """For people and programs."""
    return {"events": sum(merged.events.values()), **merged.events, "unchanged": merged.same}
