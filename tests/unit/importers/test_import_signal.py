"""Tests: Signal chats as text."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streams.importers import UnreadableFile


def test_messages_run_over_lines_without_their_reactions(read: Any) -> None:
    turns = read("signal.txt", timezone="Europe/Berlin").turns
    assert [(turn.user_id, turn.text) for turn in turns] == [
        ("Ann", "Hello"),
        ("Bob", "two\nlines"),
        ("Ann", "my answer"),
        ("Bob", ""),
    ]
    assert turns[0].sent_at == datetime(2024, 5, 1, 10, 23, tzinfo=UTC)
    assert (turns[0].gateway, turns[0].group) == ("signal", False)


def test_quoted_words_are_not_the_speakers_and_files_are_pointers(read: Any) -> None:
    turns = read("signal.txt").turns
    assert turns[2].model_extra == {"quoted": "> two"}
    assert (turns[3].attachments[0].name, turns[3].attachments[0].url) == ("cat.jpg", "./media/cat.jpg")


def test_an_impossible_date_is_bad_and_an_empty_message_nothing(read: Any) -> None:
    log = read("signal.txt")
    assert log.reasons == [(9, "bad_sent_at")]
    assert log.service == ["empty"]


def test_a_text_without_headers_is_refused(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("Dear diary\n")
    with pytest.raises(UnreadableFile):
        read(path, "signal")
