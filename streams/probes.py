"""Probes: asking a server how it is, without ever waiting long for the answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from processors.exceptions import MemriverError, Outage, TransientError

OK = "ok"
FAILED = "failed"

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One word for how a part is, why, and what else it said."""

    state: str
    why: str | None = None
    facts: Facts = field(default_factory=dict)


class Probe:
    """One look at one part; blocking looks run in a thread. While one hangs there is no second, and the part is away."""

    def __init__(self, look: Callable[[], Facts | Awaitable[None]], seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._running: asyncio.Future[Facts | None] | None = None

    async def ask(self) -> Answer:
        """Never raises, and returns after `seconds` at the latest."""
        if self._running is None:
            self._running = asyncio.ensure_future(self._once())
        running = self._running
        done, _pending = await asyncio.wait({running}, timeout=self._seconds)
        if not done:
            return Answer(Outage.AWAY, f"no answer within {self._seconds:.0f} s")
        if self._running is running:
            self._running = None
        try:
            return Answer(OK, facts=running.result() or {})
        except TransientError as error:
            return Answer(error.outage, str(error))
        except MemriverError as error:
            return Answer(FAILED, str(error))
        except Exception as error:  # noqa: BLE001 - a client's own words may quote what it was sent
            return Answer(FAILED, type(error).__name__)

    async def _once(self) -> Facts | None:
        if inspect.iscoroutinefunction(self._look):
            await self._look()
            return None
        return await asyncio.to_thread(self._look)  # type: ignore[arg-type]  # not a coroutine function: it returns facts
