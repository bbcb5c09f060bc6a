"""Tests, doubles: the river in one process, whose workers die or fall asleep at any step, over a log with positions."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any

import orjson
from sqlalchemy import Connection

from processors.batching import BatchLimits
from processors.intake import Intake, Judged
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.ports import ChatModel, ChatReply
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from recall.session import SessionMemory
from schemas import Turn, digest
from sinks.embedders import make_embedder
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from sinks.vectors import Point, StoredPoint, Tombstone
from sinks.vectors.collection import OneCollection
from streams.clock import BatchClock
from streams.delivery import LEFT_BEHIND, Copying, Delivered, Delivery, Message, Stage
from streams.expiry import ExpiryClock
from streams.extraction import RawReply
from streams.metrics import Metrics
from streams.outflow import Outflow
from streams.projection import VectorProjection
from streams.stages.bury import BuryStage
from streams.stages.extract import ExtractStage, ModelChannel
from streams.stages.feedback import FeedbackStage
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from streams.summaries import SummaryClock
from streams.vectors import comparison
from tests.doubles.log import Stream
from tests.doubles.model_replies import answer, sentences_found
from tests.doubles.sealing import sealer

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PARTITIONS = 2
STEPS = (
    "judging",
    "in the transaction",
    "committed, nothing to publish",
    "committed, vectors not written",
    "vectors written, nothing published",
    "half published",
    "published, not acknowledged",
    "half acknowledged",
    "acknowledged, position not committed",
    "acknowledged, published rows not deleted",
)
"""The arrows of the commit order: the process is gone here, after one step and before the next."""
MODEL_STEPS = ("attempt counted, model not asked", "model answered, answer not kept")
STAGES = ("ingest", "clock", "extract", "feedback", "candidates", "commands", "expiry", "bury", "summaries")
_GROUPS = {"ingest": "ingest", "extract": "extract", "candidates": "resolve", "feedback": "feedback", "bury": "bury"}
_LATER = {"clock": timedelta(seconds=31)}
"""How much later than `NOW` a timer looks: the batch clock after the age at which it closes."""


class Died(BaseException):
    """The process is gone; nothing may catch it."""


@dataclass(slots=True)
class Fate:
    """Strikes once: the `nth` time that `stage` comes to `step`, its process dies there, or falls asleep if it `sleeps`.

    `stage` "" is any. After a death every further step of the process dies too, so that nothing is done by ghosts.
    """

    stage: str = ""
    step: str = ""
    nth: int = 1
    sleeps: bool = False
    struck: bool = False
    dead: bool = False
    steps: list[tuple[str, str]] = field(default_factory=list)
    asleep: threading.Event = field(default_factory=threading.Event)
    woken: threading.Event = field(default_factory=threading.Event)
    _reached: Counter[str] = field(default_factory=Counter)

    def meet(self, stage: str, step: str) -> bool:
        """Come to a step; True if this is where to fall asleep."""
        if self.dead:
            raise Died
        self.steps.append((stage, step))
        if step != self.step or self.stage not in ("", stage) or self.struck:
            return False
        self._reached[stage] += 1
        if sum(self._reached.values()) != self.nth:
            return False
        self.struck = True
        if not self.sleeps:
            self.dead = True
            raise Died
        self.asleep.set()
        return True


@dataclass(slots=True)
class Log:
    """Topics in partitions, and how far each consumer group has committed. `now` is the producers' clock."""

    records: defaultdict[tuple[str, int], list[Outgoing]] = field(default_factory=lambda: defaultdict(list))
    times: defaultdict[tuple[str, int], list[datetime]] = field(default_factory=lambda: defaultdict(list))
    now: datetime = NOW
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Append all of them, each to its key's partition."""
        for item in messages:
            place = (item.topic, zlib.crc32(item.partition_key.encode()) % PARTITIONS)
            self.records[place].append(item)
            self.times[place].append(self.now)

    def unread(self, group: str, topic: str) -> list[Message]:
        """What the group has not committed, partition by partition in turn."""
        found: list[Message] = []
        for partition in range(PARTITIONS):
            start = self.committed.get((group, topic, partition), 0)
            for number, row in enumerate(self.records[topic, partition][start:], start):
                at = self.times[topic, partition][number]
                found.append(Message(topic, partition, number, row.key.encode(), row.payload, at.timestamp()))
        return sorted(found, key=lambda item: (item.offset, item.partition))

    def of(self, topic: str) -> list[Outgoing]:
        """Everything ever published to a topic, partition by partition."""
        return [row for partition in range(PARTITIONS) for row in self.records[topic, partition]]

    def compacted(self, topic: str) -> dict[str, bytes | None]:
        """What a compacted topic keeps in the end: the last message of each key."""
        return {row.key: row.payload for row in self.of(topic)}

    @property
    def mark(self) -> tuple[int, int]:
        """Changes whenever anything is published or committed."""
        return sum(map(len, self.records.values())), sum(self.committed.values())


