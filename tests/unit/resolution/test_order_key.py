"""Order: the ledger sorts as the conversation went, to the microsecond, whatever the turns are called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.resolution import Entry, Retraction, order_key
from tests.doubles.records import T0, claim, turn

moments = st.datetimes(timezones=st.just(UTC))


@given(moments, moments)
def test_what_was_said_later_sorts_later(one: datetime, other: datetime) -> None:
    first, second = order_key(one, "t", 0, "c"), order_key(other, "t", 0, "c")
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


@given(moments.filter(lambda moment: moment < datetime(9999, 12, 31, tzinfo=UTC)))
def test_a_microsecond_later_is_later(moment: datetime) -> None:
    assert order_key(moment, "t", 0, "c") < order_key(moment + timedelta(microseconds=1), "t", 0, "c")


@pytest.mark.parametrize(("earlier", "later"), [("t9", "t10"), ("msg-2-1", "msg-2-12"), ("7", "12"), ("a1", "b0")])
def test_turns_of_one_instant_sort_by_their_ids_as_a_person_would(earlier: str, later: str) -> None:
    assert order_key(T0, earlier, 0, "z") < order_key(T0, later, 0, "a")


def test_claims_of_one_turn_keep_their_places() -> None:
    keys = [order_key(T0, "t1", position, "c") for position in (0, 1, 9, 10, 99, 100)]
    assert keys == sorted(keys)


def test_no_two_claims_are_equal_in_order() -> None:
    assert order_key(T0, "t1", 0, "c1") != order_key(T0, "t1", 0, "c2")


@pytest.mark.parametrize("turn_id", ["", "x" * 255, "1" * 255, "9-" * 127, "𠮷" * 255])
def test_the_key_fits_the_column_whatever_the_id(turn_id: str) -> None:
    assert len(order_key(T0, turn_id, 9999, "c" * 36)) <= 255


def test_an_entry_is_ordered_by_when_it_was_said() -> None:
    said = claim(3, position=2)
    assert Entry.of(said).key == order_key(said.stated_at, "t3", 2, said.candidate_id)
    assert Entry.of(claim(3, source_turn_ids=())).claim.source_turn_ids == ()


@pytest.mark.parametrize(
    ("number", "revision", "below", "void"),
    [(1, 0, None, True), (1, 7, None, True), (1, 1, 2, True), (1, 2, 2, False), (2, 0, None, False)],
)
def test_a_retraction_voids_its_turns_older_revisions(
    number: int, revision: int, below: int | None, void: bool
) -> None:
    retraction = Retraction("key", turn(1).turn_key, below)
    assert retraction.voids(claim(number, turn_revision=revision)) is void
