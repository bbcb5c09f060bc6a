"""Tests: Facebook Messenger downloads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streams.importers.messenger import repaired


def test_names_and_texts_are_repaired_and_the_thread_is_a_group_of_three(read: Any) -> None:
    turn = read("messenger.json").turns[0]
    assert (turn.user_id, turn.speaker_name, turn.text) == ("José", "José", "¿Qué tal? 好 😀")
    assert turn.sent_at == datetime(2024, 5, 1, 10, 0, 3, tzinfo=UTC)
    assert (turn.conversation_id, turn.group, turn.gateway) == ("inbox/freunde_1", True, "messenger")


def test_media_are_pointers_and_an_unsent_message_is_deleted(read: Any) -> None:
    turns = read("messenger.json").turns
    assert [turn.attachments[0].mime for turn in turns[1:3]] == ["image/jpeg", "audio/mp4"]
    assert (turns[3].deleted, turns[3].text) == (True, "")
    assert (turns[6].attachments[0].name, turns[7].attachments[0].url) == ("sticker", "https://example.org")


def test_equal_messages_of_one_millisecond_are_two_turns(read: Any) -> None:
    turns = read("messenger.json").turns
    assert turns[4].text == turns[5].text
    assert turns[4].turn_id != turns[5].turn_id


def test_calls_are_service_and_a_message_without_time_is_bad(read: Any) -> None:
    log = read("messenger.json")
    assert log.service == ["call"]
    assert log.reasons == [(10, "missing_sent_at")]


def test_the_layout_of_encrypted_chats_is_read_too(read: Any) -> None:
    turn = read("messenger_encrypted.json").turns[0]
    assert (turn.user_id, turn.text, turn.conversation_id, turn.group) == ("Bob", "café 好", "Bob_12", False)
    assert turn.attachments[0].url == "./media/a.png"


@pytest.mark.parametrize("text", ["plain", "café", "好", "a\u0080b"])
def test_text_that_is_no_mojibake_is_left_alone(text: str) -> None:
    assert repaired(text) == text
