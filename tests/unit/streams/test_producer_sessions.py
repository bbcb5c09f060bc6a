"""The producer outlives its session: one that refuses everything is replaced, and nothing overtakes what the old one held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, OutOfOrderSequenceNumber

from processors.exceptions import TransientError
from sinks.truth.outbox import Outgoing
from streams import producer as module
from streams.producer import EventProducer
from streams.settings import Settings


class Session:
    """An aiokafka producer as far as it is used; fails as told, at once or when the broker would have answered."""

    made: list[Session]
    diary: list[str]
    start_fails = 0

    def __init__(self, **_options: object) -> None:
        self.at_once: KafkaError | None = None
        self.later: KafkaError | None = None
        self.sent: list[bytes] = []
        Session.made.append(self)

    async def start(self) -> None:
        if Session.start_fails:
            Session.start_fails -= 1
            raise KafkaConnectionError("away")
        Session.diary.append("started")

    async def stop(self) -> None:
        Session.diary.append("stopped")

    async def partitions_for(self, _topic: str) -> set[int]:
        return {0}

    async def send(self, _topic: str, *, value: bytes, **_more: object) -> asyncio.Future[Any]:
        if self.at_once is not None:
            raise self.at_once
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.later is not None:
            future.set_exception(self.later)
        else:
            self.sent.append(value)
            future.set_result(None)
        return future


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> EventProducer:
    Session.made, Session.diary, Session.start_fails = [], [], 0
    monkeypatch.setattr(module, "AIOKafkaProducer", Session)
    return EventProducer(Settings(_env_file=None))


ROW = Outgoing("candidates", "k", "k", b"row")


@pytest.mark.parametrize("when", ["at_once", "later"])
async def test_a_session_that_is_over_is_replaced_after_it_has_let_go(producer: EventProducer, when: str) -> None:
    """Scenario: the broker refuses a batch's sequence number; from then on aiokafka refuses everything.
    We expect: the rows go out with the next attempt, in a new session, begun when the old one had stopped."""
    await producer.start()
    setattr(Session.made[0], when, OutOfOrderSequenceNumber())
    with pytest.raises(TransientError):
        await producer.publish([ROW])
    await producer.publish([ROW])
    assert Session.made[1].sent == [b"row"]
    assert Session.diary == ["started", "stopped", "started"]


async def test_a_gateways_message_begins_a_new_session_too(producer: EventProducer) -> None:
    await producer.start()
    Session.made[0].later = OutOfOrderSequenceNumber()
    with pytest.raises(KafkaError):
        await (await producer.send("turns", "k", b"lost"))
    await asyncio.sleep(0)
    await (await producer.send("turns", "k", b"turn"))
    assert Session.made[1].sent == [b"turn"]


@pytest.mark.parametrize("error", [KafkaTimeoutError(), KafkaConnectionError("away")])
async def test_a_broker_that_is_away_does_not_end_a_session(producer: EventProducer, error: KafkaError) -> None:
    """A new session would forget which messages the old one may yet deliver."""
    await producer.start()
    Session.made[0].later = error
    with pytest.raises(TransientError):
        await producer.publish([ROW])
    Session.made[0].later = None
    await producer.publish([ROW])
    assert (len(Session.made), Session.diary) == (1, ["started"])


async def test_while_no_new_session_can_begin_it_is_tried_again(producer: EventProducer) -> None:
    await producer.start()
    Session.made[0].later = OutOfOrderSequenceNumber()
    with pytest.raises(TransientError):
        await producer.publish([ROW])
    Session.start_fails = 2
    for _ in range(2):
        with pytest.raises(TransientError, match="no broker answers"):
            await producer.publish([ROW])
    await producer.publish([ROW])
    assert Session.made[-1].sent == [b"row"]


async def test_two_that_find_the_session_over_begin_one_new_one(producer: EventProducer) -> None:
    await producer.start()
    Session.made[0].later = OutOfOrderSequenceNumber()
    with pytest.raises(TransientError):
        await producer.publish([ROW])
    await asyncio.gather(producer.publish([ROW]), producer.publish([ROW]))
    assert len(Session.made) == 2


async def test_a_stopped_producer_begins_nothing(producer: EventProducer) -> None:
    await producer.start()
    await producer.stop()
    with pytest.raises(TransientError, match="not started"):
        await producer.publish([ROW])
