"""Killed without warning in the middle of the work, twice: nothing is lost, nothing is doubled (SPEC W12)."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from ops.dev.services import Kafka, MariaDb
from schemas import MemoryUpdated, Role, Turn
from sinks.truth import Truth, make_engine, tables
from sinks.truth.migrate import upgrade
from tests.doubles.clean_run import clean_run
from tests.services.deployment import Deployment, counts, remains, same_events, settled

TURNS = 3_000
PEOPLE = 150
_START = datetime(2026, 3, 2, 1, tzinfo=UTC)
_FACTS = (
    "我住在{x}",
    "记住我对{x}过敏",
    "I live in {x}.",
    "我喜欢{x}",
    "我在{x}上班",
    "Remember that my desk number is {x}",
)
_VALUES = ("花生", "芒果", "上海", "杭州", "Leeds", "Berlin", "腾讯", "爬山", "摄影")
_CHAT = (
    "帮我看一下第{n}场会议能不能往后挪半个小时",
    "The export job {n} failed again last night, which step broke?",
    "哈哈哈",
)


def conversation_log() -> list[Turn]:
    """Bilingual talk of many people, interleaved: facts, small talk, things taken back, edits, deletions, repeats."""
    rng = random.Random(3)
    log: list[Turn] = []
    last: dict[int, Turn] = {}
    number = 0
    while len(log) < TURNS - PEOPLE:
        number += 1
        person, kind = rng.randrange(PEOPLE), rng.random()
        role, text = Role.USER, rng.choice(_CHAT).format(n=number)
        if kind < 0.35:
            text = rng.choice(_FACTS).format(x=rng.choice(_VALUES))
        elif kind < 0.40:
            text = "刚才说错了当我没说"
        elif kind < 0.43 and person in last:
            log.append(last[person].model_copy(update={"text": "我喜欢游泳", "revision": last[person].revision + 1}))
            last[person] = log[-1]
            continue
        elif kind < 0.45 and person in last:
            update = {"text": "", "revision": last[person].revision + 1, "deleted": True}
            log.append(last.pop(person).model_copy(update=update))
            continue
        elif kind < 0.48 and person in last:
            log.append(last[person])
            continue
        elif kind < 0.65:
            role = Role.ASSISTANT
        turn = Turn(
            tenant="acme",
            conversation_id=f"c{person}",
            turn_id=f"t{number}",
            user_id=f"u{person}",
            role=role,
            text=text,
            sent_at=_START + timedelta(seconds=number),
            timezone="Asia/Shanghai",
        )
        if role is Role.USER:
            last[person] = turn
        log.append(turn)
    for person in range(PEOPLE):
        number += 1
        log.append(
            Turn(
                tenant="acme",
                conversation_id=f"c{person}",
                turn_id=f"t{number}",
                user_id=f"u{person}",
                role=Role.USER,
                text=f"That is all for today, ticket {number}.",
                sent_at=_START + timedelta(seconds=number),
                conversation_end=True,
            )
        )
    return log


@dataclass(frozen=True)
class Killed:
    """What is left after two kills, and after none."""

    left: dict[str, Any]
    wanted: dict[str, Any]
    counts: dict[str, int]
    events: list[tuple[str, bytes, bytes | None]]
    vectors: dict[str, tuple[int, str]]
    batched: Counter[str]
    kills: int


@pytest.fixture(scope="module")
def killed(kafka: Kafka, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """The log on the real servers with a worker that is killed twice, beside an undisturbed run on SQLite."""
    directory = tmp_path_factory.mktemp("killed")
    log = conversation_log()
    name = f"memriver_{uuid.uuid4().hex[:12]}"
    deployment = Deployment(kafka.bootstrap, mariadb.create_database(name), f"k{uuid.uuid4().hex[:10]}.", directory)
    quiet_url = f"sqlite:///{directory / 'quiet.db'}"
    upgrade(quiet_url)
    quiet = Truth(make_engine(quiet_url))
    try:
        asyncio.run(clean_run(quiet, deployment.settings, [turn.to_bytes() for turn in log]))
        wanted, goal = remains(quiet), counts(quiet)
        deployment.publish(log)
        kills = 0
        for share in (0.2, 0.6):
            process = deployment.start("ingest,extract,resolve,clock,bury")
            target = int(goal["turns"] * share)
            deployment.wait(lambda target=target: deployment.counts()["turns"] >= target, [process])  # type: ignore[misc]  # bound now
            process.kill()
            process.wait()
            kills += 1
        with deployment.workers("ingest,extract,resolve,clock,bury") as processes:
            deployment.wait(lambda: settled(deployment.counts(), goal), processes)
        yield Killed(
            remains(deployment.truth),
            wanted,
            deployment.counts(),
            deployment.events(),
            deployment.vectors(),
            _batched(deployment.truth),
            kills,
        )
    finally:
        quiet.close()
        deployment.close()
        mariadb.drop_database(name)


def _batched(truth: Truth) -> Counter[str]:
    """How many batches hold each turn."""
    with truth.reading() as connection:
        rows = connection.execute(select(tables.batches.c.turn_keys)).scalars()
        return Counter(key for row in rows for key in orjson.loads(row))


def test_it_was_killed_in_the_middle(killed: Killed) -> None:
    assert killed.kills == 2
    assert len(killed.wanted["turns"]) > TURNS * 0.8
    assert len(killed.wanted["active"]) > PEOPLE


@pytest.mark.parametrize("what", ["turns", "claims", "decisions", "retractions", "letters", "active", "inactive"])
def test_truth_is_that_of_an_undisturbed_run(killed: Killed, what: str) -> None:
    assert killed.left[what] == killed.wanted[what]


def test_nothing_waits_in_the_outbox(killed: Killed) -> None:
    assert killed.counts["outbox"] == 0


def test_every_version_is_on_the_topic_and_a_repetition_is_the_same(killed: Killed) -> None:
    assert same_events(killed.events).keys() == killed.left["versions"]


def test_versions_are_counted_without_a_gap(killed: Killed) -> None:
    states = killed.left["states"].items()
    assert killed.left["versions"] == {f"{key}:{n}" for key, (last, _status) in states for n in range(1, last + 1)}


def test_the_last_message_of_each_memory_is_its_newest_version(killed: Killed) -> None:
    """Compaction keeps the last one: an older version after a newer one would be what an agent rebuilds from."""
    last: dict[bytes, int] = {}
    for _place, key, value in killed.events:
        if value is not None:
            last[key] = MemoryUpdated.from_bytes(value).memory.version
    assert {key.decode(): version for key, version in last.items()} == {
        key: version for key, (version, _status) in killed.left["states"].items()
    }


def test_an_owners_events_are_numbered_without_a_gap(killed: Killed) -> None:
    numbers: dict[str, set[int]] = {}
    for event in same_events(killed.events).values():
        numbers.setdefault(event.memory.owner, set()).add(event.owner_seq)
    assert all(found == set(range(1, len(found) + 1)) for found in numbers.values())


def test_the_vectors_are_at_the_version_and_status_of_truth(killed: Killed) -> None:
    assert killed.vectors == killed.left["states"]


def test_no_turn_is_in_more_batches_than_it_has_revisions(killed: Killed) -> None:
    edits = Counter(revision for revision, _outcome, _reason in killed.left["turns"].values())
    assert max(killed.batched.values()) <= max(edits) + 1
