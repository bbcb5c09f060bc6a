"""Language of a turn and of a conversation, and the token estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.language import detect, of_conversation
from processors.tokens import estimate


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("我对花生过敏", "zh"),
        ("我在用 Python 写代码", "zh"),
        ("看看 https://example.com/some/long/path", "zh"),
        ("I'm allergic to peanuts", "en"),
        ("My name is 李雷", "en"),
        ("帮我 review 一下这个 PR", "mixed"),
        ("OK 好的", "mixed"),
        ("私は東京に住んでいます", "other"),
        ("저는 서울에 살아요", "other"),
        ("Я живу в Берлине", "other"),
        ("", "und"),
        ("😂😂 123 !!!", "und"),
        ("https://example.com", "und"),
    ],
)
def test_the_language_of_a_text_is_told_by_its_scripts(text: str, language: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["你好", "我住在上海", "ok thanks"], "zh"),
        (["hello", "I live in Berlin", "好的"], "en"),
        (["帮我 review 一下这个 PR，谢谢"], "zh"),
        ([], "en"),
        (["😂"], "en"),
    ],
)
def test_a_conversation_is_in_the_language_of_most_of_its_turns(texts: list[str], language: str) -> None:
    assert of_conversation(texts) == language


@given(st.text())
def test_any_text_has_a_language(text: str) -> None:
    assert detect(text) in {"zh", "en", "mixed", "other", "und"}


def test_a_chinese_character_is_about_a_token() -> None:
    text = "我上个月从北京搬到了上海，现在住在浦东。"
    assert len(text) * 0.8 <= estimate(text) <= len(text) * 1.3


def test_four_characters_of_english_are_about_a_token() -> None:
    text = "I moved from Berlin to Hamburg last month and I am looking for a good dentist near the station."
    assert len(text) / 5 <= estimate(text) <= len(text) / 3


def test_code_and_random_letters_cost_more_than_prose() -> None:
    code = "def cut(pending, limits):\n    return [batch for batch in pending if batch.tokens > limits[0]]\n"
    assert estimate(code) >= len(code) / 4
    secret = "QmFzZTY0IGlzIG5vdCBwcm9zZSBhdCBhbGw" * 4
    assert estimate(secret) >= len(secret) / 3


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_estimate_grows_with_the_text_and_counts_nothing_for_nothing(left: str, right: str) -> None:
    assert estimate("") == 0
    whole = estimate(left + right)
    assert whole <= estimate(left) + estimate(right) + len(left + right) // 3 + 1
    assert whole >= 0
