"""The river as a state machine: whatever happens to messages, processes and clocks, what holds is what was said (W12).

Real delivery and stages run over a log, a vector store and a clock in this process, and truth in SQLite. In the end
everything is delivered, and the world must equal a plain model of the same words and an undisturbed run of the same inputs.

`MEMRIVER_MACHINE_EXAMPLES=2000` looks for longer, and at other cases each time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select

from schemas import Cardinality, Command, CommandKind, Memory, MemoryUpdated, Status
from sinks.truth import Truth, make_engine, memories, tables, turns
from sinks.truth.migrate import upgrade
from tests.doubles.model_replies import answer
from tests.doubles.mortal import MODEL_STEPS, NOW, PARTITIONS, STEPS, Died, Fate, Process, World, to_quiet
from tests.doubles.plain import RESIDENCE, Fact, Order, Plain, Spoken
from tests.doubles.story import START, broken, events, said

EXAMPLES = int(os.environ.get("MEMRIVER_MACHINE_EXAMPLES", "0"))
PEOPLE = ("ann", "bob")
FACTS: tuple[tuple[Fact, str], ...] = (
    ((RESIDENCE, "北京"), "我住在北京"),
    ((RESIDENCE, "上海"), "我住在上海"),
    ((RESIDENCE, "苏州"), "我住在苏州"),
    (("allergy", "花生"), "我对花生过敏"),
    (("allergy", "芒果"), "我对芒果过敏"),
    (("likes", "爬山"), "我喜欢爬山"),
)
SCRATCH_THAT = "刚才说错了当我没说"
STREAMS = ("ingest", "extract", "candidates", "commands", "bury")
TIMERS = ("clock", "expiry")
SLEEPING = (STEPS[0], *STEPS[3:7], *MODEL_STEPS)
ORDERS = {"forget": CommandKind.FORGET, "delete": CommandKind.DELETE, "restore": CommandKind.RESTORE}


@lru_cache(1)
def _template() -> Path:
    path = Path(tempfile.mkdtemp(prefix="memriver-machine-")) / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


def _nothing(_user: str) -> str:
    """The model adds nothing: whether it is asked about a turn that is taken back depends on the moment."""
    return answer([])


class River(RuleBasedStateMachine):
    """Rules are what the world does; people speak in minutes that only grow, or, when late, lie between earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="memriver-machine-"))
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _loop, _context: None)  # what a dead process leaves is nobody's business
        self.world = self._world("disturbed")
        self.plain = Plain()
        self.inputs: list[tuple[str, bytes]] = []
        self.minute = 0
        self.numbers: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.facts: dict[str, tuple[str, Fact]] = {}
        self.sleepers: list[tuple[Process, asyncio.Task[None], set[asyncio.Task[Any]]]] = []
        self.process = Process(self.world)
        self.own: set[asyncio.Task[Any]] = set()
        self._do(self.process.begin())

    def _world(self, name: str) -> World:
        path = self.directory / f"{name}.db"
        shutil.copyfile(_template(), path)
        return World(Truth(make_engine(f"sqlite:///{path}", pool_size=2)), reply=_nothing)

    # what people do

    def _next_minute(self, late: bool) -> int:
        taken = {turn.minute for turn in self.plain.turns} | {order.minute for order in self.plain.orders}
        free = [minute for minute in range(1, self.minute) if minute not in taken]
        if late and free:
            return free[len(free) // 2]
        self.minute += 2
        return self.minute

    def _speak(self, turn: Spoken, text: str, **fields: Any) -> None:
        raw = said(
            turn.minute,
            text,
            user_id=turn.person,
            conversation_id=turn.conversation,
            turn_id=f"{turn.conversation}-{turn.number}",
            revision=turn.revision,
            **fields,
        )
        self._give("turns", raw)

    def _give(self, topic: str, raw: bytes) -> None:
        self.inputs.append((topic, raw))
        self.loop.run_until_complete(self.world.say(raw, topic=topic))

    @rule(
        person=st.sampled_from(PEOPLE),
        room=st.integers(0, 1),
        facts=st.lists(st.sampled_from(FACTS), min_size=1, max_size=2, unique=True),
        late=st.booleans(),
    )
    def say(self, person: str, room: int, facts: list[tuple[Fact, str]], late: bool) -> None:
        turn = self._turn(person, room, late)
        turn.facts = [fact for fact, _text in facts[:1]] if self._clash(facts) else [fact for fact, _text in facts]
        texts = [text for fact, text in facts if fact in turn.facts]
        self._speak(turn, "，".join(texts))

    @rule(person=st.sampled_from(PEOPLE), room=st.integers(0, 1), late=st.booleans())
    def scratch_that(self, person: str, room: int, late: bool) -> None:
        turn = self._turn(person, room, late)
        turn.retracts = True
        self._speak(turn, SCRATCH_THAT)

    def _turn(self, person: str, room: int, late: bool) -> Spoken:
        conversation = f"{person}-{room}"
        number = self.numbers[conversation] = self.numbers.get(conversation, 0) + 1
        turn = Spoken(person, conversation, number, self._next_minute(late), [])
        self.plain.turns.append(turn)
        return turn

    @staticmethod
    def _clash(facts: list[tuple[Fact, str]]) -> bool:
        return len({attribute for (attribute, _value), _text in facts if attribute == RESIDENCE}) < sum(
            attribute == RESIDENCE for (attribute, _value), _text in facts
        )

    @precondition(lambda self: any(not turn.retracts for turn in self.plain.turns))
    @rule(data=st.data(), fact=st.sampled_from(FACTS))
    def edit(self, data: st.DataObject, fact: tuple[Fact, str]) -> None:
        turn = data.draw(st.sampled_from([turn for turn in self.plain.turns if not turn.retracts]))
        turn.revision += 1
        turn.facts = [fact[0]]
        self._speak(turn, fact[1])

    @precondition(lambda self: any(not turn.retracts for turn in self.plain.turns))
    @rule(data=st.data())
    def delete_turn(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from([turn for turn in self.plain.turns if not turn.retracts]))
        turn.revision += 1
        turn.facts = None
        self._speak(turn, "", deleted=True)

    @precondition(lambda self: bool(self.facts))
    @rule(data=st.data(), kind=st.sampled_from(sorted(ORDERS)))
    def order(self, data: st.DataObject, kind: str) -> None:
        """About a memory that somebody has seen, whatever became of it since."""
        memory_id = data.draw(st.sampled_from(sorted(self.facts)))
        person, fact = self.facts[memory_id]
        minute = self._next_minute(False)
        command = Command(
            command_id=f"order-{minute}",
            kind=ORDERS[kind],
            tenant="acme",
            owner=person,
            issued_by=f"user:{person}",
            issued_at=START + timedelta(minutes=minute),
            memory_id=memory_id,
            payload={"version": 1} if kind == "restore" else {},
        )
        self.plain.orders.append(Order(person, minute, "assert" if kind == "restore" else kind, fact))
        self._give("commands", command.to_bytes())

    # what the log does

    @precondition(lambda self: bool(self.inputs))
    @rule(data=st.data(), topic=st.sampled_from(["turns", "batches", "candidates", "commands"]))
    def send_twice(self, data: st.DataObject, topic: str) -> None:
        """A producer whose acknowledgement was lost, or a gateway that repeats itself."""
        sent = self.world.log.of(topic)
        if sent:
            again = sent[data.draw(st.integers(0, len(sent) - 1))]
            self.loop.run_until_complete(self.world.log.publish([again]))

    @rule(topic=st.sampled_from([("ingest", "turns"), ("resolve", "candidates"), ("resolve", "commands")]))
    def replay_from_the_start(self, topic: tuple[str, str]) -> None:
        for partition in range(PARTITIONS):
            self.world.log.committed.pop((*topic, partition), None)

    @rule(hours=st.sampled_from([-900, -25, -1, 1, 25, 900]))
    def set_the_clock(self, hours: int) -> None:
        self.world.now += timedelta(hours=hours)

    # what processes do

    @rule(
        stage=st.sampled_from(STREAMS + TIMERS),
        partition=st.sampled_from([None, *range(PARTITIONS)]),
        count=st.sampled_from([1, 3, None]),
    )
    def work(self, stage: str, partition: int | None, count: int | None) -> None:
        """One stage, some of its messages: conversations and owners overtake each other."""
        self._do(self.process.work(stage, partition=partition, count=count))

    @rule()
    def work_a_little_of_everything(self) -> None:
        for stage in (*STREAMS, *TIMERS):
            self._do(self.process.work(stage))

    @rule(stage=st.sampled_from(STREAMS + TIMERS), step=st.sampled_from(STEPS + MODEL_STEPS), nth=st.integers(1, 3))
    def die(self, stage: str, step: str, nth: int) -> None:
        self.process.fate = Fate(stage, step, nth)
        try:
            self._do(self.process.work(stage))
        except Died:
            self._succeed()
        else:
            self.process.fate = Fate()

    @precondition(lambda self: len(self.sleepers) < 2)
    @rule(stage=st.sampled_from(STREAMS + TIMERS), step=st.sampled_from(SLEEPING), nth=st.integers(1, 2))
    def fall_asleep(self, stage: str, step: str, nth: int) -> None:
        """The group coordinator gives its partitions to a successor; it does not know."""
        process, fate = self.process, Fate(stage, step, nth, sleeps=True)
        process.fate = fate

        async def until_asleep() -> asyncio.Task[None]:
            task = asyncio.create_task(process.work(stage))
            sleeping = asyncio.create_task(asyncio.to_thread(fate.asleep.wait))
            await asyncio.wait({task, sleeping}, return_when=asyncio.FIRST_COMPLETED)
            fate.asleep.set()
            await sleeping
            return task

        task = self._do(until_asleep())
        if task.done():
            task.result()
            process.fate = Fate()
            return
        process.expelled = True
        self.sleepers.append((process, task, self.own))
        self.process, self.own = Process(self.world), set()
        self._do(self.process.begin())

    @precondition(lambda self: bool(self.sleepers))
    @rule()
    def wake_up(self) -> None:
        process, task, own = self.sleepers.pop(0)
        process.fate.woken.set()

        async def to_the_end() -> None:
            await task
            await process.delivery.settle()
            await process.end(own - {task})

        self.loop.run_until_complete(to_the_end())

    @rule()
    def restart(self) -> None:
        """In good order."""
        self._do(self.process.delivery.settle())
        self._succeed()

    def _succeed(self) -> None:
        self.loop.run_until_complete(self.process.end(self.own))
        self.process, self.own = Process(self.world), set()
        self._do(self.process.begin())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        before = asyncio.all_tasks(self.loop)
        try:
            return self.loop.run_until_complete(work)
        finally:
            self.own |= asyncio.all_tasks(self.loop) - before

    # what is true at any moment

    @invariant()
    def versions_grow_without_gaps_and_one_value_holds(self) -> None:
        with self.world.truth.reading() as connection:
            held = memories.listing(connection)
            versions = memories.version_ids(connection)
            waiting = connection.execute(select(tables.outbox.c.payload, tables.outbox.c.stage)).all()
        for memory in held:
            assert {f"{memory.id}:{n}" for n in range(1, memory.version + 1)} <= versions, "no gap"
            assert f"{memory.id}:{memory.version + 1}" not in versions
            assert memory.version >= self.versions.get(memory.id, 0), "versions never fall"
            self.versions[memory.id] = memory.version
            if memory.value:
                self.facts[memory.id] = (memory.owner, (memory.attribute, memory.value))
            if memory.status is Status.DELETED:
                assert (memory.text, memory.value, memory.evidence) == ("", "", ())
        single = [(item.owner, item.attribute) for item in held if item.status is Status.ACTIVE and _single(item)]
        assert len(single) == len(set(single)), "one value of a single-valued slot holds"
        sent = {MemoryUpdated.from_bytes(row.payload).event_id for row in waiting if row.stage == "resolve"
                and row.payload and b'"event_id"' in row.payload}  # fmt: skip
        assert versions <= sent | events(self.world).keys(), "each version is published, or waits in the outbox"

    # and in the end

    def teardown(self) -> None:
        try:
            while self.sleepers:
                self.wake_up()
            self._do(self.process.delivery.settle())
            self.loop.run_until_complete(self.process.end(self.own))
            self.world.now = NOW
            self.loop.run_until_complete(to_quiet(self.world))
            self._check()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.directory)

    def _check(self) -> None:
        assert broken(self.world) == []
        assert holding(self.world) == self.plain.holds()
        other = self._world("undisturbed")
        for topic, raw in self.inputs:
            self.loop.run_until_complete(other.say(raw, topic=topic))
            self.loop.run_until_complete(to_quiet(other))
        assert ending(self.world) == ending(other)
        other.truth.close()
        self.world.truth.close()


def _single(memory: Memory) -> bool:
    return memory.cardinality is Cardinality.SINGLE


def holding(world: World) -> dict[tuple[str, str], set[str]]:
    """The values that hold, by person and attribute."""
    found: dict[tuple[str, str], set[str]] = {}
    with world.truth.reading() as connection:
        for memory in memories.listing(connection, status=Status.ACTIVE):
            found.setdefault((memory.owner, memory.attribute), set()).add(memory.value)
    return found


def ending(world: World) -> dict[str, Any]:
    """What must not depend on the way: every memory's state, the version of what holds, every turn's outcome."""
    with world.truth.reading() as connection:
        held = memories.listing(connection)
        outcomes = {row["turn_id"]: (row["outcome"], row["reason"]) for row in turns.outcomes(connection)}
        letters = connection.execute(select(tables.dead_letters.c.reason)).scalars().all()
    states = {item.id: (item.status, item.value, item.version if item.status is Status.ACTIVE else 0) for item in held}
    return {"memories": states, "outcomes": outcomes, "letters": sorted(letters)}


TestRiver = River.TestCase
TestRiver.settings = settings(
    max_examples=EXAMPLES or 12,
    stateful_step_count=60 if EXAMPLES else 25,
    derandomize=not EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
