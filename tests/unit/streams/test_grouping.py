"""Grouping: nothing is left out or reordered, and no list is longer than it may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from streams.grouping import Ready, groups, is_little


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


async def test_what_is_ready_is_taken_in_order_and_never_more_than_its_size() -> None:
    ready: Ready[str] = Ready(5)
    for events, judged in (([1, 2], "a"), ([3], "b"), ([4, 5], "c")):
        await ready.add(events, judged)
    waits = asyncio.ensure_future(ready.add([6, 7], "d"))
    await asyncio.sleep(0)
    assert ready.take() == [([1, 2], "a"), ([3], "b"), ([4, 5], "c")]
    await waits
    await ready.add([8, 9], "e")
    assert ready.take() == [([6, 7], "d"), ([8, 9], "e")]
    assert ready.take() == []


async def test_a_list_that_is_larger_than_all_room_goes_alone() -> None:
    ready: Ready[str] = Ready(2)
    await ready.add([1, 2, 3], "a")
    waits = asyncio.ensure_future(ready.add([4], "b"))
    await asyncio.sleep(0)
    assert not waits.done(), "it is full"
    assert ready.take() == [([1, 2, 3], "a")]
    await waits
    assert ready.take() == [([4], "b")]


async def test_who_waits_for_room_goes_on_when_nobody_takes_any_more() -> None:
    ready: Ready[str] = Ready(1)
    await ready.add([1], "a")
    waits = asyncio.ensure_future(ready.add([2], "b"))
    await asyncio.sleep(0)
    ready.give_up()
    await asyncio.wait_for(waits, 5)


def test_little_is_few_messages_and_few_bytes() -> None:
    assert is_little([b"x" * 100] * 8)
    assert is_little([None, b""])
    assert not is_little([b"x"] * 9)
    assert not is_little([b"x" * 20_000])
