"""Ticking: a timer that hangs is seen by the watchdog, one that pauses or works on is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import NoReturn

import pytest

from streams.progress import Progress
from streams.ticking import for_ever
from streams.watchdog import Standstill
from tests.doubles.log import until


class Clock:
    """`time.monotonic` as the test wants it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("streams.progress.time", SimpleNamespace(monotonic=made))  # the event loop keeps its own
    return made


def _fatal(_name: str, error: Exception) -> NoReturn:
    raise AssertionError from error


async def test_a_tick_that_hangs_is_a_standstill_and_a_pause_is_none(clock: Clock) -> None:
    progress, ticks, hangs = Progress(), 0, asyncio.Event()

    async def tick() -> float:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            await hangs.wait()
        return 0.001

    look = Standstill(120.0, clock)
    task = asyncio.ensure_future(for_ever("clock", tick, _fatal, progress))
    await until(lambda: ticks == 3)
    assert progress.handled == 2
    assert look.look({"clock": progress}, []) == {}
    clock.now += 121
    assert look.look({"clock": progress}, []) == {"clock": "no progress for 121 s with work in hand"}
    progress.patience()
    assert look.look({"clock": progress}, []) == {}, "a server told it to wait, or a transaction was done"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    clock.now += 121
    assert look.look({"clock": progress}, []) == {}, "it was stopped, and has nothing in hand"


async def test_a_timer_between_two_ticks_has_nothing_in_hand(clock: Clock) -> None:
    progress = Progress()

    async def tick() -> float:
        return 60.0

    task = asyncio.ensure_future(for_ever("clock", tick, _fatal, progress))
    await until(lambda: progress.handled == 1)
    clock.now += 1000
    assert Standstill(120.0, clock).look({"clock": progress}, []) == {}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
