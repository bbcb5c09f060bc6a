"""Ticking: what all timers share, work and a pause for ever, and an end that is never silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn


async def for_ever(
    name: str, tick: Callable[[], Awaitable[float]], fatal: Callable[[str, Exception], NoReturn]
) -> None:
    """Run `tick` again after as many seconds as it returns. An error that nobody foresaw ends the process, as in any stage."""
    try:
        while True:  # noqa: ASYNC110 - the pause is between two ticks, and waits for nothing
            await asyncio.sleep(await tick())
    except Exception as error:  # noqa: BLE001 - a timer that is silently dead would leave its work undone for ever
        fatal(name, error)
