"""An offset that the broker refused is not taken for committed: it goes with the next commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from faust.types import TP

from streams.consumer import PromptConsumer

PLACE, OTHER, LOST = TP("deadletters", 1), TP("deadletters", 2), TP("deadletters", 3)


class Thread:
    """Stands for Faust's thread around aiokafka, and through it for a broker that refuses as often as told."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.committed: list[dict[TP, int]] = []

    async def commit(self, offsets: Mapping[TP, int]) -> bool:
        if self.refusals:
            self.refusals -= 1
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
        _attachments=SimpleNamespace(publish_for_tp_offset=AsyncMock(return_value=[])),
    )
    made.in_transaction = False
    made.assignment = lambda: {PLACE, OTHER}
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


@pytest.mark.parametrize("committed", [{PLACE: 100}, {}], ids=["goes on", "the group's first commit"])
async def test_what_was_refused_is_committed_next_time(committed: dict[TP, int]) -> None:
    """Scenario: the broker refuses twice, since it has begun a rebalance that this worker does not know of yet.
    We expect that the worker does not think it is done, and that the third commit brings everything."""
    thread = Thread(refusals=2)
    it = consumer(thread, {PLACE: range(100, 126)}, committed)
    for _ in range(2):
        assert not await commit(it)
        assert it._committed_offset[PLACE] == committed.get(PLACE)
    assert await commit(it)
    assert thread.committed == [{PLACE: 126}]
    assert it._committed_offset[PLACE] == 126
    assert not await commit(it), "there is nothing left to commit"


async def test_what_is_done_meanwhile_goes_with_it() -> None:
    thread = Thread(refusals=1)
    it = consumer(thread, {PLACE: range(100, 110), OTHER: range(5, 7)}, {PLACE: 100, OTHER: 5})
    await commit(it)
    it._acked[PLACE] += [110, 111, 113]
    it._acked_index[PLACE] |= {110, 111, 113}
    assert await commit(it)
    assert thread.committed == [{PLACE: 112, OTHER: 7}]
    assert it._acked[PLACE] == [113], "not across a message that is not done"


async def test_what_belongs_to_somebody_else_by_now_is_let_go() -> None:
    thread = Thread(refusals=1)
    it = consumer(thread, {PLACE: range(100, 110), LOST: range(3)}, {PLACE: 100})
    await commit(it)
    assert not it._acked[LOST]


async def test_where_the_group_is_further_by_now_nothing_goes_back() -> None:
    """Scenario: between the refusal and the next commit the rebalance told that another worker has come further."""
    thread = Thread(refusals=1)
    it = consumer(thread, {PLACE: range(100, 110)}, {PLACE: 100})

    async def further(offsets: Mapping[TP, int]) -> bool:
        it._committed_offset[PLACE] = 150
        return False

    thread.commit = further  # type: ignore[method-assign]
    await commit(it)
    assert not it._acked[PLACE]
