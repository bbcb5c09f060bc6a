"""The erasure clock: open erasures are carried out and verified by whoever owns the vectors, however often it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import datetime

from processors.exceptions import MemriverError
from sinks.truth import Truth, erasure
from streams.delivery import LEFT_BEHIND, Delivery
from streams.erasing.work import Eraser
from streams.metrics import Metrics
from streams.ticking import for_ever

log = logging.getLogger("memriver.erasure")

_AFTER_TROUBLE_SECONDS = 5.0


class ErasureClock:
    """Any number may run: an erasure is held by one of them at a time."""

    name = "erasure"

    def __init__(
        self, eraser: Eraser, delivery: Delivery, truth: Truth, metrics: Metrics, *, tick_seconds: float = 0.5
    ) -> None:
        self._eraser = eraser
        self._delivery = delivery
        self._truth = truth
        self._metrics = metrics
        self._tick = tick_seconds

    async def run(self) -> None:
        """Tick for ever; an error that nobody foresaw ends the process, as in any stage."""
        await for_ever(self.name, self._once, self._delivery.fatal)

    async def _once(self) -> float:
        try:
            await self._delivery.drain(self.name, older_than=LEFT_BEHIND)
            # Taking one writes; most of the time there is none, and a read tells.
            worked = await self._waiting() and await self._eraser.step()
            return 0.0 if worked else self._tick
        except MemriverError as error:
            # A store that only another process can open is no reason to end: that one will take it.
            log.warning("an erasure waits: %s", error)
            # The store that is away may be truth itself: then the erasure is let go by the hold's own end.
            with contextlib.suppress(MemriverError):
                await self._eraser.let_go()
            return _AFTER_TROUBLE_SECONDS

    async def _waiting(self) -> bool:
        """Whether an erasure is open; the gauge says for how long."""
        oldest = await asyncio.to_thread(self._oldest)
        age = (self._delivery.now() - oldest).total_seconds() if oldest is not None else 0.0
        self._metrics.erasure_age.set(age)
        return oldest is not None

    def _oldest(self) -> datetime | None:
        with self._truth.reading() as connection:
            return erasure.oldest_open(connection)
