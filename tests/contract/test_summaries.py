"""Contract: the summary clock — what is due is summarised unasked, whatever else cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from random import Random
from typing import Any

import pytest

from processors.exceptions import FatalError, TransientError
from processors.session import Summary
from recall.session import SessionMemory
from schemas import digest
from sinks.truth import Truth, sessions, turns
from sinks.truth.outbox import Outgoing
from sinks.truth.turns import Conversation
from streams import summaries
from streams.cli import process
from streams.delivery import Delivery
from streams.metrics import Metrics
from streams.settings import ALL_STAGES
from streams.summaries import SummaryClock
from tests.doubles.records import at, turn, turn_row


class Nowhere:
    """Publishes nothing: a summary is no message."""

    async def flush(self, messages: list[Outgoing]) -> None:
        raise AssertionError(messages)


class House:
    """The clock on a real truth; `fatal` is what ended the process."""

    def __init__(self, truth: Truth, executor: ThreadPoolExecutor) -> None:
        self.truth = truth
        self.fatal: list[str] = []
        delivery = Delivery(truth, Nowhere(), executor, Metrics(), now=_now, on_fatal=self.fatal.append)
        self.memory = SessionMemory(truth, mask=lambda text: text, now=_now)
        self.clock = SummaryClock(delivery, truth, self.memory, rng=Random(1), tick_seconds=0.001)

    def say(self, conversation: str, count: int = 10, **fields: Any) -> None:
        """So many turns of a conversation, as ingest stores them."""
        said = [turn(n, conversation_id=conversation, turn_id=f"{conversation}-{n}") for n in range(1, count + 1)]

        def work(connection: Any) -> None:
            row = Conversation(said[0].conversation_key, "acme", conversation, said[-1].sent_at)
            row.turn_count = count
            turns.save_conversations(connection, [row])
            turns.insert_turns(connection, [turn_row(item, **fields) for item in said])

        self.truth.run(work)

    def summary(self, conversation: str) -> Summary | None:
        """As it is stored."""
        with self.truth.reading() as connection:
            stored = sessions.summary(connection, digest("acme", conversation))
        return stored.summary if stored else None


def _now() -> datetime:
    return at(600)


@pytest.fixture
def house(sqlite_truth: Truth) -> Iterator[House]:
    with ThreadPoolExecutor(2) as executor:
        yield House(sqlite_truth, executor)


async def test_a_conversation_that_is_due_is_summarised_once_and_a_young_one_is_not(house: House) -> None:
    house.say("long")
    house.say("short", 9)
    assert (await house.clock.sweep(), await house.clock.sweep()) == (1, 0)
    made = house.summary("long")
    assert made is not None
    assert (made.turns, house.summary("short")) == (10, None)


async def test_conversations_in_which_nothing_stands_do_not_hold_up_the_others(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario: more of them than one claim takes, all silent for longer. We expect the live one to be summarised."""
    monkeypatch.setattr(summaries, "_CLAIM", 2)
    for number in range(5):
        house.say(f"gone-{number}", 10, reason="retracted")
    house.say("live", 11)
    assert await house.clock.sweep() == 1
    assert house.summary("live") is not None


async def test_two_clocks_leave_one_summary_of_everything(house: House) -> None:
    house.say("c1", 30)
    await asyncio.gather(house.clock.sweep(), house.clock.sweep())
    made = house.summary("c1")
    assert made is not None
    assert made.turns == 30


async def test_a_database_that_is_away_is_asked_again_at_the_next_tick(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.say("c1")
    due, asked = sessions.due, []

    def away_once(*given: Any, **more: Any) -> list[str]:
        asked.append(1)
        if len(asked) == 1:
            raise TransientError("database away or busy (2003)")
        return due(*given, **more)

    monkeypatch.setattr(sessions, "due", away_once)
    running = asyncio.create_task(house.clock.run())
    while house.summary("c1") is None:
        assert not running.done()
        await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert house.fatal == []


async def test_an_error_that_nobody_foresaw_ends_the_process(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.say("c1")

    async def broken(*_given: Any, **_more: Any) -> None:
        raise KeyError("c1")

    monkeypatch.setattr(house.memory, "refresh_key", broken)
    with pytest.raises(FatalError):
        await house.clock.run()
    assert house.fatal == ["summaries: KeyError"]


def test_it_is_a_stage_of_a_service_and_not_of_a_single_run() -> None:
    assert "summaries" in ALL_STAGES
    assert "summaries" not in process._STAGES
