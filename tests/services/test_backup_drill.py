"""The drill on real servers: a backup while workers run, turns after it, database and vectors lost, and all of it back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import select

from ops.dev.services import Kafka, MariaDb
from processors.exceptions import FatalError
from schemas import Turn
from sinks.truth import Truth, make_engine, tables, whole
from sinks.truth.migrate import current, upgrade
from streams.backup.positions import Place, positions, reset
from streams.backup.republish import republish
from streams.backup.taking import look, restore, take
from streams.importers import ImportOptions, Record, read_log
from streams.portability.signing import Signer
from tests.doubles.clean_run import clean_run
from tests.services.deployment import Deployment, counts, remains, settled

DEMO = Path(__file__).parents[2] / "ops" / "demo" / "gateway.jsonl"
WORKER = "ingest,extract,resolve,clock,bury,reindex"


@dataclass(frozen=True)
class Run:
    """What was there before the loss, right after the restore, and when the workers had caught up."""

    backed_up: dict[str, int]
    just_restored: dict[str, int]
    before: dict[str, Any]
    after: dict[str, Any]
    vectors: dict[str, tuple[int, str]]
    places: list[Place]
    late_places: list[Place]
    refusal: str
    differs: dict[str, int]


@pytest.fixture(scope="module")
def run(kafka: Kafka, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    directory = tmp_path_factory.mktemp("drill")
    names = [f"memriver_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    prefix, records = f"b{uuid.uuid4().hex[:10]}.", list(read_log(DEMO, None, ImportOptions(tenant="demo")))
    early, late = records[:60], records[60:]
    (directory / "first").mkdir()
    (directory / "second").mkdir()
    first = Deployment(kafka.bootstrap, mariadb.create_database(names[0]), prefix, directory / "first")
    signer = Signer.of(first.settings)
    try:
        with first.workers(WORKER) as processes:
            letters = first.publish(early).bad
            half = _goal(first, directory, early, letters)
            first.wait(lambda: settled(first.counts(), half), processes)
            read = asyncio.run(positions(first.settings))
            made = take(
                first.truth,
                directory / "truth.backup",
                revision=current(first.database_url),
                positions=read,
                signer=signer,
                now=datetime.now(UTC),
            )
            with pytest.raises(FatalError) as refused:
                asyncio.run(reset(first.settings, read))
            letters += first.publish(late).bad
            goal = _goal(first, directory, records, letters)
            first.wait(lambda: settled(first.counts(), goal), processes)
        before = remains(first.truth)
        # The database is gone, and so are the vectors: the next worker has another directory.
        first.truth.close()
        mariadb.drop_database(names[0])
        url = mariadb.create_database(names[1])
        manifest = look(directory / "truth.backup", signer)
        assert manifest.positions is not None
        restore(url, directory / "truth.backup")
        second = Deployment(kafka.bootstrap, url, prefix, directory / "second")
        with second.truth.reading() as connection:
            just_restored = whole.sizes(connection)
        places = asyncio.run(reset(second.settings, manifest.positions))
        with second.workers(WORKER) as processes:
            second.wait(lambda: settled(second.counts(), goal) and _repaired(second.truth), processes)
            asyncio.run(republish(second.settings, second.truth, now=datetime.now(UTC)))
            second.wait(lambda: not _differences(second)["commands"], processes)
            differs = _differences(second)
        after = remains(second.truth)
        # Later still: the log has dropped its beginning, and one group knows a log that was longer than this one.
        _forget_turns(second)
        wanted = {**manifest.positions, "feedback": {"feedback": {0: 10**9}}}
        late_places = asyncio.run(reset(second.settings, wanted))
        yield Run(
            made.counts,
            just_restored,
            before,
            after,
            second.vectors(),
            places,
            late_places,
            str(refused.value),
            differs,
        )
    finally:
        first.close()
        for name in names:
            mariadb.drop_database(name)


def _goal(deployment: Deployment, directory: Path, records: list[Record], letters: list[Any]) -> dict[str, int]:
    """Rows after an undisturbed run over these records."""
    path = directory / f"clean-{len(records)}.db"
    upgrade(f"sqlite:///{path}")
    clean = Truth(make_engine(f"sqlite:///{path}"))
    try:
        turns = [item.to_bytes() for item in records if isinstance(item, Turn)]
        asyncio.run(clean_run(clean, deployment.settings, turns, [letter.to_bytes() for letter in letters]))
        return counts(clean)
    finally:
        clean.close()


def _forget_turns(deployment: Deployment) -> None:
    """Retention has passed over everything on `turns`."""
    topic = deployment.settings.topic("turns")
    admin = AdminClient({"bootstrap.servers": deployment.kafka})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    wanted = [TopicPartition(topic, number, OFFSET_END) for number in partitions]
    for done in admin.delete_records(wanted, operation_timeout=30).values():
        done.result()


def _repaired(truth: Truth) -> bool:
    with truth.reading() as connection:
        return set(connection.execute(select(tables.collections.c.task)).scalars()) == {None}


def _differences(deployment: Deployment) -> dict[str, int]:
    now = datetime.now(UTC)
    return asyncio.run(republish(deployment.settings, deployment.truth, now=now, dry_run=True)).view()


def test_the_groups_stand_where_the_backup_stood_and_not_while_workers_run(run: Run) -> None:
    assert "stop all workers first" in run.refusal
    assert {place.topic for place in run.places} == {
        "turns",
        "batches",
        "candidates",
        "commands",
        "feedback",
        "deadletters",
    }
    assert sum(place.offset for place in run.places if place.topic == "turns") > 0
    assert not any(place.lost or place.remade for place in run.places)


def test_what_the_log_no_longer_has_is_said_and_another_log_is_read_from_its_beginning(run: Run) -> None:
    lost = {(place.topic, place.lost > 0) for place in run.late_places if place.lost}
    assert lost == {("turns", True)}
    [remade] = [place for place in run.late_places if place.remade]
    assert (remade.topic, remade.offset, remade.lost) == ("feedback", 0, 0)


def test_a_restored_database_has_every_row(run: Run) -> None:
    assert run.just_restored == run.backed_up
    assert run.backed_up["memories"] > 0
    assert run.backed_up["turns"] < len(run.before["turns"])


@pytest.mark.parametrize("what", ["turns", "claims", "decisions", "retractions", "letters", "active", "inactive"])
def test_what_came_later_is_read_again_and_truth_is_what_it_was(run: Run, what: str) -> None:
    assert run.after[what] == run.before[what]
    assert run.before[what]


def test_the_vectors_are_those_of_truth(run: Run) -> None:
    assert run.vectors == run.after["states"]


def test_the_events_topic_ends_with_truth(run: Run) -> None:
    assert run.differs == {"compared": len(run.after["states"]), **dict.fromkeys(list(run.differs)[1:], 0)}
