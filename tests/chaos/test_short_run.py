"""A seeded run of chaos on real servers, short enough for every build: three workers, eight faults, nothing lost or doubled."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from ops.chaos.nursery import Nursery
from ops.chaos.report import as_json, as_row, as_text
from ops.chaos.run import Plan, Result, run
from ops.chaos.schedule import FaultKind, schedule
from ops.dev.services import Kafka, MariaDb

pytestmark = [pytest.mark.services, pytest.mark.slow]

SEED, SECONDS = 10, 20.0


@pytest.fixture(scope="module")
def result(kafka: Kafka, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Result:
    plan = Plan(SEED, SECONDS, rate=25.0, people=30, replayed=300)
    directory = tmp_path_factory.mktemp("chaos") / "run"
    left_behind(directory).parent.mkdir(parents=True)
    left_behind(directory).touch()
    with closing(Nursery()) as nursery:
        result = asyncio.run(run(plan, kafka, mariadb, nursery, directory))
    assert not left_behind(directory).exists(), "an earlier run's vectors would be counted with this one's"
    return result


def left_behind(directory: Path) -> Path:
    """A file among the vectors of an earlier run of the same seed."""
    return directory / "vectors" / "data" / "left-behind"


def test_every_invariant_holds_after_the_faults(result: Result) -> None:
    assert result.violations == [], as_text(result)


def test_what_was_planned_was_done(result: Result) -> None:
    planned = [fault.kind for fault in schedule(SEED, SECONDS, 3)]
    assert sorted(done.fault.kind for done in result.faults) == sorted(planned)
    assert {FaultKind.KILL} <= set(planned)


def test_people_were_heard_meanwhile(result: Result) -> None:
    assert result.counts["turns"] > 100
    assert result.counts["memories"] > 30
    assert result.counts["batches"] > 20


def test_the_report_says_what_was_done_and_found(result: Result, tmp_path: Path) -> None:
    report = as_json(result)
    assert report["seed"] == SEED
    assert report["passed"]
    assert len(report["faults"]) == len(result.faults)
    assert f"seed {SEED}: PASSED" in as_text(result)
    assert as_row(result).startswith(f"| {SEED} | `make chaos SEED={SEED}")
