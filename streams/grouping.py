"""Grouping: what has arrived in a stream, in lists of a bounded size."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any


async def groups(
    events: AsyncIterator[Any],
    size: int,
    linger: float,
    *,
    before: Callable[[], asyncio.Future[Any] | None] = lambda: None,
) -> AsyncIterator[list[Any]]:
    """Lists of what has arrived: at most `size`, waiting at most `linger` seconds for one more.

    `before` is the work on an earlier group that this one would have to wait for anyway: until it is done, a list that is not
    full takes in what arrives. Closed earlier it would wait all the same, and what came after it would wait for both.

    One task reads ahead, no further than one group: a task per message would cost more than the message.
    """
    arrived: deque[Any] = deque()
    news, room, enough = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for event in events:
            arrived.append(event)
            news.set()
            if len(arrived) >= size:
                enough.set()
                room.clear()
                await room.wait()

    def over(_done: asyncio.Future[Any]) -> None:
        news.set()
        enough.set()

    reader = asyncio.ensure_future(read())
    reader.add_done_callback(over)
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
            ahead = before()
            if ahead is not None and len(arrived) < size and not reader.done() and not ahead.done():
                enough.clear()
                ahead.add_done_callback(lambda _done: enough.set())
                await enough.wait()
            group = [arrived.popleft() for _ in range(min(size, len(arrived)))]
            room.set()
            yield group
    finally:
        reader.cancel()
