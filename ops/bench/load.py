"""Benchmarks, load: production shape on real servers — long tails, a hot owner, bursts — and what it does to everybody else.

The rate is measured first: a share of what this machine takes in is its steady traffic, and a burst is ten times that, so
that the same shape is put on any machine. Half of the conversations are had without the hot owner and half with, in
turns, and the latencies of all the others are compared.

What it must not be, whatever the machine: a fact of which no event came, or work that is left over (`verdict`).
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition

from ops.bench.measure import Bench, alive
from ops.bench.workload import turns as chat
from processors.exceptions import TransientError
from schemas import MemoryUpdated, OwnerKind, Role, Turn, digest
from streams.connection import client_options
from streams.position import committed
from streams.producer import EventProducer
from streams.topics import declared

STAGES = {
    "ingest": ("turns",),
    "extract": ("batches",),
    "resolve": ("candidates", "commands"),
    "bury": ("deadletters",),
}
HOT_SHARE = 0.2
BURST = 10
ROUNDS = 2
"""How often the load goes without and then with the hot owner."""
SEGMENTS = 15
BURSTS = frozenset({7})
"""Segments of each part that come at ten times the rate."""
WITHOUT, WITH = "without the hot owner", "with the hot owner"
STEADY = 0.45
"""Of what the machine takes in: with a burst in fifteen segments the mean is just under three quarters of it."""
OPEN_CONVERSATIONS = 2_000
"""At once; a small load has fewer of them, so that conversations end in it as well."""
LONGEST = 400
TAIL = 1.5
"""One conversation in `n ** TAIL` has more than `n` turns."""
HOT = "hot"
FACT_SHARE = 0.1

STUCK_SECONDS = 300
"""Without less lag than ever before for so long, nothing more is waited for."""
_HEARD_SECONDS = 60
_FACTS = ("记住我的储物柜号码是{n}", "Remember that my desk number is {n}")
_START = datetime(2026, 3, 2, 1, tzinfo=UTC)


class _StuckError(Exception):
    """The lag does not shrink any more."""


Who = Literal["hot", "neighbours", "others"]


@dataclass(slots=True)
class _Talk:
    """One conversation: who talks, and how much is still to be said."""

    number: int
    owner: str
    left: int


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of the load; `fact` says that an event will come of it."""

    turn: Turn
    fact: bool


def lengths(rng: random.Random) -> Iterator[int]:
    """Turns of a conversation: most have two or three, one in a hundred has more than twenty, a few have hundreds."""
    while True:
        yield min(LONGEST, int((1.0 - rng.random()) ** (-1 / TAIL)) + 1)


