"""The expiry clock: what it ends cannot be undone, so a worker whose clock has jumped ahead must not end anything early."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from schemas import Command, CommandKind, digest
from sinks.truth import Truth, memories, outbox
from sinks.truth.clock import database_time
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivery
from streams.expiry import INBOX_KEPT, ExpiryClock
from streams.metrics import Metrics
from streams.topics import declared
from tests.doubles.records import memory


class Sent:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        self.commands += [Command.from_bytes(item.payload or b"") for item in messages]


def tick(truth: Truth, now: datetime) -> list[str | None]:
    """Which memories a worker ends whose clock says `now`."""
    sent = Sent()

    async def once() -> None:
        with ThreadPoolExecutor(1) as executor:
            delivery = Delivery(truth, sent, executor, Metrics(), now=lambda: now)
            await ExpiryClock(delivery).tick()
            await delivery.settle()

    asyncio.run(once())
    assert all(command.kind is CommandKind.EXPIRE for command in sent.commands)
    return [command.memory_id for command in sent.commands]


@pytest.fixture
def today() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def test_the_database_has_a_clock(truth: Truth, today: datetime) -> None:
    with truth.reading() as connection:
        assert abs(database_time(connection) - today) < timedelta(minutes=5)


def test_what_is_over_ends_and_what_is_not_stays_when_the_clock_has_jumped(truth: Truth, today: datetime) -> None:
    over = memory("over", expires_at=today - timedelta(hours=1))
    lasts = memory("lasts", expires_at=today + timedelta(days=20))
    truth.run(
        lambda connection: memories.save(
            connection, [(item, digest("slot"), digest(item.id)) for item in (over, lasts)]
        )
    )
    assert tick(truth, today + timedelta(hours=900)) == [over.id]
    assert tick(truth, today - timedelta(hours=900)) == [], "one whose clock is behind ends them later"


def test_nothing_that_can_come_again_is_forgotten(truth: Truth, today: datetime) -> None:
    ages = {"young": timedelta(days=1), "old": INBOX_KEPT + timedelta(days=1)}
    for name, age in ages.items():
        truth.run(lambda connection, name=name, age=age: outbox.receive(connection, "resolve", [name], today - age))
    tick(truth, today + timedelta(days=400))
    with truth.reading() as connection:
        assert outbox.seen(connection, "resolve", ages) == {"young"}


def test_the_inbox_remembers_longer_than_any_topic_of_the_stages() -> None:
    for spec in declared():
        kept, segment = int(spec.config.get("retention.ms", "0")), int(spec.config.get("segment.ms", "0"))
        if spec.name != "turns.sealed":  # kept for ever, and read by replays, which have an inbox of their own
            assert kept >= 0, spec.name
            assert timedelta(milliseconds=kept + segment) < INBOX_KEPT, spec.name
