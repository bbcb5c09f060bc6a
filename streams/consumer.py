"""Faust's consumer with one costly step less, and without two holes: a message that can be handed on at once is; what a
rebalance throws away is read again; and an offset that the broker did not take is not taken for committed. How long a broker
may hold back an empty answer is a setting of ours.

For each message Faust races "hand it on" against "suspend", "stop" and "crash", with a task for each of the four. Nearly
always the first is done without waiting for anything, and the four tasks cost more than all else that Faust does with it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Coroutine, Generator, Iterable, Mapping
from functools import partial
from typing import Any

from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP
from mode.services import WaitResults


class PromptThread(AIOKafkaConsumerThread):
    """Waits at the broker as long as the transport says."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        # Faust has 1,500 written in it, and hands it to aiokafka's constructor, which only keeps it until `start`.
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = transport.fetch_wait_ms
        return consumer


class PromptConsumer(Consumer):
    """Takes the first step of the first awaitable itself, and races as Faust does only when that one has to wait."""

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return PromptThread(self, loop=self.loop, beacon=self.beacon)

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109 - Faust's own signature
        """As `mode.Service.wait_first`: who came first, with results; `stopped` when the service stops or has crashed."""
        first, *others = coros
        if not inspect.iscoroutine(first) or self._stopped.is_set() or self._crashed.is_set():
            return await super().wait_first(*coros, timeout=timeout)
        try:
            waits_for = first.send(None)
        except StopIteration as done:
            _close(others)
            return WaitResults([first], [done.value], False)
        except BaseException:
            _close(others)
            raise
        return await super().wait_first(_resumed(first, waits_for), *others, timeout=timeout)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """As Faust's, and to the beginning where the group has committed nothing yet.

        Faust throws away what it has fetched while a rebalance is under way, and seeks back for it. aiokafka does not move
        where there is no committed offset: the first messages of a partition would be lost without a word.
        """
        found: Mapping[TP, int] = await super().seek_to_committed()
        never = [place for place, offset in found.items() if not offset or offset < 0]
        if never:
            # Not `seek_to_beginning`, which leaves no position for a moment; Faust's watch over partitions trips over that.
            await self._thread.seek_wait(await self._thread.earliest_offsets(*never))
        return found

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        if not await super()._commit(offsets):
            raise _RefusedError
        return True

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:
        """As Faust's, but what the broker refused is not taken for committed.

        It refuses when the generation is over: a rebalance follows, or has just been. That reads the messages again, from
        where the group stands; with the offset of a refused commit in its head Faust would not let them be acknowledged, and
        the group would look behind until the next rebalance, although everything is worked off.
        """
        try:
            done: bool = await super()._commit_offsets(offsets, start_new_transaction)
            return done
        except _RefusedError:
            return False


class _RefusedError(Exception):
    """The broker did not take these offsets."""


class PromptTransport(Transport):
    """aiokafka's transport with that consumer."""

    Consumer = PromptConsumer

    def __init__(self, *args: Any, fetch_wait_ms: int, **kwargs: Any) -> None:
        """`fetch_wait_ms`: how long a broker that has nothing to say may wait for something before it says so."""
        super().__init__(*args, **kwargs)
        self.fetch_wait_ms = fetch_wait_ms


def _close(unbegun: Iterable[Any]) -> None:
    for other in unbegun:
        if inspect.iscoroutine(other):
            other.close()


async def _resumed(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    """The rest of a coroutine that has begun and waits for this future; a task may run it like any other."""
    return await _rest(begun, waits_for)


@types.coroutine
def _rest(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation too belongs to the coroutine
            step = partial(begun.throw, error)
        else:
            step = partial(begun.send, value)
        try:
            waits_for = step()
        except StopIteration as done:
            return done.value
