"""Chaos, one run: load and faults side by side, quiet, and the verdict."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from memriver_client import Replica
from pydantic import SecretStr
from sqlalchemy import func, select

from ops.chaos import collect, lines
from ops.chaos.faults import Faults
from ops.chaos.found import Found
from ops.chaos.house import FORCED, STOP_SECONDS, Ended, House
from ops.chaos.load import Load
from ops.chaos.nursery import Nursery
from ops.chaos.schedule import Fault, schedule
from ops.chaos.verifier import Violation, verify
from ops.dev.services import Kafka, MariaDb
from processors.exceptions import TransientError
from sinks.sealing import DataKeys
from sinks.truth import Truth, make_engine, outbox, tables
from sinks.truth.migrate import upgrade
from sinks.vectors import open_vectors
from streams.sealing import make_wrapper
from streams.settings import Settings
from streams.topics import apply
from streams.vectors import open_embedder

WORKERS = 3
_READS = {
    "ingest": ("turns",),
    "extract": ("batches",),
    "resolve": ("candidates", "commands"),
    "bury": ("deadletters",),
}
SETTLED = "everything is worked through after the last fault"
STOPPED = "a worker that is asked to stop does so by itself"
_SERVERS = ("broker", "database", "vector server", "model")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of; `seconds` is how long load and faults last."""

    seed: int
    seconds: float
    rate: float = 40.0
    people: int = 60
    replayed: int = 1_000
    settle_seconds: float = 150.0


@dataclass(frozen=True, slots=True)
class Done:
    """A fault as it was done: seconds after the start, and what came of it."""

    began: float
    ended: float
    fault: Fault
    outcome: str


@dataclass(slots=True)
class Result:
    """What was done and what was found. `remarks` are no violations, but somebody should look at them."""

    plan: Plan
    duration: float = 0.0
    settled_after: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[Done] = field(default_factory=list)
    diary: list[tuple[float, str]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


def forced(done: Sequence[Done], at_the_end: Sequence[str]) -> list[str]:
    """Stops that had to be forced while every server was there; `at_the_end` is how the last ones went, after the faults.

    While a server was away such a stop is a remark: it had three times what it is promised, but so had the server's fault.
    """
    wrong = [f"after the faults: {outcome}" for outcome in at_the_end if outcome.startswith(FORCED)]
    for stop in done:
        if stop.outcome.startswith(FORCED) and not any(
            other.fault.kind.value.startswith(_SERVERS) and other.began <= stop.ended and stop.began <= other.ended
            for other in done
        ):
            wrong.append(f"{stop.began}–{stop.ended} {stop.fault.kind.value}: {stop.outcome}")
    return wrong


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


async def run(plan: Plan, kafka: Kafka, mariadb: MariaDb, nursery: Nursery, directory: Path) -> Result:
    """Topics and a database of its own; logs, the produced messages and the vectors stay in `directory`.

    What an earlier run left there goes first: its vectors are nobody's any more, and would be found to be too many.
    """
    began = time.monotonic()
    await asyncio.to_thread(_remove, directory)
    result = Result(plan)

    def say(what: str) -> None:
        result.diary.append((round(time.monotonic() - began, 1), what))

    prefix, database = f"x{uuid.uuid4().hex[:10]}.", f"memriver_{uuid.uuid4().hex[:12]}"
    url = mariadb.create_database(database)
    await asyncio.to_thread(upgrade, url)
    settings = Settings(
        _env_file=None,
        kafka_bootstrap=kafka.bootstrap,
        database_url=SecretStr(url),
        topic_prefix=prefix,
        model_base_url="",
    )
    await apply(settings)
    house = House(directory, kafka, mariadb, database, prefix, nursery, say)
    truth = Truth(make_engine(url))
    replica = Replica(kafka.bootstrap, tenant=lines.TENANT, topic=settings.topic("memory_updated"))
    load = Load(settings, plan.seed, plan.people, visible=lambda memory_id: replica.get(memory_id) is not None)
    try:
        await house.start(WORKERS)
        await replica.start(wait=False)
        await load.start()
        await _ready(house, truth, load, plan, say)
        await _disturbed(plan, house, load, result, say)
        say("faults and load are over")
        await load.close()
        say("the broker has every message")
        quiet = time.monotonic()
        await _settle(plan, settings, truth, result, say)
        await load.replay(plan.replayed)
        await _settle(plan, settings, truth, result, say)
        result.settled_after = round(time.monotonic() - quiet, 1)
        await _verdict(settings, house, truth, replica, load, result)
    finally:
        await load.stop()
        await replica.stop()
        await house.stop()
        truth.close()
        lines.write(directory / "log.jsonl", load.produced)
    result.ended = house.ended
    result.duration = round(time.monotonic() - began, 1)
    return result


async def _ready(house: House, truth: Truth, load: Load, plan: Plan, say: object) -> None:
    """The first messages have come through: what is killed from now on was at work."""
    await load.run(plan.rate, 1.0)
    await load.answered()
    for _ in range(600):
        if await asyncio.to_thread(_turns, truth) > 0:
            return
        await asyncio.sleep(0.2)
    raise RuntimeError("no worker took in a turn within two minutes; see the workers' logs")


def _turns(truth: Truth) -> int:
    with truth.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(tables.turns)).scalar() or 0)


