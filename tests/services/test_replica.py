"""Service tests: replicas on a real Kafka follow truth through restarts, gaps, truncation and conflicts (SPEC A1)."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import statistics
import sys
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import memriver_client as mc
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from ops.dev.services import Kafka
from schemas import (
    Audit,
    Cardinality,
    Category,
    ChangeKind,
    Memory,
    MemoryType,
    MemoryUpdated,
    Sensitivity,
    SourceKind,
    Status,
)

PARTITIONS = 4
PATIENCE = 60.0
"""Seconds that a test waits for what has to come; far more than it takes, so that a slow machine fails nothing."""

CreateTopics = Callable[..., None]


def now() -> datetime:
    return datetime.now(UTC)


def make(owner: str, name: str, version: int, status: Status = Status.ACTIVE, text: str | None = None) -> Memory:
    at = now()
    return Memory(
        id=name,
        tenant="acme",
        owner=owner,
        namespace=f"user/{owner}/profile",
        type=MemoryType.SEMANTIC,
        category=Category.FACT,
        subject="user",
        attribute="note",
        value=name,
        cardinality=Cardinality.MULTI,
        text=text or f"{name} as of {version}",
        language="en",
        status=status,
        version=version,
        confidence=0.9,
        sensitivity=Sensitivity.NORMAL,
        source_kind=SourceKind.USER_STATEMENT,
        first_stated_at=at,
        last_stated_at=at,
        audit=Audit(writer="test", decision="accept", policy_version="1"),
    )


class Truth:
    """The one writer: keeps the newest version of each memory and sends every change, as the resolver's outbox does."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._sequences: dict[str, int] = defaultdict(int)
        self.memories: dict[str, Memory] = {}
        self.sent: list[asyncio.Future[Any]] = []
        self._unmarked: list[tuple[str, str, bytes | None]] = []

    async def put(
        self, owner: str, name: str, status: Status = Status.ACTIVE, change: ChangeKind = ChangeKind.UPDATED
    ) -> MemoryUpdated:
        before = self.memories.get(name)
        memory = make(owner, name, before.version + 1 if before else 1, status)
        self.memories[name] = memory
        event = self.event(memory, change)
        await self.send(owner, name, event.to_bytes())
        if status is Status.DELETED:
            await self.send(owner, name, None)
        return event

    def event(self, memory: Memory, change: ChangeKind = ChangeKind.UPDATED) -> MemoryUpdated:
        self._sequences[memory.owner] += 1
        return MemoryUpdated(
            event_id=f"{memory.id}:{memory.version}",
            change=change,
            memory=memory,
            owner_seq=self._sequences[memory.owner],
            cause="test",
            occurred_at=now(),
        )

    def skip(self, owner: str, count: int) -> None:
        """Events that are never published."""
        self._sequences[owner] += count

    async def send(self, owner: str, name: str, value: bytes | None, partition: int | None = None) -> None:
        self._unmarked.append((owner, name, value))
        chosen = zlib.crc32(owner.encode()) % PARTITIONS if partition is None else partition
        self.sent.append(await self._producer.send(self._topic, value, key=name.encode(), partition=chosen))

    async def crash(self) -> None:
        """What was not marked as sent is sent again, in order, before anything new."""
        again, self._unmarked = self._unmarked, []
        for owner, name, value in again:
            await self.send(owner, name, value)
        self._unmarked = []

    async def flush(self) -> None:
        await asyncio.gather(*self.sent)
        self.sent.clear()

    @property
    def present(self) -> dict[str, tuple[int, str]]:
        held = {name: m for name, m in self.memories.items() if m.status is not Status.DELETED}
        return {name: (memory.version, memory.text) for name, memory in held.items()}


@asynccontextmanager
async def writing(kafka: Kafka, topic: str) -> AsyncIterator[Truth]:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, enable_idempotence=True, linger_ms=0) as producer:
        yield Truth(producer, topic)


def held(replica: mc.Replica) -> dict[str, tuple[int, str]]:
    return {memory.id: (memory.version, memory.text) for memory in replica.memories(any_status=True)}


async def until(reached: Callable[[], bool], what: str) -> None:
    for _ in range(int(PATIENCE / 0.05)):
        if reached():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"never happened: {what}")


