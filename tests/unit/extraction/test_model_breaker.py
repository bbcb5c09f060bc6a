"""Tests, model side: the breaker opens, probes and forgives, on an injected clock."""

from __future__ import annotations

import pytest

from streams.breaker import Breaker, BreakerOpen, BreakerState


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock, threshold=3, cooldown=10.0, max_cooldown=25.0)


def fail(breaker: Breaker, times: int = 1, retry_after: float | None = None) -> None:
    for _ in range(times):
        breaker.admit()
        breaker.failure(retry_after)


def test_it_opens_after_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.success()
    fail(breaker, 2)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    assert breaker.state is BreakerState.OPEN
    with pytest.raises(BreakerOpen) as caught:
        breaker.admit()
    assert caught.value.retry_after == 10.0


def test_half_open_lets_one_probe_through_and_its_success_closes(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10.0
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.admit()
    with pytest.raises(BreakerOpen):
        breaker.admit()
    breaker.success()
    assert breaker.state is BreakerState.CLOSED
    breaker.admit()


def test_each_failed_probe_doubles_the_wait_up_to_its_bound(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    waits = []
    for _ in range(3):
        with pytest.raises(BreakerOpen) as caught:
            breaker.admit()
        waits.append(caught.value.retry_after)
        clock.now += caught.value.retry_after or 0.0
        fail(breaker)
    assert waits == [10.0, 20.0, 25.0]


def test_it_stays_open_as_long_as_the_provider_asks(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3, retry_after=120.0)
    clock.now = 119.0
    assert breaker.state is BreakerState.OPEN


def test_an_abandoned_probe_makes_room_for_the_next(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10.0
    breaker.admit()
    breaker.release()
    breaker.admit()


def test_calls_that_were_under_way_when_it_opened_change_nothing(breaker: Breaker, clock: Clock) -> None:
    for _ in range(5):
        breaker.admit()
    for _ in range(5):
        breaker.failure()
    clock.now = 10.0
    assert breaker.state is BreakerState.HALF_OPEN
