"""Erasure on real servers: one of two people goes while turns keep coming and the worker is killed; no trace, no loss."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from sqlalchemy import select

from ops.dev.services import Kafka
from schemas import Turn
from sinks.truth import erasure, memories
from sinks.truth.erasure import Erasure, Scope
from sinks.truth.tables import metadata
from streams.erasing.composing import make_opening
from streams.erasing.opening import Wish
from streams.runtime import wall_clock
from tests.services.deployment import Deployment

STAGES = "ingest,resolve,extract,feedback,clock,bury,erasure"
ANN, BOB = "zz-ann-zz", "bob-stays"
TRACES = (b"zz-ann-zz", b"annweed")
MEMORIES = 200
"""Of each of the two."""
START = datetime(2026, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def deployment(kafka: Kafka, database_url: str, topics_prefix: str, tmp_path: Path) -> Iterator[Deployment]:
    """Whose erasures also cut the transit topics."""
    running = Deployment(kafka.bootstrap, database_url, topics_prefix, tmp_path)
    running.environment["MEMRIVER_ERASURE_TRIMS_TOPICS"] = "true"
    yield running
    running.close()


def word(number: int) -> str:
    """A value of its own for each number, in letters."""
    return "".join(chr(97 + int(digit)) for digit in f"{number:04d}")


def said(user: str, number: int) -> Turn:
    """Allergies, since a person may have many."""
    weed = "annweed" if user == ANN else "bobnut"
    return Turn(
        tenant="acme",
        conversation_id=f"{user}-chat-{number % 5}",
        turn_id=f"{user}-{number}",
        user_id=user,
        role="user",
        text=f"I'm allergic to {weed}{word(number)}.",
        sent_at=START + timedelta(seconds=number),
    )


def messages(deployment: Deployment, name: str) -> list[tuple[bytes, bytes | None]]:
    """(key, value) of everything that can still be read from a topic."""
    topic = deployment.settings.topic(name)
    consumer = Consumer(
        {"bootstrap.servers": deployment.kafka, "group.id": f"{topic}-reader", "enable.auto.commit": False}
    )
    try:
        found: list[tuple[bytes, bytes | None]] = []
        for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                found.append((message.key() or b"", message.value()))
                if (message.offset() or 0) >= high - 1:
                    break
        return found
    finally:
        consumer.close()


def dump(deployment: Deployment) -> bytes:
    """Every row of every table, as a database dump would have it."""
    rows: list[bytes] = []
    with deployment.truth.reading() as connection:
        for table in metadata.sorted_tables:
            rows += [repr(tuple(row)).encode() for row in connection.execute(select(table))]
    return b"\n".join(rows)


def of(deployment: Deployment, owner: str) -> dict[str, str]:
    with deployment.truth.reading() as connection:
        return {memory.id: memory.text for memory in memories.listing(connection, owner=owner)}


def test_one_of_two_people_goes_while_turns_keep_coming_and_the_worker_dies(deployment: Deployment) -> None:
    deployment.publish(said(user, number) for number in range(MEMORIES) for user in (ANN, BOB))
    wish = Wish(Scope.OWNER, "acme", ANN)
    halt = threading.Event()
    sent = itertools.count(MEMORIES)
    told: list[int] = []

    def keep_talking() -> None:
        while not halt.is_set():
            numbers = [next(sent) for _ in range(5)]
            deployment.publish(said(user, number) for number in numbers for user in (ANN, BOB))
            told.extend(numbers)

    def state() -> Erasure:
        with deployment.truth.reading() as connection:
            found = erasure.get(connection, asked.erasure_id)
        assert found is not None
        return found

    talking = threading.Thread(target=keep_talking)
    with deployment.workers(STAGES) as workers:
        deployment.wait(lambda: len(of(deployment, ANN)) == len(of(deployment, BOB)) == MEMORIES, workers)
        talking.start()
        opening = make_opening(deployment.settings, deployment.truth)
        asked = opening.open(wish, by="test", reason="drill", now=wall_clock())
        deployment.wait(lambda: bool(state().steps), workers)
        workers[0].kill()
        workers[0].wait()
    with deployment.workers(STAGES) as workers:
        deployment.wait(lambda: len(told) >= 40, workers)
        halt.set()
        talking.join()
        deployment.wait(lambda: state().status == "done", workers)
        deployment.wait(lambda: len(of(deployment, BOB)) == MEMORIES + len(told), workers)
        receipt: dict[str, Any] = dict(state().receipt or {})
        # Once more, all of it: a re-import brings nothing back.
        deployment.publish(said(user, number) for number in range(20) for user in (ANN, BOB))
        last = [said(BOB, 9_999)]
        deployment.publish(last)
        deployment.wait(lambda: any("jjjj" in text for text in of(deployment, BOB).values()), workers)
    assert receipt["remaining"] == dict.fromkeys(receipt["remaining"], 0)
    assert receipt["erased"]["memories"] >= MEMORIES
    assert receipt["topics_cut"] > 0
    assert of(deployment, ANN) == {}
    assert len(of(deployment, BOB)) == MEMORIES + len(told) + 1
    everything = dump(deployment)
    assert not any(trace in everything for trace in TRACES)
    # What others came to know: the last word on each of her memories is a tombstone, which compaction leaves alone.
    last_word = dict(messages(deployment, "memory_updated"))
    assert sum(value is None for value in last_word.values()) >= MEMORIES
    assert not any(trace in value for value in last_word.values() if value is not None for trace in TRACES)
    sealed = b"".join(key + (value or b"") for key, value in messages(deployment, "turns.sealed"))
    assert sealed
    assert not any(trace in sealed for trace in TRACES)
    # Cut at the erasure's moment; what came later by a gateway's hand was refused, and ages out.
    for name in ("batches", "candidates", "commands", "feedback", "deadletters"):
        left = b"".join(key + (value or b"") for key, value in messages(deployment, name))
        assert not any(trace in left for trace in TRACES), name
    vectors = b"".join(
        path.read_bytes() for path in sorted((deployment.directory / "vectors").rglob("*")) if path.is_file()
    )
    assert vectors
    assert not any(trace in vectors for trace in TRACES)
