"""The watchdog and an orderly end: what stands still ends its process and says why; what a server holds up is given back."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from processors.exceptions import Outage, TransientError
from sinks.truth import Truth, deadletters
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivery
from streams.ending import Ending
from streams.metrics import Metrics
from streams.progress import Progress
from streams.watchdog import Standstill
from tests.doubles.log import Stream, message, until
from tests.doubles.patient import NOW, Servers, Words, patient

LIMIT = 100.0


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def behind(messages: int) -> list[tuple[str, str, int, int]]:
    return [("resolve", "candidates", 0, messages)]


def busy(since: float, handled: int = 0) -> dict[str, Progress]:
    return {"resolve": Progress(handled=handled, busy_since=since, in_hand=1)}


def test_work_that_stays_in_hand_for_too_long_is_a_standstill() -> None:
    clock = Clock()
    watch = Standstill(LIMIT, clock)
    assert watch.look(busy(clock.at - LIMIT), []) == {}
    assert watch.look(busy(clock.at - LIMIT - 1), []) == {"resolve": "no progress for 101 s with work in hand"}


def test_messages_that_wait_while_the_stage_takes_none_are_a_standstill() -> None:
    """Scenario: the consumer is dead and the process lives: lag grows, nothing is in hand, nothing is finished."""
    clock = Clock()
    watch = Standstill(LIMIT, clock)
    idle = {"resolve": Progress(handled=7)}
    found: dict[str, str] = {}
    for waiting in range(1, 12):
        found = watch.look(idle, behind(waiting * 10))
        clock.at += 10.5
    assert found == {"resolve": "110 messages have waited for 105 s and none was taken"}


def test_a_stage_that_never_took_anything_stands_still_too() -> None:
    clock = Clock()
    watch = Standstill(LIMIT, clock)
    assert watch.look({}, behind(1)) == {}
    clock.at += LIMIT + 1
    assert list(watch.look({}, behind(1))) == ["resolve"]


def test_a_partition_that_is_never_read_from_is_a_standstill() -> None:
    """Scenario: a rebalance never ends; the process has its partitions and no idea of what lies there, so it sees no lag.
    Others of its partitions go on."""
    clock = Clock()
    watch = Standstill(LIMIT, clock)
    assert watch.look({"resolve": Progress(handled=1)}, [], unseen={"resolve"}) == {}
    clock.at += LIMIT + 1
    found = watch.look({"resolve": Progress(handled=2)}, [], unseen={"resolve"})
    assert found == {"resolve": "a partition was assigned 101 s ago and never read from"}


@pytest.mark.parametrize("case", ["read from", "told to wait"])
def test_a_partition_that_is_read_from_after_all_starts_the_clock_anew(case: str) -> None:
    clock = Clock()
    watch = Standstill(LIMIT, clock)
    for look in range(3):
        unseen = set() if case == "read from" and look == 1 else {"resolve"}
        told = {"resolve"} if case == "told to wait" and look == 1 else set()
        assert watch.look({}, [], told, unseen) == {}
        clock.at += LIMIT * 0.9


@pytest.mark.parametrize("case", ["finishes", "no lag", "told to wait"])
def test_a_stage_that_finishes_or_has_nothing_to_do_or_was_told_to_wait_does_not_stand_still(case: str) -> None:
    clock = Clock()
    watch = Standstill(LIMIT, clock)
    for look in range(5):
        state = {"resolve": Progress(handled=look if case == "finishes" else 0)}
        lags = behind(0 if case == "no lag" and look == 2 else 50)
        told = {"resolve"} if case == "told to wait" and look == 2 else set()
        assert watch.look(state, lags, told) == {}
        clock.at += LIMIT * 0.9 if look not in (2, 3) or case == "finishes" else LIMIT * 0.4


async def test_a_server_that_says_not_now_is_no_standstill_however_long_it_says_so(
    truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.delivery._BACKOFF_SECONDS", (0.001,))
    async with patient(truth, stall_seconds=0.2) as stage:
        stage.servers.broken["broker"] = TransientError("away", part="broker", outage=Outage.AWAY)
        stage.put("a")
        for _look in range(30):
            await stage.until(lambda report: report["broker"] == "away")
            assert stage.health.stalled() == {}
            await asyncio.sleep(0.02)


HANGING = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from sinks.truth import Truth, make_engine
from sinks.embedders.hashing import HashingEmbedder
from sinks.vectors.collection import OneCollection
from streams.delivery import Delivery
from streams.health import Health
from streams.metrics import Metrics
from tests.doubles.log import Stream, message
from tests.doubles.patient import NOW, Servers, Words

class Hangs(Servers):
    async def flush(self, messages):
        await asyncio.Event().wait()

async def main():
    truth, servers, metrics = Truth(make_engine(sys.argv[1])), Hangs(), Metrics()
    delivery = Delivery(truth, servers, ThreadPoolExecutor(2), metrics, now=lambda: NOW)
    held = OneCollection(servers, HashingEmbedder())
    runtime = SimpleNamespace(uses_vectors=True, truth=truth, collections=held, producer=servers, delivery=delivery,
                              metrics=metrics, lags=list, unseen=set,
                              settings=SimpleNamespace(stall_seconds=0.2, model_enabled=False))
    stream = Stream([message(0, b"word")], open_end=True)
    await asyncio.gather(delivery.run(stream, Words()), Health(runtime, now=lambda: NOW).watch(0.05))

asyncio.run(main())
"""


