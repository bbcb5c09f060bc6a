"""Ending: the steps of an orderly stop within one span of time, however many servers do not answer."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from typing import NoReturn

log = logging.getLogger("memriver.ending")

_LEAST_SECONDS = 0.1
"""What a step gets even when the time is over: most of them take none."""


class Ending:
    """Gives each step a share of what is left of `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + seconds

    async def wait(self, step: Awaitable[object], *, share: float = 1.0) -> bool:
        """Whether the step was done in time. One that was not is cancelled; one that raises is written down."""
        task = asyncio.ensure_future(step)
        left = max(_LEAST_SECONDS, (self._end - self._loop.time()) * share)
        done, _pending = await asyncio.wait({task}, timeout=left)
        if not done:
            task.cancel()
            task.add_done_callback(_heard)
            return False
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("while stopping: %s", type(error).__name__)
        return True


def leave() -> NoReturn:
    """End the process now, with exit code 0: threads that wait for a server would keep the interpreter from ending."""
    log.warning("a server did not answer in time; what was in hand was not acknowledged and comes again elsewhere")
    logging.shutdown()
    os._exit(0)


def _heard(task: asyncio.Future[object]) -> None:
    # asyncio complains of an exception that nobody has looked at.
    if not task.cancelled():
        task.exception()
