"""Grouping: what has arrived in a stream, in lists of a bounded size."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any


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
