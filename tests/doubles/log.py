"""Tests, doubles: a stream as Faust hands it out, with its acknowledgements on record, and a broker that is a list."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sinks.truth.outbox import Outgoing
from streams.delivery import Message


async def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Poll until it holds; the generous deadline is for hangs only."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


def message(offset: int, value: bytes | None, *, topic: str = "turns", partition: int = 0) -> Message:
    """A raw message at this place."""
    return Message(topic, partition, offset, b"key", value, 0.0)


@dataclass(slots=True)
class Event:
    """What an agent's stream yields: a message that wants to be acknowledged."""

    message: Message
    on_ack: Callable[[Message], None]

    def ack(self) -> None:
        """Done with it."""
        self.on_ack(self.message)


class Stream:
    """Yields messages as they are put; `close` ends it. `acked` has the offsets in the order of acknowledgement."""

    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        on_ack: Callable[[Message], None] | None = None,
        open_end: bool = False,
    ) -> None:
        self.acked: list[int] = []
        self._on_ack = on_ack
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        for item in messages:
            self._queue.put_nowait(item)
        if not open_end:
            self.close()

    def put(self, item: Message) -> None:
        """One more has arrived."""
        self._queue.put_nowait(item)

    def close(self) -> None:
        """Nothing more will arrive."""
        self._queue.put_nowait(None)

    def noack(self) -> Stream:
        """As Faust's: acknowledging is the agent's business."""
        return self

    async def events(self) -> AsyncIterator[Event]:
        """The messages, for ever or until closed."""
        while (item := await self._queue.get()) is not None:
            yield Event(item, self._acknowledge)

    def _acknowledge(self, item: Message) -> None:
        if self._on_ack is not None:
            self._on_ack(item)
        self.acked.append(item.offset)


@dataclass(slots=True)
class Broker:
    """Topics as lists of what was published, and how far each consumer group has acknowledged. One partition each."""

    topics: defaultdict[str, list[Outgoing]] = field(default_factory=lambda: defaultdict(list))
    committed: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Append all of them."""
        for item in messages:
            self.topics[item.topic].append(item)

    def unread(self, group: str, topic: str) -> list[Message]:
        """What the group has not acknowledged."""
        start = self.committed[group, topic]
        rows = self.topics[topic][start:]
        return [
            Message(topic, 0, start + number, row.key.encode(), row.payload, 0.0) for number, row in enumerate(rows)
        ]
