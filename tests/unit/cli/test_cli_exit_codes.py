"""Command line: an expected trouble is one line that says what to do and exit code 2; a doctor's finding is exit code 1."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sinks.truth.migrate import upgrade
from streams.cli import main

Run = Callable[..., tuple[int, str, str]]
NOBODY = "127.0.0.1:1"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run(*arguments, NAME=value)`: exit code, stdout, stderr; in an empty directory and without this machine's settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("MEMRIVER_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEMRIVER_KAFKA_BOOTSTRAP", NOBODY)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments: str, **environment: str) -> tuple[int, str, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["memriver", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return command


def one_line(err: str) -> str:
    """The line of ours; a library may add one about the connection."""
    assert "Traceback" not in err
    [line] = [line for line in err.splitlines() if line.startswith("memriver: ")]
    return line


LOOKING = [
    ("memories", "list"),
    ("memories", "show", "x"),
    ("memories", "history", "x"),
    ("turns", "status", "x"),
    ("dlq", "list"),
    ("review", "list"),
    ("recall", "--owner", "u", "where do I live?"),
    ("context", "--owner", "u", "where do I live?"),
    ("export", "--owner", "u", "--out", "-"),
    ("keys", "list"),
    ("feedback", "rate"),
    ("reindex", "status"),
    ("erase", "status", "x"),
    ("doctor",),
]


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_who_only_looks_makes_no_database(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Scenario: somebody asks in the wrong directory. We expect a word about it, and the directory as it was."""
    code, out, err = run(*arguments)
    assert code != 0
    assert "memriver db upgrade" in out + err
    assert not (tmp_path / "memriver.db").exists()


@pytest.mark.parametrize(
    "arguments",
    [("memories", "list"), ("memories", "show", "x"), ("turns", "status", "x"), ("dlq", "list")],
    ids=" ".join,
)
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "missing"])
def test_without_a_schema_every_command_names_the_one_that_makes_it(
    run: Run, tmp_path: Path, empty: bool, arguments: tuple[str, ...]
) -> None:
    if empty:
        (tmp_path / "memriver.db").touch()
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert "memriver db upgrade" in one_line(err)


def test_the_doctor_names_the_command_for_each_thing_that_is_wrong(run: Run) -> None:
    code, out, _err = run("doctor", "--json")
    assert code == 1
    report = {row["part"]: row for row in json.loads(out)}
    assert all(set(row) == {"part", "state", "what"} for row in report.values())
    assert report["database"]["state"] == "wrong"
    assert "memriver db upgrade" in report["database"]["what"]
    assert report["kafka"]["state"] == "wrong"
    assert "memriver topics apply" in report["kafka"]["what"]
    assert report["model channel"]["state"] == "note"
    assert report["embedder"]["state"] == "ok"


def test_after_the_upgrade_the_doctor_has_no_complaint_about_the_database(run: Run) -> None:
    assert run("db", "upgrade")[0] == 0
    _code, out, _err = run("doctor", "--json")
    assert {row["part"]: row["state"] for row in json.loads(out)}["database"] == "ok"


@pytest.mark.parametrize(
    "arguments", [("memories", "show", "x"), ("memories", "history", "x"), ("turns", "status", "x")], ids=" ".join
)
def test_what_is_not_there_is_said_and_not_shown_as_nothing(
    run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    upgrade(f"sqlite:///{tmp_path / 'memriver.db'}")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert "not_found" in one_line(err)


def test_empty_lists_are_empty_json(run: Run, tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path / 'memriver.db'}")
    for arguments in (("memories", "list", "--json"), ("dlq", "list", "--json")):
        code, out, _err = run(*arguments)
        assert (code, json.loads(out)) == (0, [])


def test_a_wrong_setting_is_named_and_its_value_kept_to_itself(run: Run) -> None:
    code, _out, err = run("memories", "list", MEMRIVER_HTTP_PORT="99999999")
    assert code == 2
    assert "MEMRIVER_HTTP_PORT" in one_line(err)
    assert "99999999" not in err


def test_a_database_of_another_kind_is_refused_without_repeating_its_password(run: Run) -> None:
    code, _out, err = run("memories", "list", MEMRIVER_DATABASE_URL="postgresql://me:hunter2@db/x")
    assert code == 2
    assert "mysql+pymysql" in one_line(err)
    assert "hunter2" not in err


def test_importing_without_a_broker_says_where_nobody_answers(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"conversation_id":"c","turn_id":"t","user_id":"u","role":"user","text":"hi there","sent_at":"2026-03-02T01:00:00Z"}\n'
    )
    code, _out, err = run("import", str(log))
    assert code == 2
    assert NOBODY in one_line(err)


def test_redriving_nothing_in_particular_is_refused(run: Run) -> None:
    code, _out, err = run("dlq", "redrive")
    assert code == 2
    assert "--reason" in one_line(err)


def test_a_stage_that_does_not_exist_is_refused_with_those_that_do(run: Run) -> None:
    code, _out, err = run("worker", "--stages", "ingest,nonsense")
    assert code == 2
    assert "nonsense" in one_line(err) and "resolve" in one_line(err)


def test_replaying_batches_with_the_model_off_names_the_setting(run: Run) -> None:
    code, _out, err = run("replay", "batches")
    assert code == 2
    assert "MEMRIVER_MODEL_BASE_URL" in one_line(err)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("2024-05-01T10:00", "--sent-at takes a time with its zone"),
        ("yesterday", "--sent-at takes a time with its zone"),
        ("0001-01-01T00:00+14:00", "--sent-at takes a time with its zone"),
        ("2924-05-01", "lies ahead"),
    ],
)
def test_a_time_of_a_log_that_cannot_be_meant_is_refused_before_anything_is_done(
    run: Run, tmp_path: Path, given: str, said: str
) -> None:
    log = tmp_path / "chat.jsonl"
    log.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    for command in (("process", "--data", "data"), ("import",)):
        code, out, err = run(*command, str(log), "--sent-at", given)
        assert (code, out) == (2, "")
        assert said in one_line(err)
    assert not (tmp_path / "data").exists()
