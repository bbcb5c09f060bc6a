"""Ticking: what all timers share, work and a pause for ever, and an end that is never silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from streams.progress import Progress


async def for_ever(
    name: str,
    tick: Callable[[], Awaitable[float]],
    fatal: Callable[[str, Exception], NoReturn],
    progress: Progress | None = None,
) -> None:
    """Run `tick` again after as many seconds as it returns. An error that nobody foresaw ends the process, as in any stage.

    With `progress` the watchdog sees a tick that hangs; for timers whose work is a transaction at a time.
    """
    progress = progress or Progress()
    try:
        while True:
            progress.take()
            pause = await tick()
            progress.finish(1)
            await asyncio.sleep(pause)
    except Exception as error:  # noqa: BLE001 - a timer that is silently dead would leave its work undone for ever
        fatal(name, error)
    finally:
        progress.drop()
