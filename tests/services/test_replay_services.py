"""A replay on a real broker and a real database: killed, resumed, switched to by one RENAME TABLE, and rolled back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ops.dev.services import Kafka, MariaDb
from processors.exceptions import FatalError
from schemas import Role, Turn
from sinks.truth import Truth, make_engine, replays
from sinks.truth.beside import Beside
from streams.replay.comparing import Comparison
from streams.replay.judging import chosen
from streams.replay.merging import Merged
from streams.replay.operating import Operator
from tests.doubles.rerun import dump, rules_with_otters
from tests.services.deployment import Deployment, remains, same_events

PEOPLE = 20
TURNS = 1_200
_START = datetime(2026, 3, 2, 1, tzinfo=UTC)
_SAID = (
    "I live in {town}",
    "I'm allergic to {food}",
    "Which of the two offers is cheaper?",
    "I like {food}",
    "scratch that",
)
_TOWNS, _FOODS = ("Leeds", "Berlin", "Oslo"), ("peanuts", "mango", "basil", "rye")


@dataclass
class Seen:
    """What was come upon on the way."""

    killed_at: int = 0
    resumed: dict[str, Any] = field(default_factory=dict)
    clean: dict[str, Any] = field(default_factory=dict)
    same_rules: Comparison | None = None
    new_rule: Comparison | None = None
    refused: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    switched: Merged | None = None
    rolled_back: Merged | None = None
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, set[str]] = field(default_factory=dict)
    vectors: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)


def log() -> list[Turn]:
    """What twenty people say in turn; the last of them chose an animal, which the packaged rules do not understand."""
    found = []
    for number in range(TURNS):
        person = number % PEOPLE
        text = _SAID[number // PEOPLE % len(_SAID)].format(town=_TOWNS[number % 3], food=_FOODS[number % 4])
        if number == TURNS - 1:
            text = "I chose an otter as my mascot"
        found.append(
            Turn(
                tenant="acme",
                conversation_id=f"c{person}",
                turn_id=f"t{number}",
                user_id=f"p{person}",
                role=Role.USER,
                text=text,
                sent_at=_START + timedelta(seconds=number),
            )
        )
    return found


def kill_in_the_middle(deployment: Deployment, beside: Beside) -> int:
    """`memriver replay start`, killed as soon as its first transaction is there; returns how far it came."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRIVER_", "OPENAI_"))}
    environment = clean | {
        "MEMRIVER_KAFKA_BOOTSTRAP": deployment.kafka,
        "MEMRIVER_DATABASE_URL": deployment.database_url,
        "MEMRIVER_DATA_DIR": str(deployment.directory),
        "MEMRIVER_TOPIC_PREFIX": deployment.prefix,
        "MEMRIVER_HASH_KEY": "a key for tests only",
    }
    arguments = [sys.executable, "-m", "streams", "replay", "start", "--from-beginning", "--topic", "turns"]
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    truth = Truth(make_engine(beside.url))
    try:
        while not progress(truth):
            if process.poll() is not None:
                raise AssertionError((process.stderr.read() if process.stderr else b"").decode())
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        return progress(truth)
    finally:
        process.kill()
        process.communicate()
        truth.close()


def progress(beside: Truth) -> int:
    """Turns that are done, 0 while there is nothing."""
    try:
        with beside.reading() as connection:
            return replays.progress(connection).turns
    except (LookupError, FatalError):
        return 0  # its migration is under way


def bytes_of(beside: Beside) -> dict[str, Any]:
    truth = beside.open()
    try:
        return dump(truth)
    finally:
        truth.close()


