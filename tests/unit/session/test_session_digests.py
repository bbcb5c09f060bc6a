"""Unit tests, digests: a turn in at most eighty characters, masked before it is cut."""

from __future__ import annotations

import pytest

from processors.policy import PolicyGate, PolicySettings
from processors.session import Said, digest_of, recent_digests
from schemas import Attachment
from tests.unit.session.talk import same, talk


def line(text: str) -> str:
    return digest_of(talk(text)[0], same).text


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("u: 帮我订一张明天去上海的高铁票", "【动作】订【对象】一张明天去上海的高铁票"),
        ("u: 请你帮我翻译一下这封邮件。谢谢！", "【动作】翻译【对象】这封邮件"),
        ("u: 预订周五晚上的包间", "【动作】预订【对象】周五晚上的包间"),
        ("a: 已经帮您订好了G7次", "【动作】已订【对象】G7次"),
        ("u: Can you book a table for two?", "【action】book【object】a table for two"),
        ("a: I've booked the table at Nopa.", "【action】did book【object】the table at Nopa"),
        ("u: 我住在上海", "我住在上海"),
        ("u: The bookshop was closed", "The bookshop was closed"),
        ("u: 查", "查"),
        ("t: 15 rows updated", "15 rows updated"),
    ],
)
def test_a_request_is_action_and_object_and_the_rest_is_its_first_sentence(text: str, digest: str) -> None:
    assert line(text) == digest


@pytest.mark.parametrize("text", ["很" * 200, "word " * 100, "帮我订" + "票" * 200, "👩‍👩‍👧" * 60, "e\u0301" * 100])
def test_a_digest_has_at_most_eighty_characters_and_cuts_no_letter_in_two(text: str) -> None:
    digest = line(f"u: {text}")
    assert len(digest) <= 80
    assert digest.endswith("…")
    assert not digest.removesuffix("…").endswith(("\u200d", "e"))


def test_a_number_is_masked_before_the_cut_can_hide_what_it_is() -> None:
    gate = PolicyGate(PolicySettings(), b"a key of sixteen bytes")
    text = "我的电话" + "啊" * 68 + "是13800138000"
    digest = digest_of(talk(f"u: {text}")[0], lambda said: gate.mask_text(said).text).text
    assert len(digest) <= 80
    assert "1380013" not in digest


def test_the_last_five_turns_have_digests_and_system_prompts_are_no_turns() -> None:
    said = talk(*(f"u: turn number {number}" for number in range(7)), "s: You are a helpful assistant.")
    assert [digest.text for digest in recent_digests(said, same)] == [f"turn number {number}" for number in range(2, 7)]
    assert recent_digests([], same) == ()


def test_what_was_injected_or_quoted_is_not_what_the_turn_says() -> None:
    assert line("u: <memories>\nlikes tea\n</memories>\n帮我订酒店") == "【动作】订【对象】酒店"


def test_a_turn_of_files_is_told_by_its_files() -> None:
    said = talk("u: x")[0]
    turn = said.turn.model_copy(
        update={"text": "", "attachments": (Attachment(name="plan.pdf", mime="application/pdf"),)}
    )
    assert digest_of(Said(turn), same).text == "[document] plan.pdf"


def test_what_a_framework_put_into_a_turn_has_no_digest() -> None:
    spoken, injected = talk("u: 我住在上海", "u: <memories> - 用户住在杭州 </memories>")
    marked = Said(injected.turn, "injected")
    assert [item.text for item in recent_digests([spoken, marked], same)] == ["我住在上海"]
