"""From a checkpoint the fold goes on as if it had begun at the beginning: the same cell and the same versions."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from hypothesis import event, given, settings
from hypothesis import strategies as st

from processors.resolution import Cell, Change, Entry, Retraction, advance, reconcile
from processors.resolution.fold import behind_of
from schemas import Candidate, Operation
from tests.unit.resolution.test_order_independence import T0, claim, retraction

VALUES = ("Berlin", "Leeds", "Rome", "Berlin, Germany", "berlin (Mitte)")
OPERATIONS = (*[Operation.ASSERT] * 9, *(Operation(name) for name in ("confirm", "end", "clear", "delete", "expire")))
BEHIND = 2


@st.composite
def ledgers(draw: st.DrawFn) -> list[Candidate | Retraction]:
    count = draw(st.integers(4, 16))
    items: list[Candidate | Retraction] = [
        claim(
            index * 2,
            draw(st.sampled_from(VALUES)),
            operation=draw(st.sampled_from(OPERATIONS)),
            confidence=draw(st.sampled_from((0.95, 0.95, 0.6))),
            decision=draw(st.sampled_from(("accept", "accept", "accept", "quarantine"))),
            event_time=T0 + timedelta(minutes=index * 2, days=draw(st.sampled_from((0, 0, 0, 0, -3, 3)))),
            ttl_days=draw(st.sampled_from((None, None, 1))),
        )
        for index in range(count)
    ]
    for target in draw(st.lists(st.integers(0, count - 1), max_size=4, unique=True)):
        items.append(retraction(2 * draw(st.integers(target, min(count - 1, target + 4))) + 1, target * 2))
    return items


class Ledger:
    """A cell and its ledger; `from_the_start` never uses the cell's checkpoint."""

    def __init__(self, *, from_the_start: bool = False) -> None:
        self.cell = Cell()
        self.entries: list[Entry] = []
        self.retractions: list[Retraction] = []
        self.begun_at_checkpoint = 0
        self._from_the_start = from_the_start

    def arrive(self, group: list[Candidate | Retraction]) -> list[Change]:
        new = [Entry.of(item) for item in group if isinstance(item, Candidate)]
        come = [item for item in group if isinstance(item, Retraction)]
        self.entries += new
        self.retractions += come
        void = any(r.voids(e.claim) for r in self.retractions for e in new)
        void = void or any(r.voids(e.claim) for r in come for e in self.entries)
        short = None if void else advance(self.cell, new)
        cell, changes = short or self._long(new, come)
        self.cell = Cell.from_bytes(cell.to_bytes())
        return changes

    def _long(self, new: list[Entry], come: list[Retraction]) -> tuple[Cell, list[Change]]:
        start = self.cell.checkpoint
        if start is not None and not self._from_the_start:
            mark = start.cell.last_key
            behind = [entry for entry in self.entries if entry.key > mark]
            before = [entry for entry in self.entries if entry.key <= mark]
            aims = [*come, *(r for r in self.retractions if any(r.voids(e.claim) for e in behind))]
            if all(entry.key > mark for entry in new) and not any(r.voids(e.claim) for r in aims for e in before):
                self.begun_at_checkpoint += 1
                relevant = [r for r in self.retractions if any(r.voids(e.claim) for e in behind)]
                return reconcile(self.cell, behind, relevant, start=start, behind=BEHIND)
        relevant = [r for r in self.retractions if any(r.voids(e.claim) for e in self.entries)]
        return reconcile(self.cell, self.entries, relevant, behind=BEHIND)


def place(item: Candidate | Retraction) -> str:
    return Entry.of(item).key if isinstance(item, Candidate) else item.key


def _place(item: Candidate | Retraction) -> str:
    return Entry.of(item).key if isinstance(item, Candidate) else item.key


def _outcome(changes: list[Change]) -> tuple[list[tuple[str, int]], dict[str, Change]]:
    """Each version, and the last one of each memory: what fills the versions that a memory rested at may be told shorter."""
    ordered = sorted(changes, key=lambda change: (change.memory.id, change.memory.version))
    versions = [(change.memory.id, change.memory.version) for change in ordered]
    return versions, {change.memory.id: change for change in ordered}


@settings(max_examples=400, deadline=None)
@given(ledgers(), st.randoms(use_true_random=False), st.integers(0, 4))
def test_a_fold_that_begins_at_a_checkpoint_makes_the_same_versions(
    items: list[Candidate | Retraction], rng: random.Random, late: int
) -> None:
    """Scenario: claims and retractions come nearly in order, some of them a little late, in groups of one to three.
    We expect each group to make the versions, for the same causes, that a fold of the whole ledger makes."""
    places = {_place(item): rank + rng.uniform(0, late) for rank, item in enumerate(sorted(items, key=_place))}
    mixed = sorted(items, key=lambda item: places[_place(item)])
    begun, whole = Ledger(), Ledger(from_the_start=True)
    while mixed:
        size = rng.randint(1, 3)
        group, mixed = mixed[:size], mixed[size:]
        assert _outcome(begun.arrive(group)) == _outcome(whole.arrive(group))
        assert replace(begun.cell, checkpoint=None) == replace(whole.cell, checkpoint=None)
    event("began at a checkpoint" if begun.begun_at_checkpoint else "folded whole")


def test_a_late_claim_in_a_long_slot_is_folded_with_its_neighbours_only() -> None:
    """Scenario: somebody moves twenty times; a turn that is a little late comes, and then another one.
    We expect the first to be folded with everything, and the second with what is behind the checkpoint."""
    ledger = Ledger()
    ledger.arrive([claim(minute, f"city {minute}") for minute in range(0, 40, 2)])
    ledger.arrive([claim(35, "Leeds")])
    assert ledger.begun_at_checkpoint == 0
    start = ledger.cell.checkpoint
    assert start is not None
    assert [entry.claim.value for entry in ledger.entries if entry.key > start.cell.last_key] == ["city 36", "city 38"]
    changes = ledger.arrive([claim(37, "Rome")])
    assert ledger.begun_at_checkpoint == 1
    assert {change.memory.value for change in changes} == {"Rome", "city 36"}
    assert ledger.cell.current == "city 38"


def test_the_longer_a_slot_is_the_later_a_claim_may_come() -> None:
    assert [behind_of(entries, 500) for entries in (16, 64, 200, 4_000, 100_000)] == [8, 8, 25, 500, 500]
    assert behind_of(1_000, 2) == 2


def test_a_slot_of_many_values_is_kept_packed_and_comes_back_as_it_was() -> None:
    ledger = Ledger()
    ledger.arrive([claim(minute, f"city {minute}") for minute in range(0, 400, 2)])
    ledger.arrive([claim(301, "Leeds"), retraction(303, 300)])
    raw = ledger.cell.to_bytes()
    again = Cell.from_bytes(raw)
    assert again == ledger.cell
    assert again.checkpoint is not None
    assert again.to_bytes() == raw
    assert len(raw) < len(ledger.cell.memories) * 200
