"""`memriver dlq`: what may be changed in a message, which letters are meant, and bytes that are safe to look at."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import orjson
import pytest

from processors.exceptions import PoisonError
from sinks.truth.deadletters import LetterFilter, LetterStatus
from streams.cli import deadletters
from streams.cli.choosing import chosen_letters, letter_filter
from streams.cli.output import plain_bytes
from streams.redrive import FINAL, check, current, may_be_sent, with_changes
from tests.doubles.records import at

TURN = {
    "conversation_id": "c",
    "turn_id": "t",
    "user_id": "u",
    "role": "user",
    "text": "hi",
    "sent_at": "2026-03-02T01:00:00Z",
}


def row(**fields: Any) -> dict[str, Any]:
    return {"stage": "ingest", "topic": "p.turns", "status": "waiting", "sent_at": None} | fields


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (["role=user"], {"role": "user"}),
        (["revision=2"], {"revision": 2}),
        (["text=42 is a number"], {"text": "42 is a number"}),
        (['text="42"'], {"text": "42"}),
        (["text=a=b"], {"text": "a=b"}),
        (["group=true", "role="], {"group": True}),
        (["attachments.0.name=report"], {"attachments": [{"name": "report"}]}),
        (["payload.order_key=k"], {"payload": {"order_key": "k"}}),
    ],
)
def test_a_change_sets_a_field_by_its_path(changes: list[str], wanted: dict[str, Any]) -> None:
    before = orjson.dumps({"role": "moderator", "attachments": [{"name": "x"}]})
    after = orjson.loads(with_changes(before, changes))
    assert {name: after[name] for name in wanted} == wanted
    assert ("role" in after) == ("role=" not in changes)


@pytest.mark.parametrize(
    ("raw", "changes", "reason"),
    [
        (b"{", ["a=1"], "not_json"),
        (b"\xff", ["a=1"], "not_json"),
        (b"{}", ["a"], "invalid_option"),
        (b"{}", ["=1"], "invalid_option"),
        (b'{"a": 1}', ["a.b=1"], "invalid_option"),
        (b'{"a": [1]}', ["a.5=1"], "invalid_option"),
        (b"[]", ["a=1"], "invalid_option"),
    ],
)
def test_a_change_that_leads_nowhere_is_refused(raw: bytes, changes: list[str], reason: str) -> None:
    with pytest.raises(PoisonError) as caught:
        with_changes(raw, changes)
    assert caught.value.reason == reason


def test_a_message_is_checked_by_the_contract_of_its_topic_before_it_is_sent() -> None:
    check(row(), orjson.dumps(TURN))
    with pytest.raises(PoisonError) as caught:
        check(row(), orjson.dumps(TURN | {"role": "somebody's words"}))
    assert caught.value.reason == "invalid_field"
    assert "somebody" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "raw", "reason"),
    [
        ({"stage": "bury"}, b"{}", "no_way_back"),
        ({}, orjson.dumps(TURN | {"more": "x" * 1_000_001}), "too_large"),
        ({"stage": "resolve", "topic": "p.commands"}, orjson.dumps(TURN), "invalid_field"),
    ],
)
def test_what_cannot_be_sent_is_said(fields: dict[str, Any], raw: bytes, reason: str) -> None:
    with pytest.raises(PoisonError) as caught:
        check(row(**fields), raw)
    assert caught.value.reason == reason


def test_what_was_kept_in_part_does_not_pass_for_the_message() -> None:
    """Scenario: a batch of 5 MB whose first 4 MiB were kept. We expect it not to be sent, whatever the worker's version is;
    the whole message, given by somebody, may be."""
    cut = row(raw=b"{", original_bytes=5_000_000, mended=None)
    with pytest.raises(PoisonError) as caught:
        current(cut)
    assert caught.value.reason == "cut"
    assert caught.value.reason in FINAL, "--anyway is for what a newer worker may take"
    assert "1 of 5000000 bytes" in str(caught.value)
    assert "--file" in str(caught.value)
    assert current(cut | {"mended": b"the whole of it"}) == b"the whole of it"
    assert current(row(raw=b"{", original_bytes=None, mended=None)) == b"{"


def test_only_what_waits_or_was_never_confirmed_may_be_sent() -> None:
    assert may_be_sent(row())
    assert may_be_sent(row(status="redriven"))
    assert not may_be_sent(row(status="redriven", sent_at=at(1)))
    assert not may_be_sent(row(status="resolved", sent_at=at(1)))
    assert not may_be_sent(row(status="dropped"))


def of(**options: Any) -> LetterFilter:
    names = ("stage", "topic", "reason", "tenant", "older_than", "newer_than")
    return letter_filter(*(options.get(name) for name in names))


def test_an_order_says_which_letters_it_means() -> None:
    assert chosen_letters(["a", "b"], False, of()) == ["a", "b"]
    assert chosen_letters(None, True, of()) == []
    assert chosen_letters(None, False, of(reason="not_json")) == []
    for given, everything, chosen in ((None, False, of()), (["a"], True, of()), (["a"], False, of(stage="ingest"))):
        with pytest.raises(PoisonError):
            chosen_letters(given, everything, chosen)


@pytest.mark.parametrize("age", ["2", "h", "2w", "-2h", "2 h", "²h", "999999999d"])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    with pytest.raises(PoisonError):
        of(older_than=age)


def test_an_age_is_counted_back_from_now() -> None:
    chosen = of(older_than="2h", newer_than="1d")
    assert chosen.failed_before is not None and chosen.failed_after is not None
    assert (chosen.failed_before - chosen.failed_after).total_seconds() == pytest.approx(22 * 3600, abs=60)
    assert chosen.status is LetterStatus.WAITING


def test_bytes_that_would_speak_to_the_terminal_are_escaped() -> None:
    assert plain_bytes("第\x1b[31m行\n".encode()) == "第\\x1b[31m行\n"


def test_bytes_that_are_no_text_are_a_dump() -> None:
    assert plain_bytes(b"\xff\x00ab").startswith("00000000  ff 00 61 62")
    assert plain_bytes(b"ab" * 10, hexadecimal=True).splitlines()[1].startswith("00000010  61 62 61 62")


def test_saved_bytes_are_new_and_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "letter.json"
    deadletters._save(path, b"somebody's words")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"somebody's words", 0o600)
    with pytest.raises(PoisonError):
        deadletters._save(path, b"other words")
    assert path.read_bytes() == b"somebody's words"


def test_an_editor_that_saves_nothing_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "true")
    with pytest.raises(PoisonError) as caught:
        deadletters._edited(b"{}")
    assert caught.value.reason == "unchanged"
    with pytest.raises(PoisonError) as caught:
        deadletters._edited(b"\xff")
    assert caught.value.reason == "not_text"


def test_an_editor_that_saves_changes_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/moderator/user/")
    assert deadletters._edited(b'{"role": "moderator"}') == b'{"role": "user"}'
