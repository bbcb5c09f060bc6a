"""Delivery of slow work: many groups in flight, acknowledged as a finished prefix and never past a hole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from processors.exceptions import FatalError, TransientError
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivery, Message
from streams.metrics import Metrics
from tests.doubles.log import Stream, message, until


class Nowhere:
    """Nothing is published here."""

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        assert not messages


@pytest.fixture
def ends() -> list[str]:
    """Why the process would have ended."""
    return []


@pytest.fixture
def delivery(truth: Truth, executor: ThreadPoolExecutor, ends: list[str], monkeypatch: pytest.MonkeyPatch) -> Delivery:
    monkeypatch.setattr("streams.delivery._BACKOFF_SECONDS", (0.001,))
    return Delivery(
        truth,
        Nowhere(),
        executor,
        Metrics(),
        now=lambda: datetime(2026, 3, 2, tzinfo=UTC),
        linger_seconds=0.0,
        on_fatal=ends.append,
    )


class Calls:
    """Handles a message when its gate is opened; a message can be told to fail."""

    def __init__(self, count: int) -> None:
        self.gates = [asyncio.Event() for _ in range(count)]
        self.begun: list[int] = []
        self.errors: dict[int, list[Exception]] = {}

    async def handle(self, messages: Sequence[Message]) -> None:
        offset = messages[0].offset
        self.begun.append(offset)
        await self.gates[offset].wait()
        if self.errors.get(offset):
            raise self.errors[offset].pop(0)


def numbered(count: int) -> list[Message]:
    return [message(offset, b"x", topic="batches") for offset in range(count)]


async def test_only_a_finished_prefix_is_acknowledged(delivery: Delivery) -> None:
    calls, stream = Calls(4), Stream(numbered(4), open_end=True)
    task = asyncio.create_task(delivery.run_many(stream, "extract", calls.handle, size=1, flying=8))
    await until(lambda: len(calls.begun) == 4)
    calls.gates[2].set()
    calls.gates[1].set()
    await asyncio.sleep(0.02)
    assert stream.acked == [], "0 is still out, so 1 and 2 must wait"
    calls.gates[0].set()
    await until(lambda: stream.acked == [0, 1, 2])
    calls.gates[3].set()
    await until(lambda: stream.acked == [0, 1, 2, 3])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_no_more_than_allowed_are_in_flight(delivery: Delivery) -> None:
    calls, stream = Calls(6), Stream(numbered(6), open_end=True)
    task = asyncio.create_task(delivery.run_many(stream, "extract", calls.handle, size=1, flying=3))
    await until(lambda: len(calls.begun) == 3)
    await asyncio.sleep(0.02)
    assert calls.begun == [0, 1, 2]
    for gate in calls.gates:
        gate.set()
    await until(lambda: stream.acked == list(range(6)))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_that_is_retried_holds_back_those_behind_it(delivery: Delivery) -> None:
    calls, stream = Calls(3), Stream(numbered(3))
    calls.errors[0] = [TransientError("away"), TransientError("away")]
    for gate in calls.gates:
        gate.set()
    await delivery.run_many(stream, "extract", calls.handle, size=1, flying=4)
    assert stream.acked == [0, 1, 2]
    assert calls.begun.count(0) == 3


async def test_an_error_ends_the_process_and_nothing_from_it_on_is_acknowledged(
    delivery: Delivery, ends: list[str]
) -> None:
    calls, stream = Calls(6), Stream(numbered(6))
    calls.errors[1] = [RuntimeError("a bug")]
    for gate in calls.gates:
        gate.set()
    with pytest.raises(FatalError):
        await delivery.run_many(stream, "extract", calls.handle, size=1, flying=2)
    assert ends[0] == "extract: RuntimeError"
    assert stream.acked == [0]


async def test_what_is_cancelled_goes_back_unacknowledged(delivery: Delivery) -> None:
    calls, stream = Calls(2), Stream(numbered(2), open_end=True)
    task = asyncio.create_task(delivery.run_many(stream, "extract", calls.handle, size=1, flying=4))
    await until(lambda: len(calls.begun) == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stream.acked == []
    assert delivery.progress["extract"].busy_since is None