@dataclass(slots=True)
class Vectors:
    """A vector store with the version fence and nothing else."""

    points: dict[str, tuple[int, str]] = field(default_factory=dict)

    def upsert(self, points: Sequence[Point]) -> None:
        """Higher versions win."""
        for point in points:
            if self.points.get(point.id, (0, ""))[0] < point.version:
                self.points[point.id] = (point.version, point.status)

    def delete(self, tombstones: Sequence[Tombstone]) -> None:
        """As the higher version."""
        for tombstone in tombstones:
            if self.points.get(tombstone.id, (0, ""))[0] <= tombstone.version:
                self.points[tombstone.id] = (tombstone.version, "deleted")

    def get(self, ids: Sequence[str]) -> list[StoredPoint]:
        """What is there, without payload."""
        return [StoredPoint(key, *self.points[key], {}) for key in ids if key in self.points]


def model_reply(user: str) -> str:
    """What the double's rule finds. `#model:prose` in a turn: nothing that anybody could read."""
    return "It was a pleasant talk." if "#model:prose" in user else answer(sentences_found(user))


@dataclass(slots=True)
class World:
    """What outlives a process: database, log, vectors, the wall clock, and the model: as `reply` says, or another one."""

    truth: Truth
    log: Log = field(default_factory=Log)
    vectors: Vectors = field(default_factory=Vectors)
    reply: Callable[[str], str] = model_reply
    model: ChatModel | None = None
    now: datetime = NOW

    async def say(self, *payloads: bytes | tuple[str, bytes], topic: str = "turns") -> None:
        """Publish these, each under its own conversation's or owner's key if it can be read; or (key, payload)."""
        for payload in payloads:
            key, raw = payload if isinstance(payload, tuple) else (key_of(payload, topic), payload)
            await self.log.publish([Outgoing(topic, key, key, raw)])


def key_of(payload: bytes, topic: str) -> str:
    """The key that a gateway gives a message."""
    try:
        body = orjson.loads(payload)
        if topic == "turns":
            return Turn.model_validate(body).conversation_key
        return digest(body["tenant"], body.get("owner_kind", "user"), body["owner"])
    except (ValueError, KeyError, TypeError):
        return "unreadable"


class MortalTruth(Truth):
    """The same engine, for one process: a transaction may be where it ends."""

    def __init__(self, truth: Truth, meet: Callable[[str], None]) -> None:
        super().__init__(truth.engine)
        self._meet = meet

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that is open when death comes is rolled back."""
        with super().begin() as connection:
            yield connection
            self._meet("in the transaction")


class MortalOutflow(Outflow):
    """The real order of vectors and broker over doubles of both."""

    def __init__(self, process: Process) -> None:
        collection = OneCollection(process.world.vectors, EMBEDDER)  # type: ignore[arg-type]  # the three methods it uses
        projection = VectorProjection(collection)
        super().__init__(self, projection, process.executor, truth=process.truth)  # type: ignore[arg-type]  # of the producer `publish` alone
        self._process = process

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """As `EventProducer.publish`."""
        await self._process.come_to("vectors written, nothing published")
        half = len(messages) // 2
        await self._process.world.log.publish(messages[:half])
        await self._process.come_to("half published")
        await self._process.world.log.publish(messages[half:])


class MortalDelivery(Delivery):
    """The real delivery; what comes before and after a group's outflow may be the end."""

    def __init__(self, process: Process, outflow: Outflow, **given: Any) -> None:
        super().__init__(process.truth, _Published(process, outflow), process.executor, process.metrics, **given)
        self._process = process

    async def judged(self, messages: Sequence[Message], stage: Stage[Any]) -> Any:
        """In a thread, where one that falls asleep does not take the other process of this loop with it."""
        return await self.in_thread(self._judge, messages, stage)

    async def flush(self, stage: str, rows: Sequence[Outgoing], copies: Sequence[Outgoing] = ()) -> None:
        """Between commit and acknowledgement, also of a group that publishes nothing."""
        await self._process.come_to("committed, vectors not written" if rows else "committed, nothing to publish")
        await super().flush(stage, rows, copies)

    async def taken_over(self, group: str) -> None:
        """All partitions are ours, and what their last owner left is out."""
        self.assigned(group, set(range(PARTITIONS)))
        await asyncio.gather(*self._drains)


