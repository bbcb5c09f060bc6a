"""Tests: conversations with models: OpenAI, ShareGPT, LangChain."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streams.importers import UnreadableFile


def test_an_openai_line_is_a_conversation_with_its_user_time_tools_and_files(read: Any) -> None:
    log = read("openai.jsonl")
    first = [turn for turn in log.turns if turn.conversation_id == "conv-7"]
    assert [(turn.role.value, turn.text, turn.user_id) for turn in first] == [
        ("system", "You are helpful.", "u-42"),
        ("user", "What is this?", "u-42"),
        ("tool", "a cat", "u-42"),
        ("assistant", "A cat.", "u-42"),
    ]
    assert first[1].attachments[0].url == "https://example.org/cat.png"
    assert first[2].tool_name == "look_up"
    assert first[0].sent_at == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert [turn.sent_at for turn in first] == sorted({turn.sent_at for turn in first})
    assert log.service == ["tool_call"]
    assert log.reasons == [(3, "unknown_shape"), (4, "unknown_role")]


def test_a_logged_request_ends_with_its_answer_and_developer_is_system(read: Any) -> None:
    turns = [turn for turn in read("openai.jsonl").turns if turn.conversation_id == "r1"]
    assert [(turn.role.value, turn.text) for turn in turns] == [
        ("system", "be brief"),
        ("user", "ping"),
        ("assistant", "pong"),
    ]


def test_the_option_names_who_is_served_and_otherwise_nobody_shares_a_memory(read: Any) -> None:
    assert {turn.user_id for turn in read("openai.jsonl", user_id="me").turns} == {"me"}
    anonymous = {turn.conversation_id: turn.user_id for turn in read("openai.jsonl").turns}
    assert len(set(anonymous.values())) == len(anonymous)


def test_a_format_without_times_takes_the_files_time_or_the_given_one(read: Any, samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_bytes((samples / "sharegpt.json").read_bytes())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    guessed = read(path).turns[0]
    assert guessed.sent_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert guessed.sent_at_guessed
    given = read(path, sent_at=datetime(2024, 5, 1, tzinfo=UTC)).turns[0]
    assert (given.sent_at, given.sent_at_guessed) == (datetime(2024, 5, 1, tzinfo=UTC), False)


def test_sharegpt_speakers_are_told_apart(read: Any) -> None:
    log = read("sharegpt.json")
    first = [turn for turn in log.turns if turn.conversation_id == "first"]
    assert [(turn.role.value, turn.text) for turn in first] == [
        ("system", "Be kind."),
        ("user", "我叫李雷"),
        ("tool", "saved"),
        ("assistant", "你好，李雷"),
    ]
    assert log.service == ["tool_call"]
    assert log.reasons == [(3, "unknown_role"), (4, "unknown_shape")]


def test_sharegpt_comes_as_json_lines_too(read: Any, samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.jsonl"
    path.write_text("\n".join(json.dumps(item) for item in json.loads((samples / "sharegpt.json").read_text())))
    log = read(path)
    assert len(log.turns) == 6
    assert log.reasons == [(3, "unknown_role"), (4, "unknown_shape")]


def test_langchain_messages_to_dict_keeps_ids_names_times_and_tools(read: Any) -> None:
    log = read("langchain_dict.json", user_id="ann", conversation_id="thread-1")
    assert [(turn.role.value, turn.text) for turn in log.turns] == [
        ("system", "Be brief."),
        ("user", "I am vegan."),
        ("tool", "ok"),
        ("assistant", "Saved."),
    ]
    assert [turn.turn_id for turn in log.turns][1::2] == ["h1", "a2"]
    assert log.turns[1].speaker_name == "Ann"
    assert log.turns[1].sent_at == datetime(2024, 5, 1, 8, tzinfo=UTC)
    assert log.turns[2].tool_name == "remember"
    assert {turn.conversation_id for turn in log.turns} == {"thread-1"}
    assert log.service == ["tool_call"]


def test_langchain_dumpd_constructors_are_messages_too(read: Any) -> None:
    assert [(turn.role.value, turn.text) for turn in read("langchain_dumpd.json").turns] == [
        ("user", "I am vegan."),
        ("assistant", "Saved."),
    ]


def test_langchain_lines_are_one_conversation_and_lists_are_one_each(read: Any, samples: Path, tmp_path: Path) -> None:
    messages = json.loads((samples / "langchain_dict.json").read_text())
    loose, lists = tmp_path / "loose.jsonl", tmp_path / "lists.jsonl"
    loose.write_text(
        "\n".join([json.dumps(messages[0]), "{broken", json.dumps(messages[1]), '{"type": "human"}']) + "\n"
    )
    lists.write_text("\n".join([json.dumps(messages), json.dumps({"session_id": "s2", "messages": messages})]))
    log = read(loose, "langchain")
    assert [turn.conversation_id for turn in log.turns] == ["loose", "loose"]
    assert log.reasons == [(2, "not_json"), (4, "unknown_role")]
    conversations = [turn.conversation_id for turn in read(lists, "langchain").turns]
    assert len(set(conversations)) == 2
    assert conversations[-1] == "s2"


def test_bytes_of_an_inline_image_are_never_kept(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "inline.jsonl"
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    path.write_text(json.dumps({"messages": [{"role": "user", "content": [part]}]}))
    attachment = read(path, "openai").turns[0].attachments[0]
    assert (attachment.url, attachment.mime) == ("", "image/png")


@pytest.mark.parametrize("name", ["openai", "sharegpt", "langchain"])
def test_what_is_no_json_is_refused(read: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    path.write_text("Dear diary")
    with pytest.raises(UnreadableFile):
        read(path, name)
