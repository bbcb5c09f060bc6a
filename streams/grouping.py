"""Grouping: what has arrived in a stream, in lists of a bounded size; and what is judged of it while a writer is busy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic, TypeVar

J = TypeVar("J")

_LITTLE_MESSAGES, _LITTLE_BYTES = 8, 16_000


async def groups(events: AsyncIterator[Any], size: int, linger: float) -> AsyncIterator[list[Any]]:
    """Lists of what has arrived: at most `size`, waiting at most `linger` seconds for one more.

    One task reads ahead, no further than one group: a task per message would cost more than the message.
    """
    arrived: deque[Any] = deque()
    news, room = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for event in events:
            arrived.append(event)
            news.set()
            if len(arrived) >= size:
                room.clear()
                await room.wait()

    reader = asyncio.ensure_future(read())
    reader.add_done_callback(lambda _done: news.set())
    try:
        while True:
            while not arrived:
                if reader.done():
                    reader.result()
                    return
                news.clear()
                await news.wait()
            if len(arrived) < size and not reader.done():
                await asyncio.sleep(linger)
            group = [arrived.popleft() for _ in range(min(size, len(arrived)))]
            room.set()
            yield group
    finally:
        reader.cancel()


def is_little(payloads: Sequence[bytes | None]) -> bool:
    """Whether to take these messages apart is a matter of a few milliseconds: less than two changes of thread among busy ones."""
    return len(payloads) <= _LITTLE_MESSAGES and sum(len(payload or b"") for payload in payloads) <= _LITTLE_BYTES


class Ready(Generic[J]):
    """What is judged and not yet written: lists of events, each with what they came to; about `size` events at most."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pieces: deque[tuple[list[Any], J]] = deque()
        self._held = 0
        self._room = asyncio.Event()

    async def add(self, events: list[Any], judged: J) -> None:
        """Take them in, after those that came before; waits while there is no room."""
        while self._held and self._held + len(events) > self._size:
            self._room.clear()
            await self._room.wait()
        self._pieces.append((events, judged))
        self._held += len(events)

    def take(self) -> list[tuple[list[Any], J]]:
        """The oldest ones, of at most `size` events together unless one alone has more; nothing where there is nothing."""
        taken: list[tuple[list[Any], J]] = []
        count = 0
        while self._pieces and (not taken or count + len(self._pieces[0][0]) <= self._size):
            taken.append(self._pieces.popleft())
            count += len(taken[-1][0])
        self._held -= count
        self._room.set()
        return taken

    def give_up(self) -> None:
        """Nobody takes any more: whoever waits for room goes on, and finds out why."""
        self._held = 0
        self._room.set()
