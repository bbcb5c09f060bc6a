"""Unit tests: a worker that is told to stop while it starts."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from processors.exceptions import TransientError
from streams.cli.services import _started
from streams.runtime import Runtime


class Starting:
    """A runtime whose start does this."""

    def __init__(self, *, hangs: bool = False, fails: bool = False) -> None:
        self._hangs, self._fails = hangs, fails
        self.given_up = False

    async def start(self) -> None:
        if self._fails:
            raise TransientError("no broker answers")
        if self._hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up = True
                raise


async def test_a_signal_ends_a_start_that_hangs() -> None:
    stop, runtime = asyncio.Event(), Starting(hangs=True)
    asyncio.get_running_loop().call_soon(stop.set)
    assert not await _started(cast(Runtime, runtime), stop)
    assert runtime.given_up


async def test_a_signal_that_came_before_counts() -> None:
    stop = asyncio.Event()
    stop.set()
    assert not await _started(cast(Runtime, Starting()), stop)


async def test_without_a_signal_it_starts() -> None:
    assert await _started(cast(Runtime, Starting()), asyncio.Event())


async def test_what_hinders_a_start_is_told() -> None:
    with pytest.raises(TransientError, match="no broker"):
        await _started(cast(Runtime, Starting(fails=True)), asyncio.Event())