@pytest.fixture(scope="module")
def seen(kafka: Kafka, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """One deployment for all of it."""
    directory = tmp_path_factory.mktemp("replay")
    name = f"memriver_{uuid.uuid4().hex[:12]}"
    # An administrator gives the account a second database; on a server of one's own `replay start` creates it.
    mariadb.create_database(f"{name}_replay")
    deployment = Deployment(kafka.bootstrap, mariadb.create_database(name), f"r{uuid.uuid4().hex[:10]}.", directory)
    try:
        yield scenario(deployment, directory)
    finally:
        deployment.close()
        mariadb.drop_database(name)
        mariadb.drop_database(f"{name}_replay")


def scenario(deployment: Deployment, directory: Path) -> Seen:
    seen = Seen()
    # As the workers have it.
    same = {"batch_seconds": 2.0, "session_timeout_seconds": 4.0}
    operator = Operator(deployment.settings.model_copy(update=same), now=lambda: datetime.now(UTC))
    packaged, otters = chosen(), chosen(str(rules_with_otters(directory / "rules")))
    with deployment.workers("ingest,extract,resolve,clock,bury") as processes:
        deployment.publish(log())
        deployment.wait(lambda: at_rest(deployment, TURNS), processes)
        seen.killed_at = kill_in_the_middle(deployment, operator.beside)
        asyncio.run(operator.start(packaged, packaged, topic="turns"))
        try:
            asyncio.run(operator.switch())
        except FatalError as error:
            seen.refused = str(error)
    seen.resumed = bytes_of(operator.beside)
    seen.same_rules = operator.diff(limit=20)
    operator.drop()
    asyncio.run(operator.start(packaged, packaged, topic="turns"))
    seen.clean = bytes_of(operator.beside)
    operator.drop()
    asyncio.run(operator.start(otters, packaged, topic="turns.sealed"))
    seen.new_rule = operator.diff(limit=20)
    look(seen, deployment, "before")
    seen.switched = asyncio.run(operator.switch())
    work_and_look(seen, deployment, "switched")
    seen.rolled_back = asyncio.run(operator.rollback())
    work_and_look(seen, deployment, "rolled back")
    operator.drop()
    return seen


def at_rest(deployment: Deployment, turns: int) -> bool:
    """Everything that was published has gone all the way."""
    found = deployment.counts()
    return found["turns"] >= turns and not (found["outbox"] or found["open_batches"] or found["pending"])


def work_and_look(seen: Seen, deployment: Deployment, name: str) -> None:
    """Workers start, send what waits for them, and stop."""
    with deployment.workers("ingest,extract,resolve,clock,bury") as processes:
        deployment.wait(lambda: at_rest(deployment, TURNS), processes)
    look(seen, deployment, name)


def look(seen: Seen, deployment: Deployment, name: str) -> None:
    seen.live[name] = remains(deployment.truth)
    seen.versions[name] = set(same_events(deployment.events()))
    seen.vectors[name] = deployment.vectors()


def test_a_replay_that_was_killed_is_taken_up_and_ends_like_one_that_was_not(seen: Seen) -> None:
    assert 0 < seen.killed_at < TURNS
    assert seen.resumed == seen.clean
    assert len(seen.clean["turns"]) == TURNS


def test_under_the_same_rules_the_replay_says_what_the_workers_said(seen: Seen) -> None:
    assert seen.same_rules is not None
    assert seen.same_rules.total.current == {"added": 0, "gone": 0, "changed": 0}
    assert seen.same_rules.same > PEOPLE


def test_a_new_rule_shows_exactly_its_difference(seen: Seen) -> None:
    assert seen.new_rule is not None
    current = [item for item in seen.new_rule.differences if item.current]
    assert [(item.kind, item.owner, item.value) for item in current] == [("added", f"p{PEOPLE - 1}", "otter")]


def test_a_switch_is_refused_while_workers_run(seen: Seen) -> None:
    assert "workers are running" in seen.refused


@pytest.mark.parametrize(("name", "status"), [("switched", "active"), ("rolled back", "retracted")])
def test_the_tables_are_exchanged_and_agents_and_vectors_follow(seen: Seen, name: str, status: str) -> None:
    before, after = seen.live["before"]["states"], seen.live[name]["states"]
    new = {key: state for key, state in after.items() if key not in before}
    assert [state[1] for state in new.values()] == [status]
    assert {key: state for key, state in after.items() if key in before} == before
    assert seen.versions[name] == seen.live[name]["versions"]
    assert seen.vectors[name] == after


def test_only_the_difference_is_sent(seen: Seen) -> None:
    assert seen.switched is not None
    assert seen.rolled_back is not None
    assert (seen.switched.events, seen.rolled_back.events) == ({"created": 1}, {"deleted": 1})