async def _disturbed(plan: Plan, house: House, load: Load, result: Result, say: object) -> None:
    faults = Faults(house)
    began = time.monotonic()
    done: list[asyncio.Task[None]] = []

    async def do(fault: Fault) -> None:
        started = time.monotonic() - began
        outcome = await faults.do(fault)
        result.faults.append(Done(round(started, 1), round(time.monotonic() - began, 1), fault, outcome))
        if outcome.startswith(FORCED) or (outcome.startswith("stopped") and float(outcome.split()[2]) > STOP_SECONDS):
            result.remarks.append(f"a worker that was asked to stop {outcome}")

    talking = asyncio.create_task(load.run(plan.rate, plan.seconds))
    for fault in schedule(plan.seed, plan.seconds, WORKERS):
        await asyncio.sleep(max(0.0, fault.at - (time.monotonic() - began)))
        done.append(asyncio.create_task(do(fault)))
    await asyncio.gather(talking, *done)
    result.faults.sort(key=lambda item: item.began)


async def _settle(plan: Plan, settings: Settings, truth: Truth, result: Result, say: object) -> None:
    """Until every group has read its topics to the end and nothing waits in truth, twice in a row."""
    deadline = time.monotonic() + plan.settle_seconds
    quiet = 0
    while quiet < 2:
        open_work = await asyncio.to_thread(_open_work, settings, truth)
        quiet = 0 if open_work else quiet + 1
        if time.monotonic() > deadline:
            result.violations.append(Violation(SETTLED, len(open_work), tuple(open_work)))
            return
        await asyncio.sleep(1.0)


def _open_work(settings: Settings, truth: Truth) -> list[str]:
    found: list[str] = []
    try:
        with truth.reading() as connection:
            unsent = outbox.size(connection)
            open_batches = select(func.count()).select_from(tables.batches).where(tables.batches.c.status == "closed")
            waiting = select(func.sum(tables.conversations.c.pending_count))
            counted = {
                "messages in the outbox": unsent,
                "batches without an answer": int(connection.execute(open_batches).scalar() or 0),
                "turns without a batch": int(connection.execute(waiting).scalar() or 0),
            }
        found += [f"{count} {what}" for what, count in counted.items() if count]
        for stage, topics in _READS.items():
            behind = _behind(settings, stage, topics)
            found += [f"{stage} is {behind} messages behind"] if behind else []
    except (TransientError, KafkaException) as error:
        found.append(f"a server does not answer ({type(error).__name__})")
    return found


