"""Unit tests: the consumer's race is Faust's own, whether or not its first awaitable has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from mode import Service

from streams.consumer import PromptConsumer


class Racing(PromptConsumer):
    """The race without a broker: a service and nothing else."""

    def __init__(self) -> None:
        Service.__init__(self)


@pytest.fixture(params=["prompt", "plain"])
def race(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """The race of ours and of Faust, side by side: what one does the other does."""
    service = Racing()
    wait_first = service.wait_first if request.param == "prompt" else super(PromptConsumer, service).wait_first
    yield SimpleNamespace(service=service, wait_first=wait_first)


async def _at_once(value: str) -> str:
    return value


async def _after(event: asyncio.Event, value: str) -> str:
    await event.wait()
    await asyncio.sleep(0)
    return value


async def test_what_needs_not_wait_wins_with_its_result(race: SimpleNamespace) -> None:
    never = asyncio.Event()
    first = _at_once("done")
    found = await race.wait_first(first, never.wait())
    assert not found.stopped
    assert found.done == [first]
    assert found.results == ["done"]


async def test_what_waits_goes_on_where_it_was(race: SimpleNamespace) -> None:
    news, never = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_soon(news.set)
    found = await race.wait_first(_after(news, "later"), never.wait())
    assert found.results == ["later"]


async def test_the_other_may_win_and_the_first_is_cancelled(race: SimpleNamespace) -> None:
    never, suspend, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def first() -> None:
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    suspend.set()
    found = await race.wait_first(first(), suspend.wait())
    assert found.results == [True]
    await asyncio.wait_for(cancelled.wait(), 5)


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_of_the_first_is_raised(race: SimpleNamespace, waits: bool) -> None:
    news, never = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        if waits:
            await news.wait()
        raise LookupError("the first")

    asyncio.get_running_loop().call_soon(news.set)
    with pytest.raises(LookupError, match="the first"):
        await race.wait_first(first(), never.wait())


async def test_a_service_that_stops_says_so(race: SimpleNamespace) -> None:
    race.service._stopped.set()
    found = await race.wait_first(_after(asyncio.Event(), "never"), asyncio.Event().wait())
    assert found.stopped
