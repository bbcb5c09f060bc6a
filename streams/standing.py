"""Standing: the offset that each stage expects next in each partition, so that a jump, which is a loss, is loud."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from processors.exceptions import FatalError
from streams.metrics import Metrics

log = logging.getLogger("memriver.delivery")


class Placed(Protocol):
    """Anything that has a place in a log."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class Standing:
    """Where every stage of this process stands. The stages' topics have no compaction and no transactions."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._next_offset: dict[tuple[str, str, int], int] = {}
        self._done_by_the_group: dict[tuple[str, str, int], int] = {}
        self._asking: dict[str, asyncio.Event] = {}
        self._untouched: set[tuple[str, str, int]] = set()

    def assigned(self, stage: str, partitions: set[int]) -> None:
        """These partitions are the stage's now.

        One that it held before keeps its position: messages of it may still be in our hands, beyond what is committed. One
        that it does not hold any more loses it, since others go on there.
        """
        for key in [key for key in self._next_offset if key[0] == stage and key[2] not in partitions]:
            del self._next_offset[key]
        for key in [key for key in self._done_by_the_group if key[0] == stage]:
            del self._done_by_the_group[key]

    def expect(self, stage: str, topic: str, partition: int, offset: int) -> None:
        """The group stands here: the first message of a partition that is new to us has this offset (or an earlier one).

        What lies before it was done by somebody. A worker that was paused longer than its session comes back to
        partitions that it never saw go, and that others have been working on.
        """
        key = (stage, topic, partition)
        self._done_by_the_group[key] = offset
        if key not in self._next_offset:
            self._next_offset[key] = offset
            self._untouched.add(key)

    def ask(self, stage: str) -> None:
        """A rebalance is under way: where the group stands is being asked, and a jump means nothing before `told`."""
        self._asking.setdefault(stage, asyncio.Event())

    def told(self, stage: str) -> None:
        """Every `expect` of this rebalance was given."""
        answered = self._asking.pop(stage, None)
        if answered is not None:
            answered.set()

    async def check(self, stage: str, messages: Sequence[Placed]) -> None:
        """Take note of what was handed out, in order.

        Raises:
            FatalError: messages were lost while this process was reading.
        """
        for message in messages:
            # Faust hands out messages again before its signal of the rebalance has been heard to the end.
            while self._has_jumped(stage, message) and (asking := self._asking.get(stage)) is not None:
                await asking.wait()
            self._note(stage, message)

    def _has_jumped(self, stage: str, message: Placed) -> bool:
        key = (stage, message.topic, message.partition)
        expected = self._next_offset.get(key)
        return expected is not None and message.offset > max(expected, self._done_by_the_group.get(key, 0))

    def _note(self, stage: str, message: Placed) -> None:
        key = (stage, message.topic, message.partition)
        jumped, expected = self._has_jumped(stage, message), self._next_offset.get(key)
        self._next_offset[key] = message.offset + 1
        untouched = key in self._untouched
        self._untouched.discard(key)
        if expected is None or not jumped:
            return
        missing = message.offset - expected
        what = f"{message.topic}:{message.partition} lost {missing} messages before offset {message.offset}"
        self._metrics.lost.labels(stage, message.topic).inc(missing)
        if not untouched:
            raise FatalError(what)
        # They were gone before we came: ending the process again and again would bring none of them back.
        log.critical("%s: %s while nobody of this group was reading", stage, what)
