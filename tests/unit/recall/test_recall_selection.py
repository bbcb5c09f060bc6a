"""Unit tests: what is handed out — the newer for both, once, within quotas, private first, or nothing."""

from __future__ import annotations

from typing import Any

from processors.recall import Question, Quotas, clarify, fallback, newest_first, select
from processors.recall.ranking import SIMILARITY_ONLY
from schemas import Category
from tests.unit.recall import sentences as s


def _first(query: str, *texts: str, window: int = 5) -> list[str]:
    units = [s.turn(str(place), text, place * 4, at=float(place)) for place, text in enumerate(texts)]
    found = s.ranking(query, units, weights=SIMILARITY_ONLY)
    return [item.unit.id for item in newest_first(Question.of(query), found, window=window)]


_OLD = "My photo gallery with the project cards has 8 cards, all of the gallery in one row of cards"
_NEW = "I added two projects to the gallery, now there are 10 cards"
_ELSE = "The weather has been grey all week"


def test_the_newer_statement_stands_in_for_both() -> None:
    assert _first("How many cards are in my gallery?", _OLD, _ELSE, _NEW)[:2] == ["2", "0"]
    assert (
        _first(
            "我每周的写作目标是多少字？",
            "我每周的写作目标是1200字，每周的写作都要够",
            "天气很阴",
            "每周的写作目标调整到1350字了",
        )[0]
        == "2"
    )


def test_the_older_one_says_behind_which_it_stands() -> None:
    units = [s.turn(str(place), text, place * 4, at=float(place)) for place, text in enumerate((_OLD, _ELSE, _NEW))]
    query = "How many cards are in my gallery?"
    placed = newest_first(Question.of(query), s.ranking(query, units, weights=SIMILARITY_ONLY), window=5)
    assert [item.stands_behind for item in placed[:2]] == [None, "2"]


def test_a_later_sentence_without_a_change_or_a_value_stays_where_it_is() -> None:
    assert _first("How many cards are in my gallery?", _OLD, _ELSE, "The gallery and its cards please me")[0] == "0"


def test_other_peoples_numbers_stand_in_for_nobody() -> None:
    units = [s.turn("0", _OLD, 0, at=0.0, speaker="Ann"), s.turn("1", _NEW, 4, at=1.0, speaker="Bo")]
    query = "How many cards are in my gallery?"
    placed = newest_first(Question.of(query), s.ranking(query, units, weights=SIMILARITY_ONLY), window=5)
    assert all(item.stands_behind is None for item in placed)


def test_nothing_enters_or_leaves_the_window() -> None:
    query = "How many cards are in my gallery?"
    texts = (_OLD, _ELSE, "8 cards in the gallery", _NEW, "the gallery has a new wall, 3 metres", "12 cards")
    units = [s.turn(str(place), text, place * 4, at=float(place)) for place, text in enumerate(texts)]
    found = s.ranking(query, units, weights=SIMILARITY_ONLY)
    for window in range(1, 7):
        placed = newest_first(Question.of(query), found, window=window)
        assert {item.unit.id for item in placed[:window]} == {item.unit.id for item in found.ranked[:window]}


def _chosen(
    query: str, units: list[Any], limit: int = 5, floor: float = 0.0, quotas: Quotas | None = None
) -> list[str]:
    found = select(s.ranking(query, units).ranked, limit=limit, floor=floor, quotas=quotas or Quotas())
    return [item.unit.id for item in found.chosen]


def test_of_one_slot_only_the_newest_is_handed_out() -> None:
    units = [
        s.unit("old", "I live in Leeds, in the city of Leeds", at=s.NOW - s.DAY, slot="home"),
        s.unit("new", "I moved to Hull", slot="home"),
    ]
    assert _chosen("Do I live in Leeds?", units) == ["new"]


def test_the_same_sentence_comes_once_and_another_figure_is_another_sentence() -> None:
    same = [s.unit("a", "I run 5 km every day"), s.unit("b", "I run 5 km every day.", at=s.NOW - s.DAY)]
    assert _chosen("How far do I run?", same) == ["a"]
    other = [s.unit("a", "I run 5 km every day"), s.unit("b", "I run 6 km every day")]
    assert len(_chosen("How far do I run?", other)) == 2


def test_at_most_two_preferences_and_three_events_unless_they_are_asked_for() -> None:
    names = ("tea", "jazz", "chess", "opera")
    liked = [s.unit(name, f"I like {name}", category=Category.PREFERENCE) for name in names]
    seen = [s.unit(f"e{name}", f"I like that I heard {name} live", category=Category.EVENT) for name in names]
    found = _chosen("What do I like?", [*liked, *seen], limit=20)
    assert len([name for name in found if name in names]) == 2
    assert len(found) == 5
    asked = Quotas().without([Category.PREFERENCE])
    assert len(_chosen("What do I like?", liked, limit=20, quotas=asked)) == 4


def test_private_memories_come_before_shared_ones() -> None:
    units = [
        s.unit("org", "The office opens at nine, the office", shared=True),
        s.unit("mine", "My office is on floor two"),
    ]
    assert _chosen("When does the office open?", units) == ["mine", "org"]


def test_under_the_floor_there_is_nothing() -> None:
    assert _chosen("What is the capital of Peru?", [s.unit("a", "I like tea")], floor=0.7) == []


def test_unsure_means_asking_which_of_two_is_meant() -> None:
    units = [
        s.unit("a", "the restaurant by the river"),
        s.unit("b", "the restaurant on the hill"),
        s.unit("c", "I like tea"),
    ]
    found = s.ranking("that restaurant with the blue door and the lanterns", units, [0.7, 0.68, 0.0]).ranked
    asking = clarify("that restaurant with the blue door and the lanterns", found, floor=0.7)
    assert asking is not None and asking.candidates == ("a", "b")
    assert asking.question == "Do you mean “the restaurant by the river” or “the restaurant on the hill”?"


def test_sure_means_not_asking() -> None:
    found = s.ranking("the restaurant by the river", [s.unit("a", "the restaurant by the river")], [0.95]).ranked
    assert clarify("the restaurant by the river", found, floor=0.7) is None


def test_nothing_known_is_said_in_the_language_of_the_question() -> None:
    assert fallback("我上次说了什么？").startswith("我没有")
    assert fallback("What did I say?").startswith("I have no record")