def _behind(settings: Settings, stage: str, topics: tuple[str, ...]) -> int:
    group = settings.group(stage)
    consumer = Consumer({"bootstrap.servers": settings.kafka_bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        total = 0
        for topic in topics:
            name = settings.topic(topic)
            numbers = consumer.list_topics(name, timeout=10).topics[name].partitions
            for place in consumer.committed([TopicPartition(name, number) for number in numbers], timeout=10):
                end = consumer.get_watermark_offsets(place, timeout=10)[1]
                total += max(0, end - max(0, place.offset))
        return total
    finally:
        consumer.close()


async def _verdict(
    settings: Settings, house: House, truth: Truth, replica: Replica, load: Load, result: Result
) -> None:
    went = await asyncio.gather(*(house.terminate(worker) for worker in house.workers))
    unstopped = forced(result.faults, went)
    if unstopped:
        result.violations.append(Violation(STOPPED, len(unstopped), tuple(unstopped)))
    found = await asyncio.to_thread(_evidence, settings, house, truth, load)
    await _followed(replica, found, result)
    found.held = {memory.id: (memory.version, memory.status) for memory in replica.memories(any_status=True)}
    found.conflicts = replica.status.counts.conflict
    result.violations += await asyncio.to_thread(verify, load.produced, load.acknowledged, found)
    result.remarks += [f"the gateway sent again after {error}: {count}" for error, count in load.resent.items()]
    events = [record for record in found.events if record.raw is not None]
    result.counts = Counter(
        {
            "produced": len(load.produced),
            "resent by the gateway": load.resent.total(),
            "in the log": len(found.log),
            "turns": len(found.outcomes),
            "memories": len(found.memories),
            "versions": sum(len(versions) for versions in found.versions.values()),
            "events": len(events),
            "batches": len(found.batches),
            "dead letters": len(found.letters),
            "commands": len(found.commands),
            "workers that ended by themselves": len(house.ended),
        }
    )


async def _followed(replica: Replica, found: Found, result: Result) -> None:
    """The replica has read everything, or has had a minute and a half for it: then its delay is a fault of its own."""
    truth = {key: (row.version, row.status) for key, row in found.memories.items() if row.status != "deleted"}
    for waited in range(180):
        held = {memory.id: (memory.version, memory.status) for memory in replica.memories(any_status=True)}
        if held == truth:
            if waited > 20:
                result.remarks.append(f"the replica needed {waited / 2:.0f} s after the last event")
            return
        await asyncio.sleep(0.5)
    result.remarks.append(f"the replica is behind: {replica.status}")


def _evidence(settings: Settings, house: House, truth: Truth, load: Load) -> Found:
    found = Found()
    for topic in ("turns", "commands"):
        name = settings.topic(topic)
        for record in collect.topic(settings.kafka_bootstrap, name):
            raw = record.raw or b""
            if topic == "turns" or collect.is_ours(raw):
                found.log.append((f"{name}:{record.partition}:{record.offset}", raw))
    turn_keys = {line.turn_key for line in load.produced if line.is_turn}
    commands = {line.command_id for line in load.produced if line.command_id}
    collect.from_truth(found, truth, turn_keys=turn_keys, commands=commands)
    embedder = open_embedder(settings)
    store = open_vectors(
        f"edge+http://127.0.0.1:{house.vectors.port}",
        prefix="memories",
        model=embedder.model,
        dimension=embedder.dimension,
    )
    store.ensure()
    collect.from_vectors(found, store)
    store.close()
    sealed = collect.topic(settings.kafka_bootstrap, settings.topic("turns.sealed"))
    # Keys are wrapped under the development key: neither the workers nor these settings name another one.
    collect.from_sealed(found, (record.raw or b"" for record in sealed), truth, DataKeys(make_wrapper(settings)))
    found.events = collect.topic(settings.kafka_bootstrap, settings.topic("memory_updated"))
    letters = collect.topic(settings.kafka_bootstrap, settings.topic("deadletters"))
    found.letters_sent = Counter(record.key for record in letters)
    return found
