"""Window: groups in flight, acknowledged as a finished prefix."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from streams.progress import Progress


class Window:
    """Groups in flight, in the order they came; at most `limit` unfinished. `acknowledge` is called with each that is done."""

    def __init__(self, limit: int, progress: Progress, acknowledge: Callable[[list[Any]], None]) -> None:
        self._limit = limit
        self._progress = progress
        self._acknowledge = acknowledge
        self._flying: deque[tuple[list[Any], asyncio.Future[None]]] = deque()

    async def add(self, events: list[Any], task: asyncio.Future[None]) -> None:
        """Take one more group, waiting for the oldest while the window is full."""
        self._flying.append((events, task))
        task.add_done_callback(self._settle)
        while len(self._flying) >= self._limit:
            await self._oldest()

    async def finish(self) -> None:
        """Wait for what is still flying."""
        while self._flying:
            await self._oldest()

    async def _oldest(self) -> None:
        _events, task = self._flying[0]
        await asyncio.wait({task})
        task.result()  # raises what it raised: nothing behind it will ever be acknowledged
        self._settle(task)

    def _settle(self, _done: asyncio.Future[None]) -> None:
        """Acknowledge the finished prefix; whatever failed stays, and so does all behind it."""
        while self._flying and self._flying[0][1].done():
            events, task = self._flying[0]
            if task.cancelled() or task.exception() is not None:
                return
            self._flying.popleft()
            self._acknowledge(events)
            self._progress.finish(len(events))

    def cancel(self) -> None:
        """Give the unfinished work back: it was never acknowledged."""
        for _events, task in self._flying:
            task.cancel()
        self._progress.drop()
