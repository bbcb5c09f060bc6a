"""Delivery, the promise of W12: a death at any step of the commit order, on any backend, leaves what a clean run leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, select

from processors.batching import BatchLimits
from processors.intake import Intake
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from schemas import MemoryUpdated, Turn
from sinks.embedders import make_embedder
from sinks.truth import Truth, outbox, tables
from sinks.truth.outbox import Outgoing
from sinks.vectors import Point, Tombstone
from sinks.vectors.collections import OneCollection
from streams.delivery import Delivered, Delivery, Message, Stage
from streams.metrics import Metrics
from streams.outflow import Outflow
from streams.projection import VectorProjection
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from streams.vectors import comparison
from tests.doubles.log import Broker, Stream

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
START = datetime(2026, 3, 2, 1, tzinfo=UTC)
BATCH = 8
"""Turns that close a batch. A conversation with a retraction stays below: whether a turn that is taken back has been
batched by then depends on the moment, and is made good by the resolver."""
STEPS = (
    "before commit",
    "after commit, before vectors",
    "after vectors, before publishing",
    "half published",
    "after publishing",
    "before acknowledging",
    "half acknowledged",
    "acknowledged, the last rows not deleted",
)


class Died(BaseException):
    """The process is gone; nothing may catch it."""


def said(number: int, text: str, **fields: Any) -> bytes:
    """One turn as a gateway would send it."""
    given: dict[str, Any] = {
        "tenant": "acme",
        "conversation_id": "c1",
        "turn_id": f"t{number}",
        "user_id": "ann",
        "role": "user",
        "text": text,
        "sent_at": START + timedelta(minutes=number),
        "timezone": "Asia/Shanghai",
    }
    return Turn.model_validate(given | fields).to_bytes()


LOG = (
    said(1, "我住在北京"),
    said(2, "我对花生过敏"),
    said(3, "I'm allergic to latex.", conversation_id="c2", user_id="bob"),
    b"\xff not a turn",
    said(4, "我在腾讯上班"),
    said(5, "刚才说错了当我没说"),
    said(6, "我上个月搬到上海了"),
    said(2, "我对花生过敏"),
    said(7, "我喜欢爬山"),
    said(7, "我喜欢游泳", revision=1),
    said(3, "", conversation_id="c2", user_id="bob", revision=1, deleted=True),
    said(8, "我住在上海", conversation_id="c3", conversation_end=True),
    *(said(20 + number, f"第{number}个接口的报价还要再核对一遍", conversation_id="c4") for number in range(BATCH)),
)


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


@dataclass(slots=True)
class Death:
    """Strikes once: at this step of this stage's n-th group that has something to publish."""

    stage: str = ""
    step: str = ""
    group: int = 0
    struck: bool = False

    def strike(self, stage: str, step: str, group: int) -> None:
        """Die here, if this is the place."""
        if not self.struck and (stage, step, group) == (self.stage, self.step, self.group):
            self.struck = True
            raise Died


@dataclass(slots=True)
class World:
    """What outlives a process: the database, the broker, the vectors."""

    truth: Truth
    broker: Broker = field(default_factory=Broker)
    vectors: Vectors = field(default_factory=Vectors)


@dataclass(slots=True)
class Where:
    """The stage and group at work; one stage runs at a time here."""

    stage: str = ""
    group: int = 0
    acked: int = 0


class Mortal(Outflow):
    """The real outflow over an in-memory broker, dying on order between its steps."""

    def __init__(self, world: World, executor: ThreadPoolExecutor, death: Death, where: Where) -> None:
        super().__init__(self, VectorProjection(OneCollection(world.vectors, EMBEDDER)), executor)  # type: ignore[arg-type]  # the parts used
        self._world, self._death, self._where = world, death, where

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        self._strike("after commit, before vectors")
        await super().flush(messages)
        self._strike("after publishing")

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """As `EventProducer.publish`."""
        self._strike("after vectors, before publishing")
        half = len(messages) // 2
        await self._world.broker.publish(messages[:half])
        self._strike("half published")
        await self._world.broker.publish(messages[half:])

    def _strike(self, step: str) -> None:
        self._death.strike(self._where.stage, step, self._where.group)


class Watched:
    """A stage whose groups are counted, and which may die while its transaction is open."""

    def __init__(self, inner: Stage[Any], death: Death, where: Where) -> None:
        self.name, self.topic = inner.name, inner.topic
        self._inner, self._death, self._where = inner, death, where

    def prepare(self, message: Message) -> Any:
        return self._inner.prepare(message)

    def commit(self, connection: Connection, group: Sequence[Delivered[Any]], now: datetime) -> list[Outgoing]:
        out = self._inner.commit(connection, group, now)
        if out:
            self._where.group += 1
            self._where.acked = 0
            self._death.strike(self.name, "before commit", self._where.group)
        return out


EMBEDDER = make_embedder("hashing")


