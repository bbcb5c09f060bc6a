"""Replay on the command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from processors.exceptions import MemriverError
from schemas import Role, Turn
from sinks.truth import Truth, make_engine
from sinks.truth.beside import Beside
from streams.cli import app, main
from streams.settings import Settings
from tests.doubles.rerun import START, ListLog, replay, rules_with_otters


def said(number: int, text: str, user: str) -> Turn:
    given = {"tenant": "acme", "conversation_id": f"with-{user}", "turn_id": f"{user}-{number}", "user_id": user}
    return Turn(**given, role=Role.USER, text=text, sent_at=START)


TALK = [
    said(1, "I live in Leeds", "ann"),
    said(2, "I chose an otter as my mascot", "ann"),
    said(1, "I like basil", "bob"),
]


@pytest.fixture
def live(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of a live schema; no broker answers."""
    url = f"sqlite:///{tmp_path / 'memriver.db'}"
    shutil.copyfile(sqlite_template, tmp_path / "memriver.db")
    for name, value in (("DATABASE_URL", url), ("DATA_DIR", str(tmp_path)), ("KAFKA_BOOTSTRAP", "127.0.0.1:1")):
        monkeypatch.setenv(f"MEMRIVER_{name}", value)
    return url


@pytest.fixture
def beside(live: str, sqlite_template: Path, tmp_path: Path) -> Beside:
    """What the packaged rules make of the talk, live; beside it what a rule more does."""
    shutil.copyfile(sqlite_template, tmp_path / "nothing.db")
    place, log, given = Beside(live), ListLog(list(enumerate(TALK))), Settings(_env_file=None)
    place.create()
    nothing, here = Truth(make_engine(f"sqlite:///{tmp_path / 'nothing.db'}")), Truth(make_engine(live))
    there = place.open()
    replay(given, nothing, here, log)
    # What one replay left is another's live schema.
    with here.begin() as connection:
        for table in ("replays", "replay_positions", "replay_mark"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    replay(given, here, there, log, rules=str(rules_with_otters(tmp_path / "rules")))
    for truth in (nothing, here, there):
        truth.close()
    return place


def printed(*arguments: str) -> Any:
    """The JSON of a command that succeeds."""
    done = CliRunner().invoke(app, ["replay", *arguments, "--json"])
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def test_a_difference_is_counted_per_owner_and_in_sum_and_named(beside: Beside) -> None:
    found = printed("diff")
    assert {name: found["sum"][name] for name in ("added", "gone", "changed", "same")} == {
        "added": 1,
        "gone": 0,
        "changed": 0,
        "same": 2,
    }
    assert [(row["owner"], row["added"]) for row in found["owners"]] == [("ann", 1)]
    [row] = found["differences"]
    assert (row["kind"], row["attribute"], row["value"], row["replayed_status"]) == (
        "added",
        "mascot",
        "otter",
        "active",
    )
    shown = CliRunner().invoke(app, ["replay", "diff"])
    assert "1 added, 0 gone, 0 changed" in shown.stdout
    assert "otter" in shown.stdout


def test_status_says_where_it_stands_also_while_no_broker_answers(beside: Beside) -> None:
    found = printed("status")
    assert (found["state"], found["messages"], found["left"], found["topic"]) == ("caught_up", 3, None, "turns")
    assert found["batches"] == {"recorded": 0, "asked": 0, "waiting": 2, "in_flight": 0}


def test_drop_takes_it_away(beside: Beside) -> None:
    assert printed("drop") == {"dropped": True}
    assert not beside.exists()
    assert isinstance(CliRunner().invoke(app, ["replay", "status"]).exception, MemriverError)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["diff"], "there is no replay"),
        (["status"], "there is no replay"),
        (["switch"], "there is no replay"),
        (["rollback"], "there is no replay"),
        (["drop"], "there is no replay"),
        (["start"], "either --from-beginning or --since"),
        (["start", "--from-beginning", "--since", "2026-03-01"], "either --from-beginning or --since"),
        (["start", "--since", "last week"], "--since takes a time"),
        (["start", "--from-beginning", "--rules", "v7"], "there are no rules v7"),
        (["start", "--from-beginning", "--prompt", "v7"], "there is no prompt v7"),
        (["start", "--from-beginning", "--topic", "memory_updated"], "not in memory_updated"),
        (["start", "--from-beginning", "--topic", "turns"], "no broker answers"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(
    live: str,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["memriver", "replay", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not Beside(live).exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("- id: mascot", "- id: [mascot"), "no YAML"),
        (lambda text: text.replace("rules:", "rulez:", 1), "need rules"),
    ],
)
def test_broken_rules_are_refused_before_anything_is_begun(
    live: str, tmp_path: Path, change: Callable[[str], str], words: str
) -> None:
    path = rules_with_otters(tmp_path / "rules") / "en.yaml"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    done = CliRunner().invoke(app, ["replay", "start", "--from-beginning", "--rules", str(path)])
    assert words in str(done.exception)
    assert not Beside(live).exists()
