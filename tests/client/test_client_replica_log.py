"""A replica's connection that ends badly is a connection that ended, never the end of the replica."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaTimeoutError
from memriver_client.replica import log as module
from memriver_client.replica.log import Log


class Consumer:
    """As aiokafka's while its broker is away: `stop` lets out the cancellation of a fetch of its own."""

    start_error: Exception | None = None
    stop_error: BaseException = asyncio.CancelledError()

    def __init__(self, **_settings: object) -> None:
        return

    async def start(self) -> None:
        if Consumer.start_error is not None:
            raise Consumer.start_error

    async def stop(self) -> None:
        raise Consumer.stop_error


@pytest.fixture(params=[asyncio.CancelledError(), RuntimeError("already closed")], ids=["cancelled", "broken"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(module, "AIOKafkaConsumer", Consumer)
    monkeypatch.setattr(Consumer, "start_error", None)
    monkeypatch.setattr(Consumer, "stop_error", request.param)
    return Log("memory_updated", {})


async def test_what_ended_the_tail_is_what_is_told(log: Log) -> None:
    with pytest.raises(KafkaTimeoutError):
        async with log:
            raise KafkaTimeoutError


async def test_a_start_that_fails_says_why(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consumer, "start_error", KafkaTimeoutError())
    with pytest.raises(KafkaTimeoutError):
        await log.__aenter__()


async def test_an_end_without_trouble_stays_one(log: Log) -> None:
    async with log:
        pass


async def test_our_own_cancellation_is_still_one(log: Log) -> None:
    async def follow() -> None:
        async with log:
            await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