@pytest.fixture
def topic(topics_prefix: str, create_topics: CreateTopics) -> str:
    name = f"{topics_prefix}memory_updated"
    create_topics(name, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    return name


async def test_four_replicas_equal_truth_after_a_replica_and_the_broker_were_restarted(
    kafka: Kafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 changes/s; MEMRIVER_REPLICA_SECONDS makes it longer than the 10 seconds of CI."""
    seconds = float(os.environ.get("MEMRIVER_REPLICA_SECONDS", "10"))
    chance = random.Random(20_260_301)
    latencies: list[tuple[datetime, float]] = []
    outage: list[datetime] = []
    conflicts: dict[int, list[mc.Conflict]] = defaultdict(list)

    def replica(number: int) -> mc.Replica:
        store = mc.SqliteStore(tmp_path / f"{number}.db")
        made = mc.Replica(
            kafka.bootstrap,
            tenant="acme",
            topic=topic,
            store=store,
            on_conflict=conflicts[number].append,
            timing=mc.Timing(watch=0.5, gap_grace=1.0, reread_rest=5.0),
        )
        stores.append(store)

        def measure(change: mc.Change) -> None:
            if change.event is not None and change.live:
                sent = change.event.occurred_at
                latencies.append((sent, (now() - sent).total_seconds() * 1000))

        made.on_change(measure, "user")
        return made

    stores: list[mc.SqliteStore] = []
    replicas = [replica(number) for number in range(4)]
    await asyncio.gather(*(each.start(timeout=PATIENCE) for each in replicas))

    async def write(truth: Truth) -> None:
        loop = asyncio.get_running_loop()
        start, count = loop.time(), int(seconds * 100)
        for number in range(count):
            await asyncio.sleep(max(0.0, start + number / 100 - loop.time()))
            owner = f"user-{chance.randrange(20)}"
            name = f"{owner}-{chance.randrange(15)}"
            deleted = chance.random() < 0.1 and name in truth.memories
            await truth.put(owner, name, Status.DELETED if deleted else Status.ACTIVE)
            if number % 150 == 149:
                await truth.crash()
        await truth.flush()

    async def disturb() -> None:
        await asyncio.sleep(seconds * 0.3)
        await replicas[3].stop()
        await asyncio.sleep(seconds * 0.1)
        replicas[3] = replica(3)
        await replicas[3].start(timeout=PATIENCE)
        await asyncio.sleep(seconds * 0.1)
        outage.append(now())
        await asyncio.to_thread(kafka.stop)
        await asyncio.to_thread(kafka.start)
        outage.append(now())

    async with writing(kafka, topic) as truth:
        await asyncio.gather(write(truth), disturb())
        # One version with another content: everybody hears of it once, nobody takes it over.
        name = next(iter(truth.present))
        owner = truth.memories[name].owner
        rival = make(owner, name, truth.memories[name].version, text="something else")
        for _ in range(2):
            await truth.send(owner, name, truth.event(rival).to_bytes())
        await truth.put("user-0", "the last")
        await truth.flush()

        def equal(each: mc.Replica) -> bool:
            return held(each) == truth.present

        for each in replicas:
            await each.wait_for("the last", 1, PATIENCE)
            await until(functools.partial(equal, each), "the replica equals truth")
        await until(lambda: all(conflicts[number] for number in range(4)), "everybody hears of the conflict")

    for number, each in enumerate(replicas):
        assert held(each) == truth.present
        assert [(c.memory_id, c.rival.text) for c in conflicts[number]] == [(name, "something else")]
        assert each.status.healthy(max_silence=PATIENCE), each.status
        await each.stop()
    for store in stores:
        store.close()
    # Clients come back to a broker within their own back-off, so what was sent shortly before and after counts as its outage.
    around = (outage[0] - timedelta(seconds=1), outage[1] + timedelta(seconds=2))
    steady = [ms for sent, ms in latencies if not around[0] <= sent <= around[1]]
    with capsys.disabled():
        sys.stdout.write(f"\n4 replicas, {seconds:.0f} s at 100 changes/s, one replica and the broker restarted\n")
        for name, found in (("all arrivals", [ms for _sent, ms in latencies]), ("without the outage", steady)):
            if len(found) > 1:
                steps = statistics.quantiles(found, n=100)
                sys.stdout.write(f"  {name}: {len(found)}, p50 {steps[49]:.1f} ms, p99 {steps[98]:.1f} ms\n")


async def test_a_new_replica_reads_the_log_from_its_beginning_and_only_what_is_in_scope(
    kafka: Kafka, topic: str
) -> None:
    async with writing(kafka, topic) as truth:
        for owner in ("ann", "bob"):
            await truth.put(owner, f"{owner}-1")
            await truth.put(owner, f"{owner}-2")
        await truth.put("ann", "ann-1")
        await truth.put("ann", "ann-2", Status.DELETED)
        await truth.flush()

    async with mc.Replica(kafka.bootstrap, tenant="acme", owners=["ann"], topic=topic) as replica:
        assert held(replica) == {"ann-1": (2, "ann-1 as of 2")}
    async with mc.Replica(kafka.bootstrap, tenant="other", topic=topic) as replica:
        assert held(replica) == {}
    async with mc.Replica(kafka.bootstrap, tenant="acme", namespaces=["user/bob"], topic=topic) as replica:
        assert set(held(replica)) == {"bob-1", "bob-2"}


async def test_a_snapshot_and_the_tail_meet_without_a_hole(kafka: Kafka, topic: str) -> None:
    async with writing(kafka, topic) as truth:
        await truth.put("ann", "a")
        await truth.put("ann", "b")
        await truth.flush()

        async def snapshot() -> AsyncIterator[mc.Memory]:
            # Written while truth is being read: it is in both.
            await truth.put("ann", "b")
            await truth.flush()
            for memory in list(truth.memories.values()):
                yield mc.Memory.from_dict(memory.model_dump(mode="json"))

        async with mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, snapshot=snapshot) as replica:
            assert held(replica) == truth.present
            await truth.put("ann", "a")
            await truth.flush()
            await replica.wait_for("a", 2, PATIENCE)
            assert held(replica) == truth.present
            assert replica.status.counts.conflict == 0


async def test_a_hole_in_the_numbers_makes_the_owner_be_read_again(kafka: Kafka, topic: str) -> None:
    asked: list[mc.Owner] = []

    class Source:
        async def memories_of(self, tenant: str, owner: mc.Owner) -> Sequence[mc.Memory]:
            asked.append(owner)
            return [mc.Memory.from_dict(m.model_dump(mode="json")) for m in truth.memories.values()]

        async def deleted_at(self, memory_id: str) -> int | None:
            return None

        async def report_conflict(self, conflict: mc.Conflict) -> None:
            raise AssertionError("there is no conflict")

    timing = mc.Timing(watch=0.2, gap_grace=0.2)
    async with (
        writing(kafka, topic) as truth,
        mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, source=Source(), timing=timing) as replica,
    ):
        await truth.put("ann", "a")
        truth.memories["lost"] = make("ann", "lost", 1)
        truth.skip("ann", 1)
        await truth.put("ann", "b")
        await truth.flush()

        await until(lambda: held(replica) == truth.present, "the lost one is found in truth")
        await until(lambda: replica.status.open_gaps == 0, "the hole is closed")
    assert set(asked) == {mc.Owner("user", "ann")}


async def test_without_truth_at_hand_the_partition_is_read_again(kafka: Kafka, topic: str) -> None:
    timing = mc.Timing(watch=0.2, gap_grace=0.2, reread_rest=0.2)
    async with (
        writing(kafka, topic) as truth,
        mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, timing=timing) as replica,
    ):
        for name in ("a", "b", "c"):
            await truth.put("ann", name)
        await truth.put("ann", "b", Status.DELETED)
        await truth.flush()
        await replica.wait_for("b", 2, PATIENCE)
        # As if it had never arrived.
        del replica._core.state.entries["a"]
        truth.skip("ann", 3)
        await truth.put("ann", "c")
        await truth.flush()

        await until(lambda: replica.status.counts.resyncs == 1, "the partition is read again")
        await until(lambda: replica.status.open_gaps == 0, "the hole is closed")
        assert held(replica) == truth.present


async def test_what_was_erased_from_the_log_while_a_replica_was_away_is_gone_when_it_returns(
    kafka: Kafka, topics_prefix: str, create_topics: CreateTopics
) -> None:
    topic = f"{topics_prefix}truncated"
    create_topics(topic, partitions=1, config={"cleanup.policy": "delete"})
    store = mc.MemoryStore()

    async with writing(kafka, topic) as truth:
        await truth.send("ann", "a", truth.event(make("ann", "a", 1)).to_bytes(), partition=0)
        await truth.flush()
        async with mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, store=store) as replica:
            assert set(held(replica)) == {"a"}
        await truth.send("ann", "b", truth.event(make("ann", "b", 1)).to_bytes(), partition=0)
        await truth.send("ann", "c", truth.event(make("ann", "c", 1)).to_bytes(), partition=0)
        await truth.flush()

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 2)], operation_timeout=30).values()
    deleted.result(timeout=30)

    async with mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, store=store) as replica:
        assert set(held(replica)) == {"c"}
        assert replica.status.counts.log_resets == 1


async def test_after_a_long_absence_everything_is_read_again_since_tombstones_may_have_gone(
    kafka: Kafka, topic: str
) -> None:
    store = mc.MemoryStore()
    async with writing(kafka, topic) as truth:
        await truth.put("ann", "a")
        await truth.put("ann", "b")
        await truth.flush()
        async with mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, store=store) as replica:
            # Held from a place in the log where there is nothing of it any more: compaction took memory and tombstone.
            erased = mc.Memory.from_dict(make("ann", "erased", 1).model_dump(mode="json"))
            place = replica._core.state.entries["a"].place
            assert place is not None
            replica._core.state.apply(erased, now(), place)

        later = now() + timedelta(days=6)
        async with mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, store=store, now=lambda: later) as replica:
            assert held(replica) == truth.present


async def test_a_new_partition_is_noticed(kafka: Kafka, topic: str) -> None:
    timing = mc.Timing(watch=0.2)
    async with mc.Replica(kafka.bootstrap, tenant="acme", topic=topic, timing=timing) as replica:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        (grown,) = admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)], operation_timeout=30).values()
        grown.result(timeout=30)
        async with writing(kafka, topic) as truth:
            await truth.send("ann", "new", truth.event(make("ann", "new", 1)).to_bytes(), partition=PARTITIONS + 1)
            await truth.send("ann", "old", truth.event(make("ann", "old", 1)).to_bytes(), partition=0)
            await truth.flush()
        await replica.wait_for("new", 1, PATIENCE)
        await replica.wait_for("old", 1, PATIENCE)
        assert replica.status.partitions == PARTITIONS + 2


async def test_a_replica_waits_for_its_topic_and_for_its_broker(
    kafka: Kafka, topics_prefix: str, create_topics: CreateTopics
) -> None:
    name = f"{topics_prefix}not_yet"
    replica = mc.Replica(kafka.bootstrap, tenant="acme", topic=name)
    with pytest.raises(mc.WaitTimeout):
        await replica.start(timeout=0.5)
    await until(lambda: "TopicMissing" in replica.status.trouble, "the trouble is named")
    assert not replica.status.healthy()

    create_topics(name, partitions=1)
    await replica.wait_live(PATIENCE)
    assert replica.status.trouble == ""
    await replica.stop()

    nowhere = mc.Replica("127.0.0.1:9", tenant="acme", topic=name)
    with pytest.raises(mc.WaitTimeout):
        await nowhere.start(timeout=0.5)
    await nowhere.stop()


async def test_a_program_without_an_event_loop_has_a_replica_too(kafka: Kafka, topic: str) -> None:
    heard: list[str] = []
    threaded = mc.ThreadedReplica(lambda: mc.Replica(kafka.bootstrap, tenant="acme", topic=topic))
    threaded.on_change(lambda change: heard.append(change.memory_id), "user/ann")

    def use() -> mc.Memory | None:
        with threaded as replica:
            found = replica.wait_for("a", 1, PATIENCE)
            assert (replica.get("a"), [m.id for m in replica.memories(owner="ann")]) == (found, ["a"])
            assert replica.status.healthy(max_silence=PATIENCE)
            return found

    using = asyncio.create_task(asyncio.to_thread(use))
    async with writing(kafka, topic) as truth:
        await truth.put("ann", "a")
        await truth.flush()
        found = await using
    assert (found and found.version, heard) == (1, ["a"])
    with pytest.raises(mc.ReplicaStopped):
        threaded.get("a")
