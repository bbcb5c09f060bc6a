"""Delivery, copies: what a stage copies is out before the group is acknowledged, as often as the group is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from processors.exceptions import TransientError
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivered, Delivery, Message
from streams.metrics import Metrics
from tests.doubles.log import Stream, message


class Copier:
    """Copies what it is given and changes nothing."""

    name = "ingest"
    topic = "turns"

    def __init__(self) -> None:
        self._last: list[bytes] = []

    def prepare(self, message: Message) -> bytes:
        return message.value or b""

    def commit(self, connection: Connection, group: Sequence[Delivered[bytes]], now: datetime) -> list[Outgoing]:
        self._last = [item.item for item in group]
        return []

    def copies(self) -> list[Outgoing]:
        return [Outgoing("turns.sealed", "k", "k", item) for item in self._last]


class Sink:
    """Refuses the first `away` times, then keeps what it is given."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.kept: list[bytes | None] = []

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        if self.away:
            self.away -= 1
            raise TransientError("away", retry_after=0.001)
        self.kept += [item.payload for item in messages]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    url = f"sqlite:///{tmp_path_factory.mktemp('copies') / 't.db'}"
    upgrade(url)
    return Truth(make_engine(url))


async def deliver(truth: Truth, sink: Sink, stream: Stream) -> None:
    with ThreadPoolExecutor(1) as executor:
        delivery = Delivery(truth, sink, executor, Metrics(), now=lambda: datetime.now(UTC), linger_seconds=0.0)
        await delivery.run(stream, Copier())


async def test_copies_are_out_when_the_group_is_acknowledged(truth: Truth) -> None:
    sink = Sink()
    seen: list[tuple[int, int]] = []
    stream = Stream(
        [message(0, b"a"), message(1, b"b")], on_ack=lambda item: seen.append((item.offset, len(sink.kept)))
    )
    await deliver(truth, sink, stream)
    assert sink.kept == [b"a", b"b"]
    assert all(out > offset for offset, out in seen)


async def test_while_the_broker_is_away_nothing_is_acknowledged_and_nothing_is_lost(truth: Truth) -> None:
    sink = Sink(away=3)
    stream = Stream([message(0, b"a")], on_ack=lambda _item: sink.kept.append(b"acknowledged"))
    await deliver(truth, sink, stream)
    assert sink.kept == [b"a", b"acknowledged"]


async def test_a_group_that_comes_again_is_copied_again(truth: Truth) -> None:
    sink = Sink()
    for _delivery in range(2):
        await deliver(truth, sink, Stream([message(0, b"a")]))
    assert sink.kept == [b"a", b"a"]
