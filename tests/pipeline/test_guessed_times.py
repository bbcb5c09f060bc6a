"""Guessed times: a log without times may be touched and imported again, and "last month" is no date in it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams.cli import app

TALK = {
    "messages": [
        {"role": "user", "content": "I moved to Rome last month."},
        {"role": "assistant", "content": "How is it there?"},
        {"role": "user", "content": "I'm allergic to peanuts."},
    ]
}
TOUCHED = (1_700_000_000, 1_750_000_000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text(json.dumps(TALK) + "\n")
    return path


def process(log: Path, directory: Path, *more: str) -> dict[str, Any]:
    arguments = ["process", str(log), "--data", str(directory), "--json", *more]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def home(result: dict[str, Any]) -> datetime:
    [found] = [row for row in result["memories"] if row["attribute"] == "residence"]
    return datetime.fromisoformat(found["valid_from"])


def test_a_log_that_was_touched_is_the_same_log(log: Path, tmp_path: Path) -> None:
    """Scenario: an export without times is copied, which gives it a new modification time, and processed again; then
    somebody says when the talk was. We expect the turns to be known each time, and no dead letter."""
    results = []
    for number, more in enumerate(((), (), ("--sent-at", "2024-05-20"))):
        moment = TOUCHED[min(number, 1)]
        os.utime(log, (moment, moment))
        results.append(process(log, tmp_path / "data", *more))
    assert [result["dead_letters"] for result in results] == [[], [], []]
    assert results[0]["memories"] == results[1]["memories"] == results[2]["memories"]
    assert len(results[0]["memories"]) == 2


def test_a_relative_date_counts_from_the_time_that_was_given_and_from_no_other(log: Path, tmp_path: Path) -> None:
    os.utime(log, (TOUCHED[0], TOUCHED[0]))
    assert home(process(log, tmp_path / "guessed")) == datetime.fromtimestamp(TOUCHED[0], UTC)
    given = process(log, tmp_path / "given", "--sent-at", "2024-05-20", "--timezone", "Asia/Shanghai")
    assert home(given) == datetime(2024, 3, 31, 16, tzinfo=UTC)
    zoned = process(log, tmp_path / "zoned", "--sent-at", "2024-05-31T23:30-05:00")
    assert home(zoned) == datetime(2024, 5, 1, tzinfo=UTC)
