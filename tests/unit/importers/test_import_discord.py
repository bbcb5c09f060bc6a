"""Tests: Discord channels."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def test_people_have_nicknames_or_names_and_edits_their_time(read: Any) -> None:
    log = read("discord.json")
    first, reply = log.turn("101"), log.turn("102")
    assert (first.user_id, first.speaker_name, reply.speaker_name) == ("1", "Ännchen", "bob")
    assert first.sent_at == datetime(2024, 5, 1, 10, 0, 0, 500000, tzinfo=UTC)
    assert (first.revision, first.edited_at) == (1, datetime(2024, 5, 1, 10, 1, tzinfo=UTC))
    assert (first.conversation_id, first.group, first.gateway) == ("20", True, "discord")
    assert reply.reply_to == "101"


def test_attachments_and_stickers_are_pointers(read: Any) -> None:
    files = read("discord.json").turn("101").attachments
    assert [(file.name, file.mime) for file in files] == [("a.png", "image/png"), ("Wave", "")]


def test_a_bot_is_an_assistant_that_speaks_by_its_embed(read: Any) -> None:
    turn = read("discord.json").turn("103")
    assert (turn.role.value, turn.agent_id, turn.text) == ("assistant", "3", "Build\npassed")


def test_forwarded_words_are_marked(read: Any) -> None:
    turn = read("discord.json").turn("106")
    assert (turn.text, turn.model_extra) == ("words of another", {"forwarded": True})


def test_joins_and_bare_reactions_are_service_and_broken_times_named(read: Any) -> None:
    log = read("discord.json")
    assert log.service == ["GuildMemberJoin", "empty"]
    assert log.reasons == [(6, "bad_sent_at")]


def test_the_same_message_twice_keeps_its_id(read: Any) -> None:
    assert [turn.turn_id for turn in read("discord.json").turns].count("101") == 2


def test_a_direct_chat_is_no_group_and_its_bot_serves_the_other(read: Any, samples: Path, tmp_path: Path) -> None:
    data = json.loads((samples / "discord.json").read_text(encoding="utf-8"))
    data["channel"]["type"] = "DirectTextChat"
    path = tmp_path / "direct.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    turn = read(path).turn("103")
    assert (turn.group, turn.user_id) == (False, "2")
