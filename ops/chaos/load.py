"""Chaos, the gateway: sends what people say at a steady pace, again after a lost answer, and keeps the log of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable

from aiokafka.errors import KafkaError

from ops.chaos.lines import Line
from ops.chaos.talk import Talk
from processors.exceptions import TransientError
from streams.producer import EventProducer
from streams.settings import Settings

MAX_OPEN = 500
"""Messages without an answer; beyond that the gateway waits, as one with a bounded buffer would."""


class Load:
    """`produced` is every message that was handed to the broker, `acknowledged` the bytes of those that it said it has.

    `resent`: how often an answer did not come, by error.
    """

    def __init__(self, settings: Settings, seed: int, people: int, *, visible: Callable[[str], bool]) -> None:
        self._producer = EventProducer(settings)
        self._talk = Talk(seed, people, visible=visible, acknowledged=lambda line: line.raw in self.acknowledged)
        self._rng = random.Random(seed)
        self._open = 0
        self._answers: set[asyncio.Task[None]] = set()
        self.produced: list[Line] = []
        self.acknowledged: set[bytes] = set()
        self.resent: Counter[str] = Counter()

    async def start(self) -> None:
        """Connect; raises TransientError while no broker answers."""
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._producer.stop()

    async def run(self, rate: float, seconds: float) -> None:
        """Talk for that long, at that many messages a second, as far as the broker keeps up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        due = 0
        while (gone := loop.time() - began) < seconds:
            while due < gone * rate and self._open < MAX_OPEN:
                lines = self._talk.next()
                due += len(lines) or 1
                await self._send(lines)
            if self._open >= MAX_OPEN:
                # What could not be said in time is not said later, all at once.
                due = int((loop.time() - began) * rate)
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Last words, and every answer awaited."""
        await self._send(self._talk.closing())
        await self.answered()

    async def replay(self, count: int) -> None:
        """The first so many messages once more, in their order: a gateway that lost its place."""
        await self._send(self.produced[:count])
        await self.answered()

    async def answered(self) -> None:
        """Wait until the broker has everything."""
        while self._answers:
            await asyncio.gather(*self._answers)

    async def _send(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.produced.append(line)
            self._open += 1
            task = asyncio.create_task(self._until_acknowledged(line, await self._queued(line)))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _queued(self, line: Line) -> asyncio.Future[object]:
        while True:
            try:
                return await self._producer.send(line.topic, line.key, line.raw)
            except (KafkaError, TransientError) as error:
                self._lost(line, error)
                await asyncio.sleep(0.5)

    async def _until_acknowledged(self, line: Line, future: asyncio.Future[object]) -> None:
        while True:
            try:
                await future
            except (KafkaError, TransientError) as error:
                self._lost(line, error)
                await asyncio.sleep(0.5)
                future = await self._queued(line)
                continue
            self._open -= 1
            self.acknowledged.add(line.raw)
            return

    def _lost(self, line: Line, error: Exception) -> None:
        """Its answer did not come: it goes again, and may then be there twice, or after what was said later."""
        self.resent[type(error).__name__] += 1
        self.produced.append(line.sent_again())
