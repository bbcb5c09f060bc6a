"""Grouping: nothing is left out or reordered, and no list is longer than it may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from streams.grouping import groups


class Source:
    """Messages that arrive when the test says so."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[int | None] = asyncio.Queue()

    def put(self, *items: int | None) -> None:
        for item in items:
            self._queue.put_nowait(item)

    async def events(self) -> AsyncIterator[int]:
        while (item := await self._queue.get()) is not None:
            yield item


@pytest.mark.parametrize("size", [1, 3, 1_000])
async def test_every_message_once_and_in_order(size: int) -> None:
    source = Source()
    source.put(*range(500), None)
    found: list[int] = []
    async for group in groups(source.events(), size, 0.0):
        assert 1 <= len(group) <= size
        found += group
    assert found == list(range(500))


async def test_the_end_of_the_stream_lets_go_of_what_has_arrived() -> None:
    source = Source()
    made = groups(source.events(), 100, 0.0)
    source.put(1, 2, None)
    assert await anext(made) == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await anext(made)
