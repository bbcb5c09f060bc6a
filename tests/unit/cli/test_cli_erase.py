"""Command line, erasing: what cannot be meant is one line and exit code 2, and nothing changed; a wish is on record at once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sinks.sealing import DEVELOPMENT_KEY
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from streams.cli import main
from streams.sealing import make_sealer
from streams.settings import Settings
from tests.doubles.records import at, turn

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run(*arguments)`: exit code, stdout, stderr; ann of acme has said something, and no worker runs."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("MEMRIVER_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    upgrade("sqlite:///memriver.db")
    truth = Truth(make_engine("sqlite:///memriver.db"))
    door = make_sealer(Settings(_env_file=None))
    truth.run(lambda connection: door.admit(connection, [turn(1)], at(1)))
    truth.close()
    capfd.readouterr()

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memriver", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("erase", "owner", "nobody", "--tenant", "acme", "--yes"), "no such owner"),
        (("erase", "owner", "ann", "--tenant", "other", "--yes"), "no such owner"),
        (("erase", "conversation", "c9", "--tenant", "acme", "--yes"), "no such conversation"),
        (("erase", "memory", "m", "--tenant", "acme", "--yes"), "no such memory"),
        (("erase", "tenant", "other", "--yes"), "no such tenant"),
        (("erase", "owner", "ann", "--yes", "--data", "nowhere"), "--data"),
        (("erase", "status", "no"), "no such erasure"),
        (("erase", "verify", "missing.json"), "cannot be read"),
        (("erase", "verify", "memriver.db"), "not a receipt"),
        (("erase", "lift", "--owner", "ann", "--tenant", "acme"), "no erased owner"),
        (("erase", "lift"), "--owner or --conversation"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant_is_refused_in_one_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run(*arguments)
    [line] = [line for line in err.splitlines() if line.startswith("memriver: ")]
    assert (code, out) == (2, "")
    assert words in line
    assert json.loads(run("erase", "status", "--json")[1]) == []


def test_without_a_yes_it_asks_and_a_no_changes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.confirm", _no)
    code, _out, _err = run("erase", "owner", "ann", "--tenant", "acme")
    assert code == 1
    assert json.loads(run("erase", "status", "--json")[1]) == []


def _no(text: str, **_options: object) -> None:
    raise SystemExit(1)


def test_a_wish_is_on_record_at_once_and_waits_for_a_worker(run: Run) -> None:
    code, out, _err = run("erase", "owner", "ann", "--tenant", "acme", "--yes", "--wait", "0", "--json")
    asked = json.loads(out)
    assert (code, asked["status"], asked["steps"]) == (0, "open", "")
    [listed] = json.loads(run("erase", "status", "--json")[1])
    assert listed["erasure_id"] == asked["erasure_id"]
    again = json.loads(run("erase", "owner", "ann", "--tenant", "acme", "--yes", "--wait", "0", "--json")[1])
    assert again["erasure_id"] == asked["erasure_id"]


def test_the_doctor_says_that_everybody_has_the_development_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> dict[str, str]:
        return {row["part"]: row["what"] for row in json.loads(run("doctor", "--json")[1])}

    monkeypatch.setenv("MEMRIVER_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert "MEMRIVER_MASTER_KEY" in state()["master key"]
    monkeypatch.setenv("MEMRIVER_MASTER_KEY", "bW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW0=")
    assert "master key" not in state()


def test_rotating_the_master_key_says_how_many_were_wrapped_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _out, err = _rotated(run, monkeypatch, previous="")
    assert code == 2
    assert "MEMRIVER_MASTER_KEY_PREVIOUS" in err
    code, out, _err = _rotated(run, monkeypatch, previous=DEVELOPMENT_KEY)
    assert (code, json.loads(out)["rewrapped"]) == (0, 1)


def _rotated(run: Run, monkeypatch: pytest.MonkeyPatch, previous: str) -> tuple[int, str, str]:
    monkeypatch.setenv("MEMRIVER_MASTER_KEY", "bW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW0=")
    monkeypatch.setenv("MEMRIVER_MASTER_KEY_PREVIOUS", previous)
    return run("keys", "rotate-master", "--json")


def test_an_erasure_that_takes_longer_than_promised_is_wrong_to_the_doctor(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> str | None:
        found = {row["part"]: row["state"] for row in json.loads(run("doctor", "--json")[1])}
        return found.get("erasures")

    monkeypatch.setenv("MEMRIVER_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert state() is None
    run("erase", "owner", "ann", "--tenant", "acme", "--yes", "--wait", "0")
    assert state() == "note"
    monkeypatch.setenv("MEMRIVER_ERASURE_SLA_HOURS", "0.0000001")
    assert state() == "wrong"
