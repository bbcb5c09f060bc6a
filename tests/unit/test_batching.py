"""Micro-batches: hard limits, nothing lost, nothing twice, and the same batches however the turns arrive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.batching import BatchLimits, ClosedBatch, PendingTurn, batch_id, cut, due_at

NOON = datetime(2026, 3, 11, 12, 0, tzinfo=UTC)


def turns(*tokens: int) -> list[PendingTurn]:
    return [
        PendingTurn(f"turn-{index}", 0, count, NOON + timedelta(seconds=index), NOON + timedelta(seconds=index))
        for index, count in enumerate(tokens)
    ]


limits_st = st.builds(BatchLimits, max_turns=st.integers(1, 7), max_tokens=st.integers(1, 200))
pending_st = st.lists(st.integers(0, 300), max_size=40).map(lambda tokens: turns(*tokens))


def sizes(batches: list[ClosedBatch]) -> list[int]:
    return [len(batch.turns) for batch in batches]


def test_a_batch_closes_at_five_turns() -> None:
    closed, rest = cut(turns(*[10] * 12), BatchLimits(), end=False)
    assert sizes(closed) == [5, 5]
    assert {batch.closed_by for batch in closed} == {"turns"}
    assert [turn.turn_key for turn in rest] == ["turn-10", "turn-11"]


def test_a_turn_that_does_not_fit_closes_the_batch_before_it() -> None:
    closed, rest = cut(turns(2000, 1500, 1000), BatchLimits(), end=False)
    assert [(len(batch.turns), batch.tokens, batch.closed_by) for batch in closed] == [(2, 3500, "tokens")]
    assert [turn.turn_key for turn in rest] == ["turn-2"]


def test_an_oversize_turn_is_a_batch_of_its_own() -> None:
    closed, rest = cut(turns(10, 9000, 10), BatchLimits(), end=False)
    assert [batch.tokens for batch in closed] == [10, 9000]
    assert len(rest) == 1


def test_the_end_of_a_conversation_closes_what_is_left() -> None:
    closed, rest = cut(turns(10, 10), BatchLimits(), end=True)
    assert [batch.closed_by for batch in closed] == ["end"]
    assert rest == []


def test_thirty_seconds_after_the_first_waiting_turn_the_rest_is_due() -> None:
    waiting = turns(10, 10)
    assert due_at(waiting, BatchLimits()) == NOON + timedelta(seconds=30)
    assert cut(waiting, BatchLimits(), end=False, now=NOON + timedelta(seconds=29))[0] == []
    closed, rest = cut(waiting, BatchLimits(), end=False, now=NOON + timedelta(seconds=30))
    assert [batch.closed_by for batch in closed] == ["time"]
    assert rest == []


def test_nothing_pending_closes_nothing() -> None:
    assert cut([], BatchLimits(), end=True, now=NOON) == ([], [])
    assert due_at([], BatchLimits()) is None


def test_limits_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BatchLimits(max_turns=0)


def test_the_batch_id_depends_on_keys_order_and_revisions() -> None:
    first, second = turns(1, 1)
    edited = PendingTurn(first.turn_key, 1, 1, first.sent_at, first.arrived_at)
    ids = {batch_id(batch) for batch in ([first, second], [second, first], [edited, second], [first])}
    assert len(ids) == 4
    assert batch_id([first, second]) == batch_id(turns(7, 9))


@given(pending_st, limits_st, st.booleans())
def test_no_turn_is_lost_or_doubled_and_the_order_is_kept(
    pending: list[PendingTurn], limits: BatchLimits, end: bool
) -> None:
    closed, rest = cut(pending, limits, end=end)
    assert [turn for batch in closed for turn in batch.turns] + rest == pending
    assert not (end and rest)
    assert all(batch.turns for batch in closed)


@given(pending_st, limits_st, st.booleans())
def test_no_batch_is_above_its_limits_except_a_single_oversize_turn(
    pending: list[PendingTurn], limits: BatchLimits, end: bool
) -> None:
    closed, rest = cut(pending, limits, end=end)
    for batch in closed:
        assert batch.tokens == sum(turn.tokens for turn in batch.turns)
        assert len(batch.turns) <= limits.max_turns
        assert batch.tokens <= limits.max_tokens or len(batch.turns) == 1
    assert len(rest) < limits.max_turns
    assert sum(turn.tokens for turn in rest) < limits.max_tokens or not rest


@given(pending_st, limits_st, st.data())
def test_turns_that_trickle_in_make_the_same_batches_as_turns_that_come_at_once(
    pending: list[PendingTurn], limits: BatchLimits, data: st.DataObject
) -> None:
    at_once, rest_at_once = cut(pending, limits, end=False)
    trickled: list[ClosedBatch] = []
    waiting: list[PendingTurn] = []
    index = 0
    while index < len(pending):
        step = data.draw(st.integers(1, 5))
        closed, waiting = cut([*waiting, *pending[index : index + step]], limits, end=False)
        trickled += closed
        index += step
    assert trickled == at_once
    assert waiting == rest_at_once
