"""The reindex clock: whoever owns the vectors does what was asked for with `memriver reindex`, and repairs what was missed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from processors.exceptions import MemriverError
from sinks.truth import Truth
from sinks.vectors.collections import Collections
from streams.reindex.work import Reindexer
from streams.settings import Settings
from streams.ticking import for_ever

log = logging.getLogger("memriver.reindex")

_AFTER_TROUBLE_SECONDS = 5.0


class ReindexClock:
    """Any number may run: a task is held by one of them at a time. The work is done in a thread of its own."""

    name = "reindex"

    def __init__(
        self,
        settings: Settings,
        truth: Truth,
        collections: Collections,
        fatal: Callable[[str, Exception], NoReturn],
        *,
        now: Callable[[], datetime],
        tick_seconds: float = 1.0,
    ) -> None:
        self._fatal = fatal
        self._tick = tick_seconds
        self._halt = threading.Event()
        self._work = Reindexer(settings, truth, collections, now=now, halt=self._halt)
        self._busy: asyncio.Future[bool] | None = None

    async def run(self) -> None:
        """Tick for ever; an error that nobody foresaw ends the process, as in any stage."""
        await for_ever(self.name, self._once, self._fatal)

    async def _once(self) -> float:
        try:
            # Shielded: a thread cannot be cancelled, and `stop` waits for it.
            self._busy = asyncio.ensure_future(asyncio.to_thread(self._work.step))
            worked = await asyncio.shield(self._busy)
            return 0.0 if worked else self._tick
        except MemriverError as error:
            log.warning("a re-embedding task broke off: %s", error)
            return _AFTER_TROUBLE_SECONDS

    async def stop(self) -> None:
        """Let go of the task at hand, which another process may take up at once."""
        self._halt.set()
        if self._busy is not None:
            await asyncio.gather(self._busy, return_exceptions=True)
