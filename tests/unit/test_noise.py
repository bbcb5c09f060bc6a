"""The noise filter: what its own reviewed examples say, and what a turn's role and flags decide before any word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.noise import NoiseFilter, describe_attachments, information, normal_text
from processors.noise.judgement import examples
from schemas import Attachment, Role, Turn

FILTER = NoiseFilter.load()
REASONS = ("greeting", "emotion", "ephemeral", "too_short", "log_noise", "assistant_boilerplate")


def turn(text: str, **fields: Any) -> Turn:
    base: dict[str, Any] = {
        "conversation_id": "c",
        "turn_id": "t",
        "user_id": "u",
        "role": Role.USER,
        "text": text,
        "sent_at": datetime(2026, 3, 11, 2, 0, tzinfo=UTC),
        "timezone": "Asia/Shanghai",
    }
    return Turn(**(base | fields))


def said(language: str, side: str) -> list[tuple[str, str]]:
    return [(reason, str(text)) for reason, texts in examples(f"{language}.yaml")[side].items() for text in texts]


def role_for(reason: str) -> Role:
    return Role.ASSISTANT if reason == "assistant_boilerplate" else Role.USER


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("side", ["filtered", "kept"])
def test_every_reason_has_examples(language: str, side: str) -> None:
    counts = {reason: len(texts) for reason, texts in examples(f"{language}.yaml")[side].items()}
    assert set(counts) == set(REASONS)
    # Machine text has no language of its own; most of its examples are in the English file.
    assert all(count >= 10 for reason, count in counts.items() if (language, reason) != ("zh", "log_noise"))


@pytest.mark.parametrize(("reason", "text"), said("zh", "filtered") + said("en", "filtered"))
def test_a_filtered_example_is_filtered_for_its_reason(reason: str, text: str) -> None:
    verdict = FILTER.judge(turn(text, role=role_for(reason))).reason
    if reason == "assistant_boilerplate":
        assert verdict in {reason, "greeting"}
    else:
        assert verdict == reason


@pytest.mark.parametrize(("reason", "text"), said("zh", "kept") + said("en", "kept"))
def test_a_kept_example_is_kept(reason: str, text: str) -> None:
    assert FILTER.judge(turn(text, role=role_for(reason))).reason is None


@pytest.mark.parametrize("row", examples("tools.yaml"))
def test_a_tool_answer_is_reduced_to_its_whitelist(row: dict[str, Any]) -> None:
    answer = turn(row["text"], role=Role.TOOL, tool_name=row["tool"])
    assert FILTER.reduce_tool_output(answer) == row["kept"]
    assert FILTER.judge(answer).reason == ("tool_output" if row["kept"] is None else None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deleted": True}, "deleted"),
        ({"consent": False}, "no_consent"),
        ({"role": Role.SYSTEM}, "system"),
        ({"role": Role.TOOL, "tool_name": "web_search"}, "tool_output"),
        ({"role": Role.TOOL}, "tool_output"),
        ({"consent": True}, None),
        ({}, None),
    ],
)
def test_role_and_flags_decide_before_the_words(fields: dict[str, Any], reason: str | None) -> None:
    assert FILTER.judge(turn("我对花生过敏", **fields)).reason == reason


def test_a_turn_of_attachments_only_is_a_line_with_name_kind_and_url() -> None:
    photo = Attachment(name="化验单\n.png", mime="image/png", url="https://files.example.com/1.png", summary="血常规")
    table = Attachment(name="budget.xlsx", url="https://files.example.com/2")
    inline = Attachment(name="x.bin", url="data:application/octet-stream;base64,AAAA")
    sent = turn("", attachments=(photo, table, inline))
    assert FILTER.judge(sent).reason == "attachment_only"
    assert describe_attachments(sent).split("\n") == [
        "[image] 化验单 .png: 血常规 https://files.example.com/1.png",
        "[spreadsheet] budget.xlsx https://files.example.com/2",
        "[file] x.bin",
    ]
    assert describe_attachments(turn("没有附件")) == ""


def test_attachments_with_a_sentence_are_kept() -> None:
    photo = Attachment(name="1.png", url="https://files.example.com/1.png")
    assert FILTER.judge(turn("这是我的化验单", attachments=(photo,))).reason is None


def test_a_repetition_among_recent_texts_is_a_duplicate() -> None:
    recent = ["我对花生过敏。", "I live in Berlin"]
    assert FILTER.judge(turn("我对花生过敏！"), recent).reason == "duplicate"
    assert FILTER.judge(turn("i live in  berlin"), recent).reason == "duplicate"
    assert FILTER.judge(turn("我对海鲜过敏"), recent).reason is None


@pytest.mark.parametrize(
    "text",
    [
        "<memories>\n- 用户住在北京\n- 用户对花生过敏\n</memories>",
        "[Relevant memories]\n1. The user lives in Berlin\n2. The user is vegan",
        "【相关记忆】\n- 用户住在北京",
    ],
)
def test_memories_that_a_framework_put_into_a_turn_are_not_read_again(text: str) -> None:
    assert FILTER.judge(turn(text)).reason == "injected"


def test_information_counts_chinese_characters_twice() -> None:
    assert information("住上海") == 6
    assert information("ok!") == 2
    assert normal_text("  Ｈｅｌｌｏ  World！ ") == "hello world"


def test_the_version_stands_for_the_data() -> None:
    assert FILTER.version == NoiseFilter.load().version
    assert len(FILTER.version) == 12


@given(st.text(min_size=1, max_size=300), st.sampled_from([Role.USER, Role.ASSISTANT]))
def test_any_text_gets_the_same_verdict_twice(text: str, role: Role) -> None:
    assert FILTER.judge(turn(text, role=role)) == FILTER.judge(turn(text, role=role))
