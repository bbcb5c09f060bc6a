"""Tests: Telegram exports of one chat and of a whole account."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streams.importers import UnreadableFile


def test_text_entities_are_joined_and_naive_dates_are_local(read: Any) -> None:
    turn = read("telegram.json", timezone="Europe/Berlin").turn("2")
    assert turn.text == "See https://example.org 👀"
    assert turn.sent_at == datetime(2024, 5, 1, 10, 0, 10, tzinfo=UTC)
    assert (turn.user_id, turn.speaker_name, turn.conversation_id, turn.group) == ("user1", "Ann", "4711", True)
    assert (turn.gateway, turn.timezone) == ("telegram", "Europe/Berlin")


def test_the_exact_time_wins_over_the_local_one_and_edits_and_replies_are_told(read: Any) -> None:
    turn = read("telegram.json", timezone="America/New_York").turn("3")
    assert turn.sent_at == datetime(2024, 5, 1, 10, 1, tzinfo=UTC)
    assert (turn.revision, turn.edited_at) == (1, datetime(2024, 5, 1, 10, 5, tzinfo=UTC))
    assert turn.reply_to == "2"


def test_forwarded_words_are_marked_as_not_the_speakers_own(read: Any) -> None:
    log = read("telegram.json")
    assert log.turn("4").model_extra == {"forwarded": True}
    assert log.turn("3").model_extra == {}


def test_photos_and_files_are_attachments_and_a_reply_elsewhere_is_none_here(read: Any) -> None:
    log = read("telegram.json")
    photo, file = log.turn("5").attachments[0], log.turn("6").attachments[0]
    assert (photo.name, photo.mime, photo.url) == ("photo", "image/jpeg", "")
    assert (file.name, file.mime, file.url) == ("route.gpx", "application/gpx+xml", "files/route.gpx")
    assert log.turn("6").reply_to is None


def test_service_messages_are_counted_and_broken_ones_named(read: Any) -> None:
    log = read("telegram.json")
    assert log.service == ["create_group"]
    assert log.reasons == [(7, "bad_sent_at"), (8, "missing_sent_at")]
    assert log.turn("9").user_id == "user3"


def test_a_whole_account_keeps_its_chats_apart(read: Any) -> None:
    log = read("telegram_account.json")
    assert [(turn.conversation_id, turn.role.value, turn.text, turn.group) for turn in log.turns] == [
        ("2", "user", "hi", False),
        ("77", "user", "/start", False),
        ("77", "assistant", "Welcome", False),
        ("Untyped", "user", "one", False),
        ("Untyped", "user", "one", False),
        ("Untyped", "user", "two", False),
    ]
    assert (log.turns[2].agent_id, log.turns[2].user_id) == ("user77", "user1")
    assert len({turn.turn_id for turn in log.turns[3:]}) == 3


def test_the_option_me_gives_one_person_their_own_id(read: Any) -> None:
    log = read("telegram.json", me="Ann", user_id="ann@example.org")
    assert log.turn("2").user_id == "ann@example.org"
    assert log.turn("2").model_extra == {"me": True}
    assert log.turn("3").user_id == "user2"


def test_a_file_that_ends_in_the_middle_gives_what_came_before(read: Any, samples: Path, tmp_path: Path) -> None:
    whole = (samples / "telegram.json").read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: whole.index(b'"id": 6')])
    log = read(path)
    assert [turn.turn_id for turn in log.turns] == ["2", "3", "4", "5"]
    assert log.reasons == [(6, "truncated")]
    path.write_bytes(whole[: whole.index("好".encode()) + 1])
    assert read(path, "telegram").reasons == [(3, "truncated")]


def test_another_encoding_is_read_when_it_is_named(read: Any, samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "gb.json"
    text = (samples / "telegram.json").read_text(encoding="utf-8").replace("👀", "").replace("create_group", "建群")
    path.write_bytes(text.encode("gb18030"))
    with pytest.raises(UnreadableFile, match="--encoding"):
        read(path, "telegram")
    assert read(path, "telegram", encoding="gb18030").turn("3").text == "好的"


@pytest.mark.parametrize("content", ['{"hello": 1}', "[]", "", "no JSON", '{"messa'])
def test_what_has_no_messages_is_refused(read: Any, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(UnreadableFile):
        read(path, "telegram")
