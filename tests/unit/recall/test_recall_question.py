"""Unit tests: what a question is after — slots, kinds of memory, one present value, words that point back."""

from __future__ import annotations

import pytest

from processors.recall import Question, Wish, triggers
from schemas import MemoryType


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("我现在住在哪里?", "residence"),
        ("Where do I live?", "residence"),
        ("我的手机号多少", "phone"),
        ("What am I allergic to?", "allergy"),
        ("今晚吃什么好", "allergy"),
        ("我在哪家公司上班", "employer"),
        ("what do I do for a living", "occupation"),
        ("我下周有什么安排", "plan"),
    ],
)
def test_a_question_names_its_slot_in_either_language(text: str, slot: str) -> None:
    assert slot in Question.of(text).slots


def test_what_i_dislike_is_not_what_i_like() -> None:
    assert Question.of("我不喜欢什么？").slots == ("dislikes",)


@pytest.mark.parametrize("text", ["秘鲁的首都是哪里", "tell me a joke about quantum physics", "帮我写一首关于月亮的诗"])
def test_a_question_about_the_world_names_no_slot(text: str) -> None:
    assert Question.of(text).slots == ()


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("上次我们去了哪家店", (MemoryType.EPISODIC,)),
        ("What did I order last time?", (MemoryType.EPISODIC,)),
        ("这个函数为什么报错", (MemoryType.PROCEDURAL, MemoryType.SEMANTIC)),
        ("help me refactor this Python function", (MemoryType.PROCEDURAL, MemoryType.SEMANTIC)),
        ("Where do I live?", ()),
    ],
)
def test_the_question_chooses_the_kind_of_memory(text: str, types: tuple[MemoryType, ...]) -> None:
    assert Question.of(text).types == types


def test_one_present_value_wants_the_newest_and_a_comparison_wants_all() -> None:
    assert Question.of("How many cards are in my gallery?").wants_newest
    assert Question.of("我现在每周写多少字？").wants_newest
    assert not Question.of("How many days are between the first and the second draft?").wants_newest
    assert not Question.of("Summarise what I told you about the gallery").wants_newest


def test_when_is_a_wish_of_its_own() -> None:
    assert Wish.WHEN in Question.of("When did Ann paint the lake?").wishes
    assert Wish.WHEN in Question.of("我什么时候去的北京").wishes


def test_time_words_and_pronouns_start_a_recall() -> None:
    assert [trigger.kind for trigger in triggers("上次那家餐厅叫什么")] == ["time", "pronoun"]
    assert [trigger.word for trigger in triggers("Book that restaurant again")] == ["again", "that restaurant"]
    assert triggers("What is the capital of Peru?") == ()
