"""Bad input: a broken record is a dead letter that names file and line, an unreadable file is one clear line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streams.cli import main
from tests.pipeline.river import Left, process, said, write_log

NESTED: list[object] = []
for _level in range(60):
    NESTED = [NESTED]
FUTURE = (datetime.now(UTC) + timedelta(days=900)).isoformat()


def without(name: str, number: int) -> dict[str, object]:
    """A line that lacks a field."""
    return {key: value for key, value in said(number, f"line {number} has no {name}").items() if key != name}


# Each line with the reason of its dead letter; None: the line is fine.
LINES: list[tuple[dict[str, object] | bytes, str | None]] = [
    (said(1, "我住在北京"), None),
    (b'{"text": "cut off in the mid', "not_json"),
    (b"plain words", "not_json"),
    (b"[1, 2, 3]", "not_an_object"),
    (b'{"conversation_id": "c1", "turn_id": "t5", "text": "\xff\xfe\x80"}', "encoding"),
    (rb'{"tenant":"acme","conversation_id":"c1","turn_id":"t6","user_id":"ann","role":"user","text":"cut emoji \ud83d",'
     rb'"sent_at":"2026-03-02T01:06:00Z"}', "lone_surrogate"),
    (without("sent_at", 7), "missing_sent_at"),
    (said(8, "from the future", sent_at=FUTURE), "future_sent_at"),
    (said(9, "a bot", role="moderator"), "unknown_role"),
    (said(10, "from a newer gateway", schema_version=99), "unknown_schema_version"),
    (said(11, "nowhere", timezone="Mars/Olympus"), "bad_timezone"),
    (without("turn_id", 12), "missing_turn_id"),
    (without("user_id", 13), "missing_user_id"),
    (said(14, ""), "empty_turn"),
    (said(15, "x" * 100_001), "text_too_long"),
    (said(16, "not a date", sent_at="yesterday"), "bad_sent_at"),
    (said(17, "no zone", sent_at="2026-03-02T10:00:00"), "bad_sent_at"),
    (said(18, "我对花生过敏", unknown_field={"kept": [1, 2]}), None),
    (said(19, "deep", extra=NESTED), "not_an_object"),
    (b'{"text": "' + b"a" * 10_000_000 + b'"}', "line_too_long"),
    (said(21, "nul \x00 byte is text"), None),
    (said(22, "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ‮backwards‬ 👩‍👩‍👧‍👦 zalgo z̷͙̆"), None),
    (said(23, "记住" + "我的长备忘" * 12_000), None),
    (said(24, "I live in Leeds now."), None),
]  # fmt: skip


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """All of it in one log."""
    directory = tmp_path_factory.mktemp("bad")
    return process(directory / "data", write_log(directory / "bad.jsonl", [line for line, _reason in LINES]))


def test_each_broken_line_is_a_dead_letter_that_names_file_and_line(left: Left) -> None:
    found = {row["place"]: row["reason"] for row in left.letters}
    wanted = {f"bad.jsonl:{number}": reason for number, (_line, reason) in enumerate(LINES, 1) if reason is not None}
    assert found == wanted


def test_a_dead_letter_says_what_is_wrong_without_repeating_what_was_said(left: Left) -> None:
    for row in left.letters:
        assert row["detail"]
        assert row["raw"], "the bytes are kept, to be repaired"
    said_words = ("from the future", "a bot", "from a newer gateway", "cut emoji")
    assert not any(word in row["detail"] for row in left.letters for word in said_words)


def test_every_good_line_among_them_arrives(left: Left) -> None:
    good = {str(line["turn_id"]) for line, reason in LINES if reason is None and isinstance(line, dict)}
    assert {row["turn_id"] for row in left.turns} == good
    assert left.active("ann")["residence"] == {"Leeds"}
    assert left.active("ann")["allergy"] == {"花生"}
    assert left.unpublished == 0


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The command line in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["memriver", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def _missing(_path: Path) -> None:
    return


FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "missing": ("gone.jsonl", _missing),
    "empty": ("empty.jsonl", lambda path: path.write_bytes(b"")),
    "gb18030": (
        "old.csv",
        lambda path: path.write_bytes("text,sent_at\n你好，我住在北京,2026-03-02\n".encode("gb18030") * 50),
    ),
    "cut zip": ("export.zip", lambda path: path.write_bytes(b"PK\x03\x04" + b"\x14\x00" * 20)),
    "prose": ("notes.txt", lambda path: path.write_text("Dear diary,\nnothing happened.\n")),
    "directory": ("folder", lambda path: path.mkdir()),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_cannot_be_read_is_one_clear_line_and_exit_code_2(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    name, make = FILES[kind]
    path = tmp_path / name
    make(path)
    code = run(["process", str(path), "--json"], monkeypatch)
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert name in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "nonsense"],
        ["--timezone", "Mars/Olympus"],
        ["--map", "text"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_option_that_cannot_be_meant_is_one_clear_line_and_exit_code_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log.jsonl", [said(1, "hello")])
    code = run(["process", str(log), *arguments], monkeypatch)
    _out, err = capfd.readouterr()
    assert code == 2
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