def test_a_stage_that_hangs_ends_its_process_with_70_and_says_why_in_one_line(
    truth: Truth, empty_database: Path
) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(truth.engine.url)], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 70
    # How many seconds is the machine's matter.
    assert re.search(r"words: no progress for \d+ s with work in hand; the process ends\n", done.stderr)


async def test_what_is_in_hand_is_finished_and_nothing_new_is_taken_once_the_end_has_begun(
    truth: Truth,
) -> None:
    """Scenario: SIGTERM while a group is being written. We expect it to be acknowledged, and the one behind it not."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Servers):
        async def flush(self, messages: Sequence[Outgoing]) -> None:
            reached.set()
            await go_on.wait()
            await super().flush(messages)

    servers, stream = Slow(), Stream(open_end=True)
    with ThreadPoolExecutor(2) as executor:
        delivery = Delivery(
            truth,
            servers,
            executor,
            Metrics(),
            now=lambda: NOW,
            group_size=1,
            on_fatal=lambda reason: pytest.fail(reason),
        )
        task = asyncio.create_task(delivery.run(stream, Words()))
        stream.put(message(0, b"in hand"))
        await reached.wait()
        delivery.close()
        for offset in (1, 2):
            stream.put(message(offset, b"later"))
        go_on.set()
        await delivery.idle()
        assert stream.acked == [0]
        assert servers.sent == ["in hand"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await delivery.settle()


async def test_what_a_server_holds_up_is_given_back_within_the_time(truth: Truth) -> None:
    """Scenario: SIGTERM while the broker is away. We expect the work to be cut off, not acknowledged, and no dead letter."""
    async with patient(truth) as stage:
        stage.servers.broken["broker"] = TransientError("away", part="broker")
        stage.put("a", "b")
        await until(lambda: bool(stage.delivery.waits))
        stage.delivery.close()
        assert not await Ending(0.3).wait(stage.delivery.idle())
    assert (stage.stream.acked, stage.dead_letters()) == ([], 0)
    with truth.reading() as connection:
        assert deadletters.count(connection) == 0


async def test_each_step_of_the_end_gets_its_share_and_none_holds_up_the_next() -> None:
    ending = Ending(0.2)
    assert not await ending.wait(asyncio.Event().wait(), share=0.5)
    assert await ending.wait(asyncio.sleep(0))
    hangs = threading.Event()
    try:
        assert not await ending.wait(asyncio.to_thread(hangs.wait))
    finally:
        hangs.set()


async def test_a_step_that_fails_does_not_keep_the_others_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("somebody's words")

    ending = Ending(5.0)
    assert await ending.wait(fails())
    assert await ending.wait(asyncio.sleep(0))
    assert "ValueError" in caplog.text
    assert "somebody" not in caplog.text
