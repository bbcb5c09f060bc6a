"""The summary clock: conversations that went on since their last summary get a new one, before anybody asks (SPEC W13)."""

from __future__ import annotations

import asyncio
import logging
from random import Random

from processors.exceptions import ConflictError, TransientError
from recall.session import SessionMemory
from sinks.truth import Truth, sessions
from streams.delivery import Delivery
from streams.ticking import for_ever

log = logging.getLogger("memriver.summaries")

_CLAIM = 100
_AT_ONCE = 8
"""Summaries in the making: enough to keep up where a model takes seconds for each, few enough to leave extraction room."""


class SummaryClock:
    """Any number may run: of two that summarise one conversation the faster one's summary stands.

    Nothing is locked while a model thinks; `rng` orders each clock's work anew, so that two seldom do the same at once.
    """

    name = "summaries"

    def __init__(
        self, delivery: Delivery, truth: Truth, memory: SessionMemory, *, rng: Random, tick_seconds: float = 30.0
    ) -> None:
        self._delivery = delivery
        self._truth = truth
        self._memory = memory
        self._rng = rng
        self._tick = tick_seconds

    async def run(self) -> None:
        """Tick for ever; an error that is not transient ends the process."""
        await for_ever(self.name, self._once, self._delivery.fatal)

    async def _once(self) -> float:
        try:
            await self.sweep()
        except (TransientError, ConflictError) as error:
            # What is due is read from the database each time: the next tick finds what this one left.
            log.warning("%s: %s; again in %.0f s", self.name, error, self._tick)
        return self._tick

    async def sweep(self) -> int:
        """Summarise what is due now; returns how many conversations got a summary."""
        made = passed_over = 0
        while True:
            keys = await self._delivery.in_thread(self._due, passed_over)
            self._rng.shuffle(keys)
            got = await self._refresh(keys)
            made += got
            # Nothing stands in these (all was taken back), so they stay due; what comes behind them must have its turn.
            passed_over += len(keys) - got
            if len(keys) < _CLAIM:
                return made

    def _due(self, offset: int) -> list[str]:
        with self._truth.reading() as connection:
            return sessions.due(connection, limit=_CLAIM, offset=offset)

    async def _refresh(self, keys: list[str]) -> int:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(key: str) -> bool:
            async with room:
                return await self._memory.refresh_key(key, force=True) is not None

        # All of them end before an error goes up: none is left behind to write into a database that is being closed.
        done = await asyncio.gather(*(one(key) for key in keys), return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        return sum(map(bool, done))
