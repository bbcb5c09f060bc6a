"""Unit tests: the order of what may answer — similarity, recency, use, confidence; turns with their neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.recall import Weights
from processors.recall.ranking import SIMILARITY_ONLY
from schemas import Category, MemoryType
from tests.unit.recall import sentences as s


def test_the_sentence_that_shares_the_rare_words_is_first() -> None:
    units = [s.unit("a", "I like my tea with milk"), s.unit("b", "my kayak is in the shed"), s.unit("c", "I like rain")]
    assert s.ids(s.ranking("Where is my kayak?", units))[0] == "b"


def test_a_chinese_word_of_two_characters_finds_its_sentence() -> None:
    units = [s.unit("a", "我喜欢爬山", language="zh"), s.unit("b", "我对花生过敏", language="zh")]
    assert s.ids(s.ranking("花生", units))[0] == "b"


def test_dense_evidence_finds_what_shares_no_word() -> None:
    units = [s.unit("a", "I adore felines"), s.unit("b", "the train is late")]
    assert s.ids(s.ranking("Which pets does she love?", units, [0.9, 0.1]))[0] == "a"


def test_of_two_equal_sentences_the_recent_one_is_first_and_halves_every_thirty_days() -> None:
    units = [s.unit("old", "I run in the park", at=s.NOW - 30 * s.DAY), s.unit("new", "I run in the park")]
    found = s.ranking("Where do I run?", units)
    assert s.ids(found) == ["new", "old"]
    assert [round(item.parts.recency, 6) for item in found.ranked] == [1.0, 0.5]


def test_the_score_is_the_weighted_sum_of_its_parts() -> None:
    found = s.ranking("Where do I run?", [s.unit("a", "I run in the park", heat=0.5, confidence=0.8)], [0.8]).ranked[0]
    parts = found.parts
    assert found.score == pytest.approx(0.6 * parts.similarity + 0.2 * parts.recency + 0.1 * 0.5 + 0.1 * 0.8)


def test_what_is_often_used_and_what_is_surer_comes_first_among_equals() -> None:
    text = "I run in the park"
    assert s.ids(s.ranking("Where do I run?", [s.unit("a", text), s.unit("b", text, heat=1.0)]))[0] == "b"
    assert s.ids(s.ranking("Where do I run?", [s.unit("a", text, confidence=0.6), s.unit("b", text)]))[0] == "b"


def test_the_slot_that_the_question_names_is_relevant_without_a_common_word() -> None:
    units = [
        s.unit("a", "我上个月搬到上海了", language="zh", attribute="residence"),
        s.unit("b", "我叫小李", language="zh"),
    ]
    best = s.ranking("我现在住在哪里?", units, [0.0, 0.0]).ranked[0]
    assert best.unit.id == "a" and best.parts.relevance >= 0.85


def test_a_borderline_cosine_without_a_common_word_stays_under_the_floor() -> None:
    assert (
        s.ranking("What is the capital of Peru?", [s.unit("a", "my name is Ann")], [0.72]).ranked[0].parts.relevance
        < 0.7
    )


def test_last_time_prefers_episodes_and_among_them_those_of_the_last_month() -> None:
    def episode(name: str, age: int) -> object:
        return s.unit(
            name, "dinner at the harbour", at=s.NOW - age * s.DAY, type=MemoryType.EPISODIC, category=Category.EVENT
        )

    units = [
        s.unit("fact", "dinner at the harbour", type=MemoryType.SEMANTIC),
        episode("recent", 10),
        episode("old", 60),
    ]
    found = {item.unit.id: item.parts.routing for item in s.ranking("Where was dinner last time?", units).ranked}
    assert found == {"fact": 0.0, "recent": 1.0, "old": 0.5}


def test_the_answer_that_follows_a_fitting_question_is_found_through_it() -> None:
    units = [
        s.turn("q", "Which instrument do you play?", 0, speaker="Bo"),
        s.turn("a", "The cello, since I was six", 1, speaker="Ann"),
        s.turn("x", "I had soup", 5, speaker="Ann"),
        s.turn("y", "The cello on the radio was loud", 9, speaker="Bo"),
    ]
    found = s.ranking("Which instrument does Ann play?", units, weights=SIMILARITY_ONLY)
    assert s.ids(found)[0] == "a"


def test_a_named_speaker_weighs() -> None:
    units = [
        s.turn("a", "I bought a red bicycle", 0, speaker="Ann"),
        s.turn("b", "I bought a red bicycle", 5, speaker="Bo"),
    ]
    assert s.ids(s.ranking("What did Bo buy?", units, weights=SIMILARITY_ONLY))[0] == "b"


def test_weights_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match="weights"):
        Weights(similarity=0.0)
    with pytest.raises(ValueError, match="weights"):
        Weights(half_life_days=0.0)


@given(
    st.lists(
        st.tuples(st.text(max_size=30), st.one_of(st.none(), st.floats(-1, 1)), st.floats(0, 1), st.floats(0, 2_000)),
        max_size=12,
    ),
    st.text(max_size=40),
)
def test_every_part_lies_between_0_and_1_and_nothing_gets_lost(
    rows: list[tuple[str, float | None, float, float]], query: str
) -> None:
    units = [s.unit(f"u{place}", text, heat=heat, at=days * s.DAY) for place, (text, _, heat, days) in enumerate(rows)]
    found = s.ranking(query, units, [row[1] for row in rows])
    assert sorted(s.ids(found)) == sorted(item.id for item in units)
    for item in found.ranked:
        parts = item.parts
        for value in (
            parts.relevance,
            parts.similarity,
            parts.recency,
            parts.access,
            parts.confidence,
            parts.routing,
            parts.coverage,
        ):
            assert 0.0 <= value <= 1.0 + 1e-9


@given(st.permutations(["I live in Leeds", "I like tea", "my cat is grey", "the train was late"]))
def test_the_order_does_not_depend_on_the_order_of_arrival(texts: list[str]) -> None:
    units = [s.unit(text, text) for text in texts]
    assert s.ids(s.ranking("Which tea do I like?", units)) == s.ids(s.ranking("Which tea do I like?", units[::-1]))
