"""An offset that the broker refused is not taken for committed: what is read again can be acknowledged again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from faust.types import TP

from streams.consumer import PromptConsumer

PLACE = TP("deadletters", 1)


class Thread:
    """Stands for Faust's thread around aiokafka, and through it for a broker that refuses the first commit."""

    def __init__(self) -> None:
        self.refused = False
        self.before_refusing: Callable[[], None] = lambda: None
        self.committed: list[dict[TP, int]] = []

    async def commit(self, offsets: Mapping[TP, int]) -> bool:
        if not self.refused:
            self.refused = True
            self.before_refusing()
            return False
        self.committed.append(dict(offsets))
        return True


def consumer(thread: Thread, acked: Mapping[TP, range], committed: Mapping[TP, int]) -> PromptConsumer:
    made: Any = PromptConsumer.__new__(PromptConsumer)
    made._thread = thread
    made.log = MagicMock()
    made.app = SimpleNamespace(
        client_only=False,
        producer=SimpleNamespace(flush=AsyncMock()),
        tables=MagicMock(),
        monitor=MagicMock(),
        topics=SimpleNamespace(acks_enabled_for=lambda _topic: True),
        _attachments=SimpleNamespace(publish_for_tp_offset=AsyncMock(return_value=[])),
    )
    made.in_transaction = False
    made._unacked_messages = set()
    made._waiting_for_ack = None
    made._n_acked = 0
    made.assignment = lambda: {PLACE}
    made._committed_offset = defaultdict(lambda: None, committed)
    made._gap = defaultdict(list)
    made._acked = defaultdict(list, {place: list(offsets) for place, offsets in acked.items()})
    made._acked_index = defaultdict(set, {place: set(offsets) for place, offsets in acked.items()})
    consumer: PromptConsumer = made
    return consumer


async def commit(it: PromptConsumer) -> bool:
    """What Faust does twice a second."""
    done: bool = await it._commit_tps(list(it._acked), start_new_transaction=False)
    return done


def read_again(it: PromptConsumer, place: TP, group_stands_at: int, end: int) -> None:
    """A rebalance after which the partition is still, or again, this worker's, and its messages acknowledged once more."""
    it._committed_offset[place] = group_stands_at
    acknowledge(it, place, range(group_stands_at, end))


def acknowledge(it: PromptConsumer, place: TP, offsets: range) -> None:
    for offset in offsets:
        message = MagicMock(tp=place, topic=place.topic, offset=offset, acked=False)
        it._unacked_messages.add(message)
        it.ack(message)


async def test_what_was_refused_is_acknowledged_again_and_committed() -> None:
    """Scenario: the broker refuses, since it has begun a rebalance that this worker does not know of yet; its answer comes
    when the rebalance is over and the messages are being read again.
    We expect their acknowledgements to count, and the next commit to bring them."""
    it = consumer(thread := Thread(), {PLACE: range(100, 126)}, {PLACE: 100})
    thread.before_refusing = lambda: read_again(it, PLACE, 100, 110)
    assert not await commit(it)
    assert it._committed_offset[PLACE] == 100
    acknowledge(it, PLACE, range(110, 126))
    assert not it._unacked_messages, "a rebalance waits for these"
    assert await commit(it)
    assert thread.committed == [{PLACE: 126}]
    assert not await commit(it), "there is nothing left to commit"


async def test_where_the_group_is_further_by_now_nothing_goes_back() -> None:
    it = consumer(thread := Thread(), {PLACE: range(100, 110)}, {PLACE: 100})
    await commit(it)
    read_again(it, PLACE, 150, 153)
    assert await commit(it)
    assert thread.committed == [{PLACE: 153}]
