"""The whole path on a real broker and a real database, its stages split over two workers, beside a clean run on SQLite."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ops.dev.services import Kafka, MariaDb
from schemas import Turn
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from streams.importers import ImportOptions, read_log
from tests.doubles.clean_run import clean_run
from tests.services.deployment import Deployment, counts, remains, same_events, settled

DEMO = Path(__file__).parents[2] / "ops" / "demo" / "gateway.jsonl"


@dataclass(frozen=True)
class Run:
    """What the deployment left, and what it should have."""

    left: dict[str, Any]
    wanted: dict[str, Any]
    after_replay: dict[str, Any]
    events: list[tuple[str, bytes, bytes | None]]
    events_before_replay: int
    vectors: dict[str, tuple[int, str]]
    outbox: int


@pytest.fixture(scope="module")
def run(kafka: Kafka, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The demo log through two workers; then the whole log once more."""
    directory = tmp_path_factory.mktemp("whole")
    name = f"memriver_{uuid.uuid4().hex[:12]}"
    deployment = Deployment(kafka.bootstrap, mariadb.create_database(name), f"w{uuid.uuid4().hex[:10]}.", directory)
    url = f"sqlite:///{directory / 'clean.db'}"
    upgrade(url)
    clean = Truth(make_engine(url))
    try:
        published = deployment.publish(read_log(DEMO, None, ImportOptions(tenant="demo")))
        turns = [item for item in read_log(DEMO, None, ImportOptions(tenant="demo")) if isinstance(item, Turn)]
        letters = [letter.to_bytes() for letter in published.bad]
        asyncio.run(clean_run(clean, deployment.settings, [turn.to_bytes() for turn in turns], letters))
        goal = counts(clean)
        with deployment.workers("ingest", "extract,resolve,clock,bury") as processes:
            deployment.wait(lambda: settled(deployment.counts(), goal), processes)
            left, events = remains(deployment.truth), len(deployment.events())
            deployment.publish(turns)
            # A marker behind the second delivery of each conversation: once it is stored, all before it was seen.
            ends = [turn.model_copy(update={"turn_id": "end", "text": "哈哈哈"}) for turn in _last(turns)]
            deployment.publish(ends)
            wanted = goal | {"turns": goal["turns"] + len(ends)}
            deployment.wait(lambda: settled(deployment.counts(), wanted), processes)
        yield Run(
            left,
            remains(clean),
            remains(deployment.truth),
            deployment.events(),
            events,
            deployment.vectors(),
            deployment.counts()["outbox"],
        )
    finally:
        clean.close()
        deployment.close()
        mariadb.drop_database(name)


def _last(turns: list[Turn]) -> list[Turn]:
    return list({turn.conversation_key: turn for turn in turns}.values())


@pytest.mark.parametrize("what", ["turns", "claims", "decisions", "retractions", "letters", "active", "inactive"])
def test_truth_is_that_of_a_clean_run(run: Run, what: str) -> None:
    assert run.left[what] == run.wanted[what]
    assert run.wanted[what]


def test_the_whole_log_again_changes_nothing(run: Run) -> None:
    for what in ("claims", "decisions", "retractions", "letters", "states", "versions"):
        assert run.after_replay[what] == run.left[what], what
    assert run.after_replay["turns"].items() >= run.left["turns"].items()
    assert len(run.events) == run.events_before_replay


def test_each_version_is_on_the_topic(run: Run) -> None:
    assert same_events(run.events).keys() == run.left["versions"]
    assert run.outbox == 0


def test_an_owners_events_are_in_one_partition_and_in_order(run: Run) -> None:
    partitions: dict[str, set[str]] = {}
    numbers: dict[str, list[int]] = {}
    for place, _key, value in run.events:
        if value is not None:
            event = same_events([(place, _key, value)]).popitem()[1]
            partitions.setdefault(event.memory.owner, set()).add(place.split(":")[0])
            numbers.setdefault(event.memory.owner, []).append(event.owner_seq)
    assert all(len(found) == 1 for found in partitions.values())
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


def test_the_vectors_are_at_the_version_and_status_of_truth(run: Run) -> None:
    assert run.vectors == run.left["states"]
