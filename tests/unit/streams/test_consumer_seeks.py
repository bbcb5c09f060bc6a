"""What Faust fetched and threw away in a rebalance is read again, also where its group has never committed anything."""

from __future__ import annotations

from collections.abc import Mapping

from faust.types import TP

from streams.consumer import PromptConsumer


class Thread:
    """Stands for Faust's thread around aiokafka: tells what is committed, notes what is sought."""

    def __init__(self, committed: Mapping[TP, int | None]) -> None:
        self.committed = committed
        self.sought: dict[TP, int] = {}

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        # aiokafka seeks where the offset is above 0, and says for each partition what is committed.
        return self.committed

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        return {place: 10 * place.partition for place in partitions}

    async def seek_wait(self, offsets: Mapping[TP, int]) -> None:
        self.sought |= offsets


def consumer(committed: Mapping[TP, int | None]) -> tuple[PromptConsumer, Thread]:
    made, thread = PromptConsumer.__new__(PromptConsumer), Thread(committed)
    made._thread = thread
    return made, thread


async def test_where_nothing_was_committed_reading_begins_at_the_beginning() -> None:
    new, fresh, old = TP("candidates", 0), TP("candidates", 1), TP("candidates", 2)
    made, thread = consumer({new: None, fresh: 0, old: 7})
    assert await made.seek_to_committed() == {new: None, fresh: 0, old: 7}
    assert thread.sought == {new: 0, fresh: 10}


async def test_where_something_was_committed_nothing_is_read_twice() -> None:
    made, thread = consumer({TP("candidates", 2): 7})
    await made.seek_to_committed()
    assert thread.sought == {}