class _Published:
    def __init__(self, process: Process, outflow: Outflow) -> None:
        self._process, self._outflow = process, outflow

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        await self._outflow.flush(messages)
        await self._process.come_to("published, not acknowledged")


class Watched:
    """A stage that may die or sleep while it judges."""

    def __init__(self, inner: Stage[Any], process: Process) -> None:
        self.name, self.topic = inner.name, inner.topic
        self._inner, self._process = inner, process

    def prepare(self, message: Message) -> Any:
        self._process.come_to_in_thread("judging")
        return self._inner.prepare(message)

    def commit(self, connection: Connection, group: Sequence[Delivered[Any]], now: datetime) -> list[Outgoing]:
        return self._inner.commit(connection, group, now)

    def copies(self) -> list[Outgoing]:
        return self._inner.copies() if isinstance(self._inner, Copying) else []


class Model:
    """Answers as its world does."""

    name = "double-1"

    def __init__(self, process: Process) -> None:
        self._process = process

    async def complete(self, system: str, user: str, *, max_tokens: int) -> ChatReply:
        """One answer."""
        await self._process.come_to("attempt counted, model not asked")
        text = self._process.world.reply(user)
        await self._process.come_to("model answered, answer not kept")
        return ChatReply(text, "stop", self.name, 100, 50)


