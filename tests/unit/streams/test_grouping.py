"""Grouping: nothing is left out or reordered, and a list that has to wait anyway takes in what comes meanwhile."""

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


async def a_moment() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_comes_while_the_last_group_is_at_work_is_one_group() -> None:
    source, work = Source(), asyncio.get_running_loop().create_future()
    made = groups(source.events(), 100, 0.0, before=lambda: work)
    source.put(1)
    following = asyncio.ensure_future(anext(made))
    for number in range(2, 6):
        await a_moment()
        assert not following.done()
        source.put(number)
    await a_moment()
    work.set_result(None)
    assert await following == [1, 2, 3, 4, 5]
    await made.aclose()


async def test_a_full_group_does_not_wait() -> None:
    source, work = Source(), asyncio.get_running_loop().create_future()
    made = groups(source.events(), 3, 0.0, before=lambda: work)
    source.put(1)
    following = asyncio.ensure_future(anext(made))
    await a_moment()
    source.put(2, 3, 4, 5)
    assert await following == [1, 2, 3]
    following = asyncio.ensure_future(anext(made))
    await a_moment()
    work.set_result(None)
    assert await following == [4, 5]
    await made.aclose()


async def test_the_end_of_the_stream_does_not_wait_either() -> None:
    source, work = Source(), asyncio.get_running_loop().create_future()
    made = groups(source.events(), 100, 0.0, before=lambda: work)
    source.put(1)
    following = asyncio.ensure_future(anext(made))
    await a_moment()
    source.put(2, None)
    assert await following == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await anext(made)


async def test_work_that_failed_is_done_too() -> None:
    source, work = Source(), asyncio.get_running_loop().create_future()
    made = groups(source.events(), 100, 0.0, before=lambda: work)
    source.put(1)
    following = asyncio.ensure_future(anext(made))
    await a_moment()
    work.set_exception(ValueError("whoever awaits it deals with it"))
    assert await following == [1]
    with pytest.raises(ValueError, match="deals with it"):
        await work
    await made.aclose()


@pytest.mark.parametrize("size", [1, 3, 1_000])
async def test_every_message_once_and_in_order(size: int) -> None:
    source = Source()
    source.put(*range(500), None)
    found: list[int] = []
    async for group in groups(source.events(), size, 0.0):
        assert 1 <= len(group) <= size
        found += group
    assert found == list(range(500))