class Shape:
    """Interleaved conversations, the same for the same seed."""

    def __init__(self, conversations: int, *, seed: int = 11) -> None:
        self._rng = random.Random(seed)
        self._lengths = lengths(self._rng)
        self._owners = max(50, conversations // 4)
        self._words = [turn.text for turn in chat(1_000, facts=0.0)]
        self._most = max(20, min(OPEN_CONVERSATIONS, conversations // 20))
        self._conversation = 0
        self._turn = 0
        self._open: list[_Talk] = []
        self._hot: list[_Talk] = []

    @property
    def begun(self) -> int:
        """Conversations so far."""
        return self._conversation

    def next(self, *, hot: bool) -> Said:
        """One more turn. With `hot` a fifth of them is one owner's."""
        ours = hot and self._rng.random() < HOT_SHARE
        talks, most = (self._hot, 50) if ours else (self._open, self._most)
        if len(talks) < most and (not talks or self._rng.random() < 0.4):
            talks.append(self._begin(HOT if ours else f"u{self._rng.randrange(self._owners)}"))
        place = self._rng.randrange(len(talks))
        talk = talks[place]
        talk.left -= 1
        if not talk.left:
            talks[place] = talks[-1]
            talks.pop()
        return self._say(talk)

    def _begin(self, owner: str) -> _Talk:
        self._conversation += 1
        return _Talk(self._conversation, owner, next(self._lengths))

    def _say(self, talk: _Talk) -> Said:
        self._turn += 1
        fact = self._rng.random() < FACT_SHARE
        text = self._rng.choice(_FACTS).format(n=self._turn) if fact else self._words[self._turn % len(self._words)]
        turn = Turn(
            tenant="bench",
            conversation_id=f"c{talk.number}",
            turn_id=f"t{self._turn}",
            user_id=talk.owner,
            role=Role.USER,
            text=text if fact else f"{text} #{self._turn}",
            sent_at=_START + timedelta(milliseconds=self._turn),
            timezone="Asia/Shanghai",
            conversation_end=not talk.left,
        )
        return Said(turn, fact)


def partition_of(owner: str, partitions: int) -> int:
    """Where an owner's candidates go; as `streams.producer` chooses."""
    return zlib.crc32(digest("bench", OwnerKind.USER, owner).encode()) % partitions


@dataclass(slots=True)
class Run:
    """What is measured while it goes on. Times are `time.perf_counter` seconds."""

    process: psutil.Process
    hot_partition: int
    partitions: int
    part: str = "warm-up"
    published: int = 0
    ended: float = 0.0
    sent: dict[str, tuple[float, str, Who]] = field(default_factory=dict)
    took: defaultdict[tuple[str, Who], list[float]] = field(default_factory=lambda: defaultdict(list))
    lag: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)

    def who(self, owner: str) -> Who:
        if owner == HOT:
            return "hot"
        return "neighbours" if partition_of(owner, self.partitions) == self.hot_partition else "others"


def load(bench: Bench, conversations: int) -> dict[str, Any]:
    """The whole of it; `conversations` is its size (200,000 for an hour's worth of a large installation)."""
    partitions = next(spec.partitions for spec in declared() if spec.name == "candidates")
    with bench.worker("ingest,extract,resolve,clock,bury") as process:
        run = Run(process, partition_of(HOT, partitions), partitions)
        shape, capacity = asyncio.run(_drive(bench, run, conversations))
    report = figures(run, shape, capacity)
    return report | {"wrong": verdict(report)}


async def _drive(bench: Bench, run: Run, conversations: int) -> tuple[Shape, float]:
    shape = Shape(conversations)
    producer = EventProducer(bench.settings)
    await producer.start()
    events = AIOKafkaConsumer(
        bench.settings.topic("memory_updated"), **client_options(bench.settings), auto_offset_reset="earliest"
    )
    await events.start()
    watching = [asyncio.create_task(_listen(events, run)), asyncio.create_task(_watch(bench, run))]
    try:
        capacity = 0.0
        try:
            capacity = await _capacity(bench, producer, shape, run, max(2_000, conversations // 10))
            await _parts(producer, shape, run, capacity, conversations)
        except _StuckError:
            # What was measured until then is worth printing, and the verdict says that work is left over.
            run.ended = run.ended or time.perf_counter()
        return shape, capacity
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await events.stop()
        await producer.stop()


async def _parts(producer: EventProducer, shape: Shape, run: Run, capacity: float, conversations: int) -> None:
    """All of them, until everything is worked through and heard of."""
    for hot in (False, True) * ROUNDS:
        # They are compared, so each begins with nothing left to do; in turns, so that a machine that grows busier with
        # something else does not count against one of them.
        await _drained(run)
        run.part = WITH if hot else WITHOUT
        goal = shape.begun + conversations // (2 * ROUNDS)
        run.published += await _part(producer, shape, run, capacity, goal, hot=hot)
        print(f"  {run.part}: published, {run.memory[-1][1] / 1e6:.0f} MB, {run.lag[-1][1]} behind", file=sys.stderr)
    run.ended = time.perf_counter()
    await _drained(run)
    await _heard(run)


async def _heard(run: Run) -> None:
    """Every event that was published has been read here too, or has had a minute for it."""
    deadline = time.perf_counter() + _HEARD_SECONDS
    while run.sent and time.perf_counter() < deadline:  # noqa: ASYNC110 - somebody else takes them away
        await asyncio.sleep(0.2)


async def _capacity(bench: Bench, producer: EventProducer, shape: Shape, run: Run, count: int) -> float:
    """Turns a second that go all the way while as much as can be is there to do."""
    await _publish(producer, [shape.next(hot=False) for _ in range(count)], run)
    while True:
        alive(run.process)
        if await asyncio.to_thread(bench.stored):
            break
        await asyncio.sleep(0.05)
    started = time.perf_counter()
    await _drained(run)
    return count / (time.perf_counter() - started)


def paces(rate: float, turns: float) -> list[tuple[int, float]]:
    """(turns, turns a second) of each segment of a part with about so many turns: all are as long as each other, and in a
    burst there is ten times as much to do."""
    factors = [BURST if segment in BURSTS else 1 for segment in range(SEGMENTS)]
    return [(round(turns / sum(factors) * factor), rate * factor) for factor in factors]


async def _part(producer: EventProducer, shape: Shape, run: Run, capacity: float, goal: int, *, hot: bool) -> int:
    """Conversations until there are `goal`, in segments; returns how many turns they had."""
    mean = sum(rank**-TAIL for rank in range(1, LONGEST)) + 1
    published = 0
    for segment, (count, pace) in enumerate(paces(STEADY * capacity, (goal - shape.begun) * mean)):
        if segment == SEGMENTS - 1:
            count = 10**9
        started = time.perf_counter()
        for number in range(0, count, 50):
            if shape.begun >= goal:
                return published
            await asyncio.sleep(max(0.0, started + number / pace - time.perf_counter()))
            await _publish(producer, [shape.next(hot=hot) for _ in range(50)], run)
            published += 50
    return published


async def _publish(producer: EventProducer, said: Sequence[Said], run: Run) -> None:
    waits = []
    for item in said:
        if item.fact:
            run.sent[item.turn.turn_id] = (time.perf_counter(), run.part, run.who(item.turn.user_id))
        waits.append(await producer.send("turns", item.turn.conversation_key, item.turn.to_bytes()))
    await asyncio.gather(*waits)


async def _listen(events: AIOKafkaConsumer, run: Run) -> None:
    async for record in events:
        if record.value is None:
            continue
        for turn_id in MemoryUpdated.from_bytes(record.value).cause_turn_ids:
            waited = run.sent.pop(turn_id, None)
            if waited is not None:
                at, part, who = waited
                run.took[part, who].append(time.perf_counter() - at)


async def _watch(bench: Bench, run: Run) -> None:
    """Lag of each stage by its group's offsets, batches without an answer, and the worker's memory, every second."""
    client = AIOKafkaConsumer(**client_options(bench.settings))
    await client.start()
    try:
        while True:
            try:
                behind = {stage: await _behind(bench, client, stage) for stage in STAGES}
            except TransientError:
                # No group has been heard of yet, and so no coordinator.
                await asyncio.sleep(1.0)
                continue
            behind["batches"] = await asyncio.to_thread(bench.open_batches)
            now = time.perf_counter()
            run.lag.append((now, behind))
            run.memory.append((now, run.process.memory_info().rss))
            await asyncio.sleep(1.0)
    finally:
        await client.stop()


async def _behind(bench: Bench, client: AIOKafkaConsumer, stage: str) -> int:
    names = {name: bench.settings.topic(name) for name in STAGES[stage]}
    places = [
        (names[spec.name], number) for spec in declared() if spec.name in names for number in range(spec.partitions)
    ]
    ends = await client.end_offsets([TopicPartition(*place) for place in places])
    done = await committed(bench.settings, bench.settings.group(stage), places)
    return sum(end - done.get((tp.topic, tp.partition), 0) for tp, end in ends.items())


async def _drained(run: Run) -> None:
    """Until every stage's lag is zero, twice in a row.

    Raises:
        _StuckError: it has not shrunk for five minutes.
    """
    least, since, quiet, looks = -1, time.perf_counter(), 0, len(run.lag)
    while quiet < 2:
        await asyncio.sleep(0.2)
        alive(run.process)
        if time.perf_counter() - since > STUCK_SECONDS:
            if not run.lag:
                raise SystemExit("no stage's lag could be found out")
            raise _StuckError
        if len(run.lag) == looks:
            continue
        looks = len(run.lag)
        behind = sum(run.lag[-1][1].values())
        quiet = quiet + 1 if behind == 0 else 0
        if least < 0 or behind < least:
            least, since = behind, time.perf_counter()


def verdict(report: dict[str, Any]) -> list[str]:
    """What is wrong with a load, in words; empty if everything that was said has come of it what should."""
    missing, left = report["facts_without_an_event"], report["lag_at_the_end"]
    wrong = [f"{missing} facts without an event"] if missing else []
    return wrong + [f"{name}: {number} left over" for name, number in left.items() if number]


def figures(run: Run, shape: Shape, capacity: float) -> dict[str, Any]:
    """What is printed of a load."""
    begun = run.lag[0][0]
    lag = [(at - begun, sum(behind.values()), behind) for at, behind in run.lag]
    zero = next((at for at, total, _ in reversed(lag) if total), 0.0)
    step = max(1, len(lag) // 60)
    latency = {
        part: {who: _spread(took) for (of, who), took in sorted(run.took.items()) if of == part}
        for part in (WITHOUT, WITH)
    }
    return {
        "conversations": shape.begun,
        "turns": run.published,
        "capacity_turns_per_second": round(capacity),
        "steady_turns_per_second": round(STEADY * capacity),
        "burst": f"×{BURST}, {len(BURSTS)} of {SEGMENTS} segments in each of {2 * ROUNDS} parts",
        "facts_without_an_event": len(run.sent),
        "lag_seconds_total_by_stage": [
            [round(at), total, {name: number for name, number in behind.items() if number}]
            for at, total, behind in lag[::step]
        ],
        "lag_most": max(total for _at, total, _behind in lag),
        "lag_at_the_end": lag[-1][2],
        "seconds_from_last_turn_to_zero": round(max(0.0, zero + begun - run.ended), 1),
        "latency": latency,
        "others_with_to_without_hot_owner": _ratios(run, "others", "others"),
        "neighbours_with_to_without_hot_owner": _ratios(run, "neighbours", "neighbours"),
        "neighbours_to_others_beside_hot_owner": _ratio_of(run.took[WITH, "neighbours"], run.took[WITH, "others"]),
        "worker_memory": _memory(run),
    }


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _spread(took: Sequence[float]) -> dict[str, float]:
    return {
        "events": len(took),
        "p50_ms": round(statistics.median(took) * 1000, 1),
        "p90_ms": round(_quantile(took, 0.9) * 1000, 1),
        "p99_ms": round(_quantile(took, 0.99) * 1000, 1),
        "max_ms": round(max(took) * 1000, 1),
    }


def _ratios(run: Run, with_hot: Who, without: Who) -> dict[str, float] | None:
    return _ratio_of(run.took[WITH, with_hot], run.took[WITHOUT, without])


def _ratio_of(above: Sequence[float], below: Sequence[float]) -> dict[str, float] | None:
    if not above or not below:
        return None
    return {
        name: round(_quantile(above, share) / _quantile(below, share), 2)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }


def _memory(run: Run) -> dict[str, Any]:
    """Peak, and the last quarter of the time against the second: 1.0 is flat. With `--apart` it is the worker's alone."""
    sizes = [rss for _at, rss in run.memory]
    quarter = max(1, len(sizes) // 4)
    second, last = sizes[quarter : 2 * quarter] or sizes, sizes[-quarter:]
    return {
        "peak_mb": round(max(sizes) / 1e6),
        "last_quarter_to_second": round(statistics.mean(last) / statistics.mean(second), 3),
        "rss_mb": [round(rss / 1e6) for rss in sizes[:: max(1, len(sizes) // 20)]],
    }
