"""Truth, the ledger: one writer per owner, every claim once, and cells that come back as they were folded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from processors.exceptions import ConflictError
from processors.resolution import Cell, Entry, Retraction
from schemas import Operation, digest
from sinks.truth import Truth, ledger
from sinks.truth.tables import retractions
from tests.doubles.records import cell_of, claim, turn

ANN = claim().owner_key
WANTED = {ANN: ("acme", "user", "ann"), claim(owner="bob").owner_key: ("acme", "user", "bob")}
SLOT, CELL = digest("slot"), digest("cell")


def insert(connection: Connection, *numbers: int, cell: str = CELL, slot: str = SLOT) -> None:
    ledger.insert_claims(connection, [(Entry.of(claim(number)), slot, cell) for number in numbers])


def test_owners_begin_at_zero_and_are_made_once(truth: Truth) -> None:
    for _ in range(2):
        with truth.begin() as connection:
            assert ledger.lock_owners(connection, WANTED) == dict.fromkeys(WANTED, 0)


def test_sequences_go_on_where_they_were(truth: Truth) -> None:
    for number in range(1, 4):
        with truth.begin() as connection:
            before = ledger.lock_owners(connection, WANTED)
            assert before == dict.fromkeys(WANTED, number - 1)
            ledger.save_sequences(connection, WANTED, {key: seq + 1 for key, seq in before.items()})
    with truth.begin() as connection:
        ledger.save_sequences(connection, WANTED, {ANN: 2**40})
    with truth.begin() as connection:
        assert ledger.lock_owners(connection, {ANN: WANTED[ANN]}) == {ANN: 2**40}


def test_a_transaction_that_fails_takes_its_sequence_back(truth: Truth) -> None:
    with truth.begin() as connection:
        ledger.lock_owners(connection, WANTED)
    with pytest.raises(RuntimeError), truth.begin() as connection:
        ledger.save_sequences(connection, WANTED, {ANN: 7})
        raise RuntimeError
    with truth.begin() as connection:
        assert ledger.lock_owners(connection, WANTED)[ANN] == 0


def test_thousands_of_owners_are_locked_in_one_call(truth: Truth) -> None:
    many = {claim(owner=f"o{number}").owner_key: ("acme", "user", f"o{number}") for number in range(2500)}
    with truth.begin() as connection:
        assert ledger.lock_owners(connection, many) == dict.fromkeys(many, 0)
    with truth.begin() as connection:
        ledger.save_sequences(connection, many, dict.fromkeys(many, 1))
    with truth.begin() as connection:
        assert ledger.lock_owners(connection, many) == dict.fromkeys(many, 1)


@pytest.mark.services
def test_workers_with_the_same_owners_take_turns_and_lose_no_number(mariadb_truth: Truth) -> None:
    together = threading.Barrier(4, timeout=30)
    owners = {claim(owner=f"o{number}").owner_key: ("acme", "user", f"o{number}") for number in range(5)}

    def advance(connection: Connection) -> None:
        before = ledger.lock_owners(connection, owners)
        ledger.save_sequences(connection, owners, {key: seq + 1 for key, seq in before.items()})

    def worker(_number: int) -> None:
        together.wait()
        for _ in range(5):
            mariadb_truth.run(advance, attempts=20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(worker, range(4)))
    with mariadb_truth.begin() as connection:
        assert ledger.lock_owners(connection, owners) == dict.fromkeys(owners, 20)


def test_claims_come_back_whole_with_their_place_in_the_order(truth: Truth) -> None:
    said = [Entry.of(claim(number, value="上海 🏙️", operation=Operation.END)) for number in (2, 1)]
    truth.run(lambda connection: ledger.insert_claims(connection, [(entry, SLOT, CELL) for entry in said]))
    with truth.reading() as connection:
        found = ledger.entries(connection, [CELL, digest("other")])
    assert set(found) == {CELL}
    assert sorted(found[CELL], key=lambda entry: entry.key) == [said[1], said[0]]


def test_a_claim_is_in_the_ledger_once(truth: Truth) -> None:
    truth.run(lambda connection: insert(connection, 1))
    with truth.reading() as connection:
        wanted = [claim(1).candidate_id, claim(2).candidate_id]
        assert ledger.known_claims(connection, wanted) == {claim(1).candidate_id}
    with pytest.raises(ConflictError):
        truth.run(lambda connection: insert(connection, 2, 1), attempts=1)
    with truth.reading() as connection:
        assert ledger.known_claims(connection, wanted) == {claim(1).candidate_id}


def test_the_cells_that_a_turn_reaches_are_found_with_owner_and_slot(truth: Truth) -> None:
    with truth.begin() as connection:
        insert(connection, 1)
        insert(connection, 2, cell=digest("other"))
        keys = [turn(number).turn_key for number in (1, 2, 3)]
        assert ledger.cells_of_turns(connection, keys) == {CELL: (ANN, SLOT), digest("other"): (ANN, SLOT)}
        assert ledger.cells_of_turns(connection, keys[2:]) == {}


def test_a_cell_comes_back_as_it_was_folded(truth: Truth) -> None:
    folded = cell_of(claim(1, value="Leeds 𠮷"), claim(2, value="Berlin"), claim(3, value="Leeds 𠮷"))
    assert len(folded.memories) == 2
    with truth.begin() as connection:
        ledger.save_cells(connection, [(CELL, ANN, SLOT, folded), (digest("empty"), ANN, SLOT, Cell())])
        assert ledger.load_cells(connection, [CELL, digest("unknown")]) == {CELL: folded}
        assert ledger.load_cells(connection, [digest("empty")]) == {digest("empty"): Cell()}


def test_a_saved_cell_takes_the_place_of_the_older(truth: Truth) -> None:
    older, newer = cell_of(claim(1)), cell_of(claim(1), claim(2, value="Berlin"))
    for cell in (older, newer):
        with truth.begin() as connection:
            ledger.save_cells(connection, [(CELL, ANN, SLOT, cell)])
    with truth.reading() as connection:
        assert ledger.load_cells(connection, [CELL]) == {CELL: newer}


def test_the_cells_of_a_slot_are_found_and_bounded(truth: Truth) -> None:
    cell = cell_of(claim(1))
    other = digest("other slot")
    with truth.begin() as connection:
        ledger.save_cells(connection, [(digest(str(number)), ANN, SLOT, cell) for number in range(5)])
        ledger.save_cells(connection, [(digest("elsewhere"), ANN, other, cell)])
        found = ledger.cells_of_slots(connection, [SLOT, other, digest("none")], limit=3)
    assert {key: len(value) for key, value in found.items()} == {SLOT: 3, other: 1, digest("none"): 0}


def test_thousands_of_claims_and_cells_go_through_one_call(truth: Truth) -> None:
    cell = cell_of(claim(1))
    keys = [digest(str(number)) for number in range(2500)]
    with truth.begin() as connection:
        rows = [(Entry.of(claim(number)), SLOT, keys[number]) for number in range(2500)]
        ledger.insert_claims(connection, rows)
        ledger.save_cells(connection, [(key, ANN, SLOT, cell) for key in keys])
        assert len(ledger.entries(connection, keys)) == 2500
        assert len(ledger.load_cells(connection, keys)) == 2500
        assert len(ledger.known_claims(connection, [entry.claim.candidate_id for entry, _, _ in rows])) == 2500
        assert len(ledger.cells_of_turns(connection, [turn(number).turn_key for number in range(2500)])) == 2500
        assert ledger.retractions_of(connection, [turn(number).turn_key for number in range(2500)]) == {}


def test_a_retraction_is_found_by_the_turn_it_aims_at(truth: Truth) -> None:
    one, two = Retraction("k1", turn(1).turn_key, None), Retraction("k2", turn(1).turn_key, 3)
    with truth.begin() as connection:
        assert ledger.save_retraction(connection, digest("r1"), ANN, one) is None
        assert ledger.save_retraction(connection, digest("r2"), ANN, two) is None
        found = ledger.retractions_of(connection, [turn(1).turn_key, turn(2).turn_key])
    assert {key: set(items) for key, items in found.items()} == {turn(1).turn_key: {one, two}}


def test_a_retraction_that_is_aimed_anew_tells_where_it_aimed_before(truth: Truth) -> None:
    first, second = turn(1).turn_key, turn(2).turn_key
    with truth.begin() as connection:
        ledger.save_retraction(connection, digest("r"), ANN, Retraction("k", first, None))
        assert ledger.save_retraction(connection, digest("r"), ANN, Retraction("k", second, None)) == first
        assert ledger.retractions_of(connection, [first]) == {}
        assert ledger.retractions_of(connection, [second]) == {second: [Retraction("k", second, None)]}
        assert ledger.save_retraction(connection, digest("r"), ANN, None) == second
        assert ledger.retractions_of(connection, [first, second]) == {}
        assert ledger.save_retraction(connection, digest("r"), ANN, Retraction("k", first, None)) is None
        assert connection.execute(sa.select(sa.func.count()).select_from(retractions)).scalar() == 1
