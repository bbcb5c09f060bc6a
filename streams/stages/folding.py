"""Folding: the cells that a group of claims and retractions changes, from as little of their ledgers as is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from processors.resolution import Cell, Change, Checkpoint, Entry, Retraction, advance, reconcile
from sinks.truth import ledger
from streams.metrics import Metrics
from streams.stages.erasing import with_risen


@dataclass(slots=True)
class Touched:
    """A cell that this group changes.

    `whole`: its ledger has to be folded from the beginning. `aimed_at`: turns of it that are taken back or given back.
    """

    owner_key: str
    slot_key: str
    new: list[Entry] = field(default_factory=list)
    whole: bool = False
    aimed_at: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Ledger:
    """What a cell is folded from: everything, or what is behind a checkpoint."""

    entries: list[Entry]
    retractions: list[Retraction]
    start: Checkpoint | None = None


class CellFolder:
    """Onto the stored state where that can be, else from a checkpoint, else from the beginning (decision 41)."""

    def __init__(self, metrics: Metrics, *, behind: int) -> None:
        """`behind`: how many of the last entries a checkpoint leaves out; see `reconcile`."""
        self._metrics = metrics
        self._behind = behind

    def fold(
        self,
        connection: Connection,
        cells: Mapping[str, Touched],
        claims: Sequence[tuple[Entry, str, str]],
        adopted: Mapping[str, Cell],
        now: datetime,
    ) -> list[tuple[Change, str, str]]:
        """Enter the claims and write the cells; returns the new versions, with slot and cell.

        Args:
            claims: What is new in `cells`, as (entry, slot, cell), in the order of the ledger's insertion.
            adopted: Cells that truth may not know, as an export had them.
        """
        stored = dict(adopted) | ledger.load_cells(connection, cells)
        voided = ledger.retractions_of(connection, [entry.claim.turn_key for entry, _slot, _cell in claims])
        first = [(key, touched.new[0].claim) for key, touched in cells.items() if touched.new]
        stored = with_risen(connection, stored, first, now)
        folded: dict[str, Cell] = {}
        changes: list[tuple[Change, str, str]] = []
        again: dict[str, Touched] = {}
        for cell_key, touched in cells.items():
            voids = any(entry.claim.turn_key in voided for entry in touched.new)
            anew = touched.whole or touched.aimed_at or voids
            short = None if anew else advance(stored.get(cell_key, Cell()), touched.new)
            if short is None:
                again[cell_key] = touched
                continue
            self._metrics.folds.labels("state").inc()
            folded[cell_key] = short[0]
            changes += [(change, touched.slot_key, cell_key) for change in short[1]]
        ledgers = self._ledgers(connection, again, stored)
        ledger.insert_claims(connection, claims)
        for cell_key, of in ledgers.items():
            self._metrics.folds.labels("checkpoint" if of.start is not None else "nothing").inc()
            before = stored.get(cell_key, Cell())
            folded[cell_key], made = reconcile(before, of.entries, of.retractions, start=of.start, behind=self._behind)
            changes += [(change, again[cell_key].slot_key, cell_key) for change in made]
        ledger.save_cells(
            connection,
            [(key, cells[key].owner_key, cells[key].slot_key, cell) for key, cell in folded.items()],
        )
        return changes

    def _ledgers(
        self, connection: Connection, again: Mapping[str, Touched], stored: Mapping[str, Cell]
    ) -> dict[str, _Ledger]:
        """The ledger of each cell: what is behind its checkpoint, where that is enough."""
        found: dict[str, _Ledger] = {}
        starts: dict[str, Checkpoint] = {}
        for cell_key, touched in again.items():
            start = stored[cell_key].checkpoint if cell_key in stored and not touched.whole else None
            if start is not None and all(entry.key > start.cell.last_key for entry in touched.new):
                starts[cell_key] = start
        known = ledger.entries_behind(connection, {key: start.cell.last_key for key, start in starts.items()})
        behind = {cell_key: [*entries, *again[cell_key].new] for cell_key, entries in known.items()}
        by_turn = self._retractions(connection, behind)
        for cell_key, start in starts.items():
            entries = behind[cell_key]
            relevant = _relevant(entries, by_turn)
            aims = again[cell_key].aimed_at | {item.target_turn_key for item in relevant}
            if not aims or not ledger.says_before(connection, cell_key, start.cell.last_key, sorted(aims)):
                found[cell_key] = _Ledger(entries, relevant, start)
        rest = {cell_key: touched for cell_key, touched in again.items() if cell_key not in found}
        history = ledger.entries(connection, rest)
        whole = {cell_key: [*history.get(cell_key, []), *touched.new] for cell_key, touched in rest.items()}
        by_turn = self._retractions(connection, whole)
        for cell_key, entries in whole.items():
            found[cell_key] = _Ledger(entries, _relevant(entries, by_turn))
        return found

    @staticmethod
    def _retractions(connection: Connection, entries: Mapping[str, Sequence[Entry]]) -> dict[str, list[Retraction]]:
        """What aims at these, by turn."""
        return ledger.retractions_of(connection, [entry.claim.turn_key for of in entries.values() for entry in of])


def _relevant(entries: Sequence[Entry], by_turn: Mapping[str, Sequence[Retraction]]) -> list[Retraction]:
    """Each retraction of one of these turns, once."""
    return list(dict.fromkeys(item for entry in entries for item in by_turn.get(entry.claim.turn_key, ())))