@pytest.fixture(scope="module")
def intake() -> Intake:
    """Loaded once."""
    gate = PolicyGate(PolicySettings(), b"a key for tests only")
    return Intake(RuleBook.load(), NoiseFilter.load(), gate)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """One thread, so that a death is met where it struck."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def live(world: World, intake: Intake, executor: ThreadPoolExecutor, death: Death) -> None:
    """One process from start to quiet, or to its death."""
    metrics, where = Metrics(), Where()
    delivery = Delivery(
        world.truth,
        Mortal(world, executor, death, where),
        executor,
        metrics,
        now=lambda: NOW,
        group_size=2,
        linger_seconds=0.0,
        on_fatal=lambda reason: pytest.fail(reason),
    )
    nearest = Nearest(comparison(EMBEDDER))
    stages: list[Stage[Any]] = [
        IngestStage(intake, BatchLimits(max_turns=BATCH), metrics),
        ResolveStage("candidates", nearest, metrics),
        ResolveStage("commands", nearest, metrics),
    ]
    for stage in stages:
        delivery.assigned(stage.name, {0})
    for stage in stages:
        where.stage, where.group = stage.name, where.group if where.stage == stage.name else 0

        def acknowledge(message: Message, stage: Stage[Any] = stage) -> None:
            step = "before acknowledging" if where.acked == 0 else "half acknowledged"
            death.strike(stage.name, step, where.group)
            where.acked += 1
            world.broker.committed[stage.name, message.topic] = message.offset + 1

        stream = Stream(world.broker.unread(stage.name, stage.topic), on_ack=acknowledge)
        await delivery.run(stream, Watched(stage, death, where))
        death.strike(stage.name, "acknowledged, the last rows not deleted", death.group)
    await delivery.settle()


def remains(world: World) -> dict[str, Any]:
    """Everything that must not depend on when a process died."""
    found: dict[str, Any] = {}
    with world.truth.reading() as connection:
        assert outbox.size(connection) == 0
        for table in (
            tables.turns,
            tables.conversations,
            tables.batches,
            tables.claims,
            tables.retractions,
            tables.cells,
            tables.memories,
            tables.memory_versions,
            tables.owners,
            tables.decisions,
            tables.reviews,
            tables.dead_letters,
        ):
            rows = connection.execute(select(table)).all()
            found[table.name] = sorted(repr(tuple(row)) for row in rows)
    found["vectors"] = world.vectors.points
    return found


def events(world: World) -> dict[str, set[bytes]]:
    """Every payload that went out for each (memory, version)."""
    found: defaultdict[str, set[bytes]] = defaultdict(set)
    for item in world.broker.topics["memory_updated"]:
        if item.payload is not None:
            found[MemoryUpdated.from_bytes(item.payload).event_id].add(item.payload)
    return dict(found)


async def start(truth: Truth) -> World:
    """A world in which the log has been published."""
    world = World(truth)
    await world.broker.publish([Outgoing("turns", f"k{number}", "k", raw) for number, raw in enumerate(LOG)])
    return world


@pytest.fixture(scope="module")
def clean_runs() -> dict[str, tuple[dict[str, Any], dict[str, set[bytes]]]]:
    """What an undisturbed run left, by backend."""
    return {}


@pytest.mark.parametrize("stage", ["ingest", "resolve"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_death_at_any_step_leaves_what_a_clean_run_leaves(
    truth: Truth,
    intake: Intake,
    threads: ThreadPoolExecutor,
    clean_runs: dict[str, tuple[dict[str, Any], dict[str, set[bytes]]]],
    stage: str,
    step: str,
) -> None:
    backend = truth.engine.dialect.name
    if backend not in clean_runs:
        world = await start(truth)
        await live(world, intake, threads, Death())
        clean_runs[backend] = remains(world), events(world)
        with truth.engine.begin() as connection:
            for table in tables.metadata.sorted_tables:
                connection.execute(table.delete())
    world, death = await start(truth), Death(stage, step, group=2)
    with pytest.raises(Died):
        await live(world, intake, threads, death)
    await live(world, intake, threads, Death())
    left, published = clean_runs[backend]
    assert remains(world) == left
    assert events(world) == published, "each (memory, version) at least once, and never with another content"


async def test_a_replay_of_the_whole_topic_changes_nothing(
    truth: Truth, intake: Intake, threads: ThreadPoolExecutor
) -> None:
    world = await start(truth)
    await live(world, intake, threads, Death())
    before, published = remains(world), events(world)
    world.broker.committed.clear()
    await live(world, intake, threads, Death())
    assert remains(world) == before
    assert events(world) == published


async def test_the_log_leads_to_what_its_words_mean(truth: Truth, intake: Intake, threads: ThreadPoolExecutor) -> None:
    """Or the tests above would compare one nothing with another."""
    world = await start(truth)
    await live(world, intake, threads, Death())
    with truth.reading() as connection:
        rows = connection.execute(select(tables.memories.c.value, tables.memories.c.status)).all()
        letters = connection.execute(select(tables.dead_letters.c.reason)).scalars().all()
    found = {row.value: row.status for row in rows}
    assert {value: found[value] for value in ("北京", "上海", "花生", "腾讯", "爬山", "游泳", "latex")} == {
        "北京": "superseded",
        "上海": "active",
        "花生": "active",
        "腾讯": "retracted",
        "爬山": "retracted",
        "游泳": "active",
        "latex": "retracted",
    }
    assert letters == ["not_json"]
