"""Tests, extraction: what follows from each outcome of a reply."""

from __future__ import annotations

import pytest

from processors.extraction.outcome import Extracted, Nothing, Outcome, Rejected, Truncated, Unparsable
from processors.extraction.plan import Accept, Again, Ask, GiveUp, Limits, first_asks, label, next_step
from processors.extraction.render import MAX_TURNS
from tests.unit.extraction.conversation import claim, said

LIMITS = Limits(attempts=3, calls=12, max_tokens=1_000)
FIVE = said(*"一二三四五").turns
ITEM = claim("v", "qq")


def ask(turns: int, attempt: int = 1) -> Ask:
    return Ask(FIVE[:turns], LIMITS.max_tokens, attempt=attempt)


def test_a_batch_is_one_call() -> None:
    assert first_asks(FIVE, LIMITS) == (Ask(FIVE, 1_000),)


def test_a_batch_longer_than_a_prompt_is_several_and_loses_no_turn() -> None:
    turns = said(*(str(number) for number in range(MAX_TURNS * 2 + 1))).turns
    asks = first_asks(turns, LIMITS)
    assert [len(each.turns) for each in asks] == [MAX_TURNS, MAX_TURNS, 1]
    assert tuple(turn for each in asks for turn in each.turns) == turns


@pytest.mark.parametrize("outcome", [Nothing(), Extracted((ITEM,)), Extracted((ITEM,), (Rejected("x"),))])
def test_nothing_and_something_are_both_done(outcome: Outcome) -> None:
    assert next_step(ask(5), outcome, LIMITS) == Accept()


def test_a_cut_off_answer_halves_the_batch_down_to_one_turn() -> None:
    step = next_step(ask(5), Truncated((ITEM,)), LIMITS)
    assert isinstance(step, Again)
    assert [len(each.turns) for each in step.asks] == [2, 3]
    sizes: list[int] = []
    waiting = [ask(5)]
    while waiting:
        step = next_step(waiting.pop(0), Truncated(), LIMITS)
        if isinstance(step, Again):
            waiting += step.asks
            sizes += [len(each.turns) for each in step.asks]
    assert min(sizes) == 1
    assert len(sizes) < 20


def test_a_single_turn_that_is_cut_off_gets_twice_the_room_once() -> None:
    step = next_step(ask(1), Truncated(), LIMITS)
    assert isinstance(step, Again)
    assert step.asks == (Ask(FIVE[:1], 2_000, attempt=2),)
    assert next_step(step.asks[0], Truncated((ITEM,)), LIMITS) == GiveUp("truncated")


@pytest.mark.parametrize("outcome", [Unparsable("prose"), Extracted((), (Rejected("not_an_object"),))])
def test_an_unreadable_answer_is_asked_for_again_plainer_and_then_given_up(outcome: Outcome) -> None:
    steps: list[tuple[int, bool, int]] = []
    current = ask(5)
    while isinstance(step := next_step(current, outcome, LIMITS), Again):
        (current,) = step.asks
        steps.append((current.attempt, current.reminder, current.plainer))
    assert steps == [(2, True, 0), (3, True, 1)]
    assert isinstance(step, GiveUp)


@pytest.mark.parametrize("reason", ["refused", "too_long"])
def test_a_refusal_is_narrowed_down_to_the_turn_that_causes_it(reason: str) -> None:
    assert isinstance(next_step(ask(2), Unparsable(reason), LIMITS), Again)
    assert next_step(ask(1), Unparsable(reason), LIMITS) == GiveUp(reason)


def test_a_bad_request_is_not_repeated() -> None:
    assert next_step(ask(5), Unparsable("bad_request"), LIMITS) == GiveUp("bad_request")


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Nothing(), "empty"),
        (Extracted((ITEM,)), "extracted"),
        (Extracted((), (Rejected("x"),)), "unparsable"),
        (Truncated(), "truncated"),
        (Unparsable("prose"), "unparsable"),
        (Unparsable("too_long"), "refused"),
    ],
)
def test_each_outcome_has_a_metric_label_of_its_own(outcome: Outcome, name: str) -> None:
    assert label(outcome) == name