class Process:
    """One worker from start to quiet, or to its end. Expelled from its groups, its positions are taken no more."""

    def __init__(self, world: World, fate: Fate | None = None, *, group_size: int = 4, batch_turns: int = 5) -> None:
        self.world, self.fate = world, fate or Fate()
        self.expelled = False
        self.executor = ThreadPoolExecutor(1)
        self.metrics = Metrics()
        self.truth = MortalTruth(world.truth, self.come_to_in_thread)
        self._stage, self._later = "", timedelta()
        self.delivery = MortalDelivery(
            self,
            MortalOutflow(self),
            now=self._now,
            group_size=group_size,
            linger_seconds=0.0,
            on_fatal=_fatal,
        )
        limits = BatchLimits(max_turns=batch_turns)
        nearest = Nearest(comparison(EMBEDDER))
        self._streams: dict[str, Stage[Any]] = {
            "ingest": IngestStage(intake(), limits, self.metrics, sealer()),
            "candidates": ResolveStage("candidates", nearest, self.metrics, behind=1),
            "commands": ResolveStage("commands", nearest, self.metrics, behind=1),
            "feedback": FeedbackStage(gate(), rules(), self.metrics, lambda: EMBEDDER.model),
            "bury": BuryStage(),
        }
        channel = ModelChannel(world.model or Model(self), _free)
        self._extract = ExtractStage(self.truth, self.delivery, gate(), self.metrics, channel, attempts=5)
        self._clock = BatchClock(self.delivery, limits, self.metrics)
        self._expiry = ExpiryClock(self.delivery)
        memory = SessionMemory(self.truth, mask=lambda text: text, now=self._now)
        self._summaries = SummaryClock(self.delivery, self.truth, memory, rng=Random(1))
        self._timers: Mapping[str, Callable[[], Awaitable[object]]] = {
            "clock": self._clock.close_due,
            "expiry": self._expiry.tick,
            "summaries": self._summaries.sweep,
        }

    async def live(self, stages: Sequence[str] = STAGES) -> None:
        """From start to quiet.

        Raises:
            Died: it was the process's fate.
        """
        before = asyncio.all_tasks()
        try:
            await self.begin()
            mark = None
            while mark != self.world.log.mark and not self.expelled:
                mark = self.world.log.mark
                for stage in stages:
                    if not self.expelled:
                        await self.work(stage)
            await self.delivery.settle()
        finally:
            await self.end(asyncio.all_tasks() - before - {asyncio.current_task()})

    async def begin(self) -> None:
        """Join the groups: what earlier owners left goes out."""
        for self._stage, name in _GROUPS.items():
            await self.delivery.taken_over(name)
        for name in ("clock", "expiry"):
            await self._left_behind(name)

    async def work(self, stage: str, *, partition: int | None = None, count: int | None = None) -> None:
        """Let one stage do what there is to do: all of it, or so many messages of one partition."""
        self._stage = stage
        reading = self._streams.get(stage)
        if reading is not None:
            stream = self._unread(reading.name, reading.topic, partition, count)
            await self.delivery.run(stream, Watched(reading, self))
        elif stage == "extract":
            stream = self._unread("extract", "batches", partition, count)
            await self.delivery.run_many(stream, "extract", self._extract.handle, size=2, flying=2)
        else:
            await self._timers[stage]()
        await self.come_to("acknowledged, published rows not deleted")

    async def end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """The process is gone, and with it these tasks, which were its own."""
        for task in (left := list(tasks)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.executor.shutdown(wait=True)

    async def _left_behind(self, name: str) -> None:
        self._stage, self._later = name, 4 * LEFT_BEHIND
        await self.delivery.drain(name, older_than=LEFT_BEHIND)
        self._later = timedelta()

    def _unread(self, group: str, topic: str, partition: int | None, count: int | None) -> Stream:
        log = self.world.log
        at_first = dict(log.committed)

        def acknowledge(message: Message) -> None:
            if self.expelled or self.fate.dead:
                return
            log.committed[group, topic, message.partition] = message.offset + 1
            try:
                self._meet("half acknowledged")
                self._meet("acknowledged, position not committed")
            except Died:
                if self.fate.step.startswith("acknowledged"):
                    log.committed = at_first
                raise

        messages = [item for item in log.unread(group, topic) if partition in (None, item.partition)]
        return Stream(messages[:count], on_ack=acknowledge)

    async def come_to(self, step: str) -> None:
        """A step on the event loop."""
        if self._meet(step):
            await asyncio.to_thread(self.fate.woken.wait)

    def come_to_in_thread(self, step: str) -> None:
        """A step in the executor's thread."""
        if self._meet(step):
            self.fate.woken.wait()

    def _meet(self, step: str) -> bool:
        return self.fate.meet(self._stage, step)

    def _now(self) -> datetime:
        return self.world.now + (self._later or _LATER.get(self._stage, timedelta()))


async def to_quiet(world: World, fate: Fate | None = None, **given: Any) -> None:
    """A process works until nothing is left, whatever its fate: then another takes over, with what was not committed.

    One that sleeps is expelled, a successor does all the work, and then the sleeper wakes up and goes on where it was.
    """
    process = Process(world, fate, **given)
    if fate is None or not fate.sleeps:
        try:
            await process.live()
        except Died:
            await Process(world, **given).live()
        return
    task = asyncio.create_task(process.live())
    sleeping = asyncio.create_task(asyncio.to_thread(fate.asleep.wait))
    await asyncio.wait({task, sleeping}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        process.expelled = True
        await Process(world, **given).live()
        fate.woken.set()
    await task
    fate.asleep.set()
    await sleeping
    if not fate.struck:
        fate.asleep.clear()  # another act may bring it
    await Process(world, **given).live()


def _fatal(reason: str) -> None:
    raise AssertionError(reason)


def _free(_reply: RawReply) -> float:
    return 0.0


EMBEDDER = make_embedder("hashing")


@lru_cache(1)
def rules() -> RuleBook:
    """Loaded once."""
    return RuleBook.load()


@lru_cache(1)
def gate() -> PolicyGate:
    """Loaded once."""
    return PolicyGate(PolicySettings(), b"a key for tests only")


class _Remembering(Intake):
    """Judges each turn once: equal turns give equal verdicts, and a matrix judges the same ones again and again."""

    def __init__(self) -> None:
        super().__init__(rules(), NoiseFilter.load(), gate())
        self._judged: dict[bytes, Judged] = {}

    def judge(self, turn: Turn) -> Judged:
        key = turn.to_bytes()
        if key not in self._judged:
            self._judged[key] = super().judge(turn)
        return self._judged[key]


@lru_cache(1)
def intake() -> Intake:
    """Loaded once."""
    return _Remembering()
