"""Nothing is over before it begins: days count from when a thing is said or begins, whichever is later (SPEC W9, L2)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.resolution import Entry, Retraction, simulate
from schemas import Candidate, Cardinality, Memory, Operation, SourceKind, Status
from tests.unit.resolution.test_order_independence import T0, Store, both_ways, claim, retraction

OPERATIONS = (
    *[Operation.ASSERT] * 6,
    *(Operation.CONFIRM, Operation.EXPIRE, Operation.END, Operation.DEMOTE, Operation.DELETE),
)


def day(number: float) -> datetime:
    return T0 + timedelta(days=number)


def said(on: int, **more: object) -> Candidate:
    """A plan that is told on that day; what is not given is as the slot of plans has it."""
    given = {"attribute": "plan", "cardinality": Cardinality.MULTI, "ttl_days": 90, "event_time": day(on)} | more
    return claim(on * 24 * 60, "move to Rome", **given)


def told(*items: Candidate) -> Memory:
    """The one memory that they make."""
    cell, _steps = simulate([Entry.of(item) for item in items], [])
    (memory,) = cell.memories.values()
    return memory


@st.composite
def ledgers(draw: st.DrawFn, *, ends: bool) -> list[Candidate | Retraction]:
    """Claims with times before and after the moment of speaking; with `ends`, some name an end, which may be anywhere."""
    days = st.integers(-400, 400)
    cardinality = draw(st.sampled_from(Cardinality))
    items: list[Candidate | Retraction] = []
    for index in range(draw(st.integers(1, 7))):
        at = index * 40
        times = {
            "event_time": day(at + draw(st.sampled_from([0, 0, draw(days)]))),
            "ttl_days": draw(st.sampled_from([None, 1, 7, 90])),
            "valid_to": draw(st.sampled_from([None, day(at + draw(days))])) if ends else None,
        }
        kind = {
            "operation": draw(st.sampled_from(OPERATIONS)),
            "cardinality": cardinality,
            "source": draw(st.sampled_from([*[SourceKind.USER_STATEMENT] * 3, SourceKind.ASSISTANT])),
            "decision": draw(st.sampled_from(["accept", "accept", "accept", "review"])),
        }
        items.append(claim(at * 24 * 60, draw(st.sampled_from(["Berlin", "Leeds"])), **times, **kind))
        if draw(st.integers(0, 5)) == 0:
            items.append(retraction(at * 24 * 60 + 1, at * 24 * 60))
    return items


def versions(items: list[Candidate | Retraction]) -> list[Memory]:
    entries = [Entry.of(item) for item in items if isinstance(item, Candidate)]
    return [step.memory for step in simulate(entries, [i for i in items if isinstance(i, Retraction)])[1]]


@settings(max_examples=300, deadline=None)
@given(ledgers(ends=False))
def test_what_holds_is_over_only_after_it_has_begun(items: list[Candidate | Retraction]) -> None:
    for memory in versions(items):
        if memory.status is Status.ACTIVE and memory.expires_at is not None:
            assert memory.valid_from is not None
            assert memory.expires_at > memory.valid_from


@settings(max_examples=300, deadline=None)
@given(ledgers(ends=True))
def test_no_version_ends_before_it_begins_whatever_end_was_named(items: list[Candidate | Retraction]) -> None:
    for memory in versions(items):
        assert all(span.end is None or span.end >= span.start for span in memory.intervals)
        if memory.valid_from is not None and memory.expires_at is not None and memory.status is Status.ACTIVE:
            assert memory.expires_at >= memory.valid_from


@settings(max_examples=200, deadline=None)
@given(ledgers(ends=True), st.randoms(use_true_random=False))
def test_shuffled_delivery_gives_the_same_ends(items: list[Candidate | Retraction], rng: random.Random) -> None:
    straight, shuffled = both_ways(items, rng)
    assert shuffled.current() == straight.current()


@pytest.mark.parametrize(
    ("item", "ends"),
    [
        (said(0), 90),
        (said(0, event_time=day(200)), 290),
        (said(0, event_time=day(-200)), 90),
        (said(0, event_time=day(200), ttl_days=None), None),
        (said(0, valid_to=day(5)), 5),
        (said(0, event_time=day(2), valid_to=day(5)), 5),
    ],
)
def test_days_count_from_the_word_or_from_the_event_and_a_named_end_is_the_end(
    item: Candidate, ends: int | None
) -> None:
    assert told(item).expires_at == (None if ends is None else day(ends))


def test_a_plan_that_is_mentioned_again_without_its_date_outlives_its_beginning() -> None:
    memory = told(said(0, event_time=day(300)), said(10))
    assert (memory.valid_from, memory.expires_at) == (day(300), day(390))


def test_a_plan_that_is_put_forward_to_an_earlier_end_begins_before_it() -> None:
    memory = told(said(0, event_time=day(300)), said(10, valid_to=day(20)))
    assert (memory.valid_from, memory.expires_at) == (day(10), day(20))


def test_what_is_let_through_after_its_days_has_them_from_then_on() -> None:
    """Scenario: something waits for a review for half a year, longer than it would have been kept.
    We expect that the yes is worth something: it holds from then on, for as long as such things do."""
    held = said(0, decision="review")
    assert told(held, said(180, operation=Operation.CONFIRM)).expires_at == day(270)


def test_what_is_let_through_after_the_end_that_was_named_stays_over() -> None:
    memory = told(said(0, decision="review", ttl_days=None, valid_to=day(5)), said(9, operation=Operation.CONFIRM))
    assert (memory.valid_from, memory.expires_at) == (day(5), day(5))


def test_days_that_end_after_the_last_year_of_the_calendar_do_not_end() -> None:
    assert told(said(0, event_time=datetime(9999, 12, 31, tzinfo=UTC))).expires_at is None


def test_an_expiry_that_was_ordered_before_the_end_was_put_off_is_void_whichever_came_first() -> None:
    """Scenario: the clock ends a plan on its last day; a turn of the day before, which mentions it again, comes late.
    We expect the plan to hold, as it does when that turn comes in time."""
    plan, again = said(0), said(89)
    over = said(90, operation=Operation.EXPIRE)
    for items in ([plan, over, again], [plan, again, over]):
        store = Store()
        for item in items:
            store.arrive([item])
        (memory,) = store.cell.memories.values()
        assert (memory.status, memory.expires_at) == (Status.ACTIVE, day(179))
    assert told(plan, over).status is Status.EXPIRED
