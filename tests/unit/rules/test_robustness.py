"""Rules, robustness: no text raises, the same text reads the same twice, and a quote is always the turn's own words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.rules import HitKind, RuleBook, RuleHit, candidates_from
from processors.rules.loading import LANGUAGES
from schemas import Operation, Role, Turn

SENT = datetime(2025, 6, 11, 4, 0, tzinfo=UTC)

# Pieces of statements, orders and quotations of both languages: glued together they reach the branches that arbitrary
# characters never do.
PIECES = (
    "I live in ", "Berlin", " and ", "I'm ", "allergic to ", "nuts, eggs", ", ", ". ", "? ", "! ", ": ",
    "\n", "- ", "\n\n", "Remember ", "that ", "please ", "Don't ", "forget ", "scratch that", "my name is ",
    "Tom", "İ", "ß", "ﬁ", "if ", "He said ", "“", "”", "\"", "'", "(", ")", "`", "```", "> ", "1. ",
    "for the next 30 days ", "until Friday ", "answer in English", "not ", "London", "sorry, I meant ",
    "translate: ", "my sister's ", "is ", "4411", "@example.com", "http://x.io/a", "@", "\u200b", "我", "叫",
    "李雷", "住在", "上海", "，", "。", "？", "对花生过敏", "记住", "别忘了", "：", "「", "」", "如果",
    "他说", "这周", "不要", "提醒我", "当我没说", "我的", "车牌号是", "以后", "用中文回答", "、", "和", "了",
    "啊", "不是", "翻译", "《", "》", "👍", "　", "Ａ１",
)  # fmt: skip

# Repeated up to the limit, each is the worst case of some pattern.
UNITS = (
    "a", "I ", "my ", "i'm a ", "I like ", "I like a, ", "I live in a and ", "remember that ", "remember: ",
    "\"I live ", "'", "“", "(", "my my is is ", "and and ", "my number is 1 ", "until until ",
    "for the next ", "no no, ", "not not ", ", not x", "sorry, i meant x ", "forget my a and my b ", "> I\n",
    "```", "<memory>", "User: I ", "[", "a@a.", "http://", "1", "1. ", ".", ", ", ": ", " ", "\n", "　",
    "我", "我是", "我的", "我不", "记住", "我对", "和", "、", "，", "我喜欢和", "他说：", "「", "如果",
    "这周", "当我没说", "我叫我叫", "1年", "😀", "\u0301",
)  # fmt: skip


def turn(text: str, role: Role = Role.USER) -> Turn:
    return Turn(
        conversation_id="c1", turn_id="t1", user_id="u1", role=role, text=text, sent_at=SENT, timezone="Europe/London"
    )


def read(text: str) -> tuple[RuleHit, ...]:
    return RuleBook.load().match(turn(text))


def assert_well_formed(text: str) -> None:
    hits = read(text)
    assert hits == read(text)
    for hit in hits:
        assert hit.quote and hit.quote in text
        assert hit.language in LANGUAGES
        assert 0 < hit.confidence <= 1
        if hit.kind is HitKind.CLAIM:
            assert hit.attribute
            assert hit.value or hit.operation is Operation.END
        else:
            assert hit.operation is (Operation.CLEAR if hit.kind is HitKind.FORGET else Operation.END)
    made = candidates_from(turn(text), hits)
    assert len(made) == len([hit for hit in hits if hit.kind is not HitKind.RETRACT_PREVIOUS])
    assert all(candidate.evidence[0].quote in text for candidate in made)


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_arbitrary_text_never_raises_and_quotes_are_its_own(text: str) -> None:
    assert_well_formed(text)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=25).map("".join))
def test_broken_sentences_never_raise_and_quotes_are_their_own(text: str) -> None:
    assert_well_formed(text)


@pytest.mark.parametrize("role", [Role.ASSISTANT, Role.TOOL, Role.SYSTEM])
@pytest.mark.parametrize(
    "text", ["I live in Berlin", "Remember that I'm allergic to nuts", "scratch that", "我住在北京", "记住我叫李雷"]
)
def test_only_a_user_speaks_of_themselves(role: Role, text: str) -> None:
    assert RuleBook.load().match(turn(text, role)) == ()


def test_a_deleted_turn_states_nothing() -> None:
    gone = turn("I live in Berlin").model_copy(update={"deleted": True})
    assert RuleBook.load().match(gone) == ()


@pytest.mark.parametrize("unit", UNITS)
def test_four_thousand_hostile_characters_are_read_to_the_end(unit: str) -> None:
    text = (unit * (4_000 // len(unit) + 1))[:4_000]
    assert_well_formed(text)


def test_what_stands_beyond_four_thousand_characters_is_not_read() -> None:
    assert read("x " * 2_000 + ". I live in Berlin") == ()
    assert [hit.value for hit in read("I live in Berlin. " + "x " * 4_000)] == ["Berlin"]


@pytest.mark.parametrize(
    "text", ["I live in Berlin", "我住在北京", "Remember that the gate code is 4411", "scratch that"]
)
def test_the_same_turn_makes_the_same_candidates(text: str) -> None:
    first, second = (candidates_from(turn(text), read(text)) for _ in range(2))
    assert first == second


def test_an_edited_turn_makes_candidates_of_its_own() -> None:
    sent = turn("I live in Berlin")
    edited = sent.model_copy(update={"revision": 1})
    book = RuleBook.load()
    (before,), (after,) = (candidates_from(each, book.match(each)) for each in (sent, edited))
    assert before.candidate_id != after.candidate_id
