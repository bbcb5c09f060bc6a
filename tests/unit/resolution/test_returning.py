"""A memory that no claim stands behind any more, after a replay took it away, goes on from its version when it is said again."""

from __future__ import annotations

import pytest

from processors.resolution import Cell, Entry, advance, reconcile
from schemas import Memory, Status
from tests.unit.resolution.test_order_independence import claim


def cell_that_lost_berlin(version: int) -> tuple[Cell, Memory]:
    """Leeds holds; Berlin was published up to `version`, and the ledger knows nothing of it."""
    lost, _changes = advance(Cell(), [Entry.of(claim(0, "Berlin"))]) or (Cell(), [])
    [berlin] = lost.memories.values()
    berlin = berlin.model_copy(update={"status": Status.RETRACTED, "intervals": (), "version": version})
    cell, _changes = advance(Cell(), [Entry.of(claim(10, "Leeds"))]) or (Cell(), [])
    cell.retired[berlin.id] = berlin
    return Cell.from_bytes(cell.to_bytes()), berlin


@pytest.mark.parametrize("version", [1, 4, 9])
def test_said_again_it_goes_on_without_a_gap(version: int) -> None:
    cell, berlin = cell_that_lost_berlin(version)
    folded = advance(cell, [Entry.of(claim(20, "Berlin"))])
    assert folded is not None
    versions = [change.memory.version for change in folded[1] if change.memory.id == berlin.id]
    assert versions == list(range(version + 1, version + 1 + len(versions)))
    assert folded[0].memories["berlin"].status is Status.ACTIVE
    assert folded[0].retired == {}


def test_a_late_claim_about_something_else_leaves_it_where_it_is() -> None:
    """Scenario: the whole ledger is simulated, which does not know Berlin; then Berlin is said again."""
    cell, berlin = cell_that_lost_berlin(4)
    ledger = [Entry.of(claim(10, "Leeds")), Entry.of(claim(5, "Oslo"))]
    settled, changes = reconcile(cell, ledger, [])
    assert settled.retired == {berlin.id: berlin}
    assert berlin.id not in {change.memory.id for change in changes}
    folded = advance(settled, [Entry.of(claim(20, "Berlin"))])
    assert folded is not None
    assert folded[0].memories["berlin"].version == 5


def test_said_earlier_than_what_is_folded_it_goes_on_as_well() -> None:
    cell, berlin = cell_that_lost_berlin(4)
    ledger = [Entry.of(claim(10, "Leeds")), Entry.of(claim(5, "Berlin"))]
    settled, changes = reconcile(cell, ledger, [])
    assert [change.memory.version for change in changes if change.memory.id == berlin.id] == [5]
    assert settled.memories["berlin"].status is Status.SUPERSEDED
    assert settled.retired == {}
