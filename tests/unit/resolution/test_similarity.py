"""Sameness: two ways of saying one thing are merged, and what a number, a day or a "not" tells apart never is (SPEC W9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.resolution.similarity import Compare, Nearest, Verdict, is_sentence
from processors.resolution.spelling import Spellings, same_value
from schemas import Category, Memory
from tests.doubles.records import T0, claim, memory


def scores(**by_text: float) -> Compare:
    """A comparison that knows the answer for each stored text."""

    def compare(_text: str, others: Sequence[str]) -> Sequence[float]:
        return [by_text[other] for other in others]

    return compare


def alike(value: float = 1.0) -> Compare:
    return lambda _text, others: [value] * len(others)


def find(said: str, *stored: str, compare: Compare | None = None) -> Verdict | None:
    """Compare a note with stored ones, the first of them the oldest."""
    held = [
        (f"cell {number}", memory(text, text=text, category="note", first_stated_at=T0 + timedelta(minutes=number)))
        for number, text in enumerate(stored)
    ]
    return Nearest(compare or alike()).find(claim(text=said, value=said, category="note"), held)


def merged(said: str, stored: str) -> bool:
    verdict = find(said, stored)
    assert verdict is not None
    return verdict.same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("上海", "上海市"),
        ("江苏", "江苏省"),
        ("浦东新", "浦东新区"),
        ("上海", "上海 市"),
        ("Berlin", "berlin"),
        ("Berlin", "Berlin."),
        ("Berlin", "  Berlin "),
        ("Berlin", "Berlin, Germany"),
        ("Berlin", "Berlin (Germany)"),
        ("Berlin", "Berlin（德国）"),
        ("上海", "上海，中国"),
        ("Ｂｅｒｌｉｎ", "Berlin"),
        ("New  York", "new york"),
        ("Flat 3", "Flat 3, Hill Road"),
    ],
)
def test_a_value_said_more_exactly_is_the_same_value(one: str, other: str) -> None:
    assert same_value(one, other)
    assert same_value(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Leeds", "Berlin"),
        ("上海", "苏州"),
        ("北京", "南京"),
        ("南京", "南京路"),
        ("海", "海南"),
        ("海", "海市"),
        ("Paris", "Parisian"),
        ("New York", "New York State"),
        ("York", "New York"),
        ("12", "12,000"),
        ("25", "25，000"),
        ("5", "5,5"),
        ("1.5", "1.55"),
        ("12", "13"),
        ("Ann", "Anna"),
        ("peanut", "peanut butter"),
        ("花生", "花生酱"),
    ],
)
def test_a_value_that_only_begins_alike_is_another(one: str, other: str) -> None:
    assert not same_value(one, other)
    assert not same_value(other, one)


@given(st.text(max_size=12), st.text(max_size=12))
def test_sameness_has_no_direction_and_never_fails(one: str, other: str) -> None:
    assert same_value(one, other) == same_value(other, one)
    assert same_value(one, one)


_letters = st.text(alphabet="ab1,( 市上海-.", min_size=1, max_size=6)


@given(_letters, st.lists(_letters, max_size=8), st.booleans())
def test_what_is_looked_up_is_what_comparing_each_would_find(value: str, stored: list[str], longer: bool) -> None:
    stored = [value + item if longer else item for item in stored]
    spellings = Spellings()
    for place, item in enumerate(stored):
        spellings.add(str(place), item)
    alike = {str(place) for place, item in enumerate(stored) if same_value(item, value)}
    assert spellings.like(value) == alike


def test_a_thousand_values_of_one_slot_are_not_looked_through() -> None:
    spellings = Spellings()
    for number in range(1_000):
        spellings.add(str(number), f"shelf {number}, aisle {number % 7}")
    assert spellings.like("shelf 12") == {"12"}
    assert spellings.like("shelf 12, aisle 5") == {"12"}
    assert spellings.like("shelf") == set()


def test_names_are_compared_as_text_and_sentences_by_vector() -> None:
    assert {category for category in Category if not is_sentence(category)} == {Category.FACT, Category.PREFERENCE}


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("The user wants short answers", "The user wants short answers"),
        ("Wants short answers please", "The user wants short answers"),
        ("I don’t eat pork", "I don't eat pork"),
        ("I do not eat pork", "I don't eat pork"),
        ("Standup every Monday at 9", "Every Monday at 9: standup"),
        ("每天早上７点跑步", "每天早上7点跑步"),
        ("我不喜欢吃香菜", "我不喜欢吃香菜。"),
        ("回答要简短一些", "回答要简短"),
        ("我们一起去跑步", "我们去跑步"),
    ],
)
def test_one_statement_in_other_words_is_merged(said: str, stored: str) -> None:
    assert merged(said, stored)
    assert merged(stored, said)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("Call the bank at 3", "Call the bank at 4"),
        ("Call the bank at 3:15", "Call the bank at 3:51"),
        ("Budget is 1,200 euros a month", "Budget is 1,500 euros a month"),
        ("I have two cats and a dog", "I have three cats and a dog"),
        ("每天三点开会", "每天四点开会"),
        ("我养了两只猫和狗", "我养了三只猫和狗"),
        ("开会是3月5日", "开会是5月8日"),
        ("孩子今年六岁", "孩子今年七岁"),
        ("Take the medicine twice", "Take the medicine once"),
    ],
)
def test_a_number_tells_two_statements_apart(said: str, stored: str) -> None:
    assert not merged(said, stored)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("Every Monday at 9 there is standup", "Every Tuesday at 9 there is standup"),
        ("每周一去健身房", "每周二去健身房"),
        ("每个星期三开例会", "每个星期四开例会"),
        ("The holiday begins in June", "The holiday begins in July"),
    ],
)
def test_a_day_tells_two_statements_apart(said: str, stored: str) -> None:
    assert not merged(said, stored)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("I eat pork", "I don't eat pork"),
        ("I eat pork", "I don’t eat pork"),
        ("I eat pork", "I cannot eat pork"),
        ("I drank coffee", "I wasn't drinking coffee"),
        ("I never eat pork", "I eat pork"),
        ("Send the report without the annex", "Send the report with the annex"),
        ("我喜欢吃香菜", "我不喜欢吃香菜"),
        ("我特别喜欢跑步", "我不喜欢跑步"),
        ("会议记录请发给我", "会议记录请勿发给我"),
        ("我有过敏史", "我没有过敏史"),
        ("别给我发邮件", "给我发邮件"),
    ],
)
def test_a_negation_tells_two_statements_apart(said: str, stored: str) -> None:
    assert not merged(said, stored)
    assert not merged(stored, said)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("Water the plants on the balcony", "Feed the neighbour's old cat"),
        ("给阳台的花浇水", "喂邻居家的老猫"),
        ("", "Water the plants"),
        ("!!!", "???"),
    ],
)
def test_near_vectors_without_common_words_are_not_merged(said: str, stored: str) -> None:
    assert not merged(said, stored)


@pytest.mark.parametrize(
    ("similarity", "found", "same"),
    [(0.84, False, False), (0.85, True, False), (0.91, True, False), (0.92, True, True)],
)
def test_the_thresholds_are_the_sources_numbers(similarity: float, found: bool, same: bool) -> None:
    verdict = find("water the plants", "water the plants", compare=alike(similarity))
    assert (verdict is not None) is found
    assert (verdict is not None and verdict.same) is same


def test_the_thresholds_can_be_set() -> None:
    held: list[tuple[str, Memory]] = [("cell", memory(text="water the plants", category="note"))]
    said = claim(text="water the plants", category="note")
    assert Nearest(alike(0.6), dedupe=0.7, conflict=0.65).find(said, held) is None
    loose = Nearest(alike(0.6), dedupe=0.6, conflict=0.5).find(said, held)
    assert loose is not None
    assert loose.same


def test_the_nearest_is_named_with_its_cell_and_similarity() -> None:
    verdict = find("c", "a", "b", "c", compare=scores(a=0.86, b=0.99, c=0.9))
    assert verdict is not None
    assert (verdict.cell_key, verdict.memory.text, verdict.similarity) == ("cell 1", "b", 0.99)


def test_of_equally_near_ones_the_oldest_counts_however_they_are_listed() -> None:
    older = ("older", memory("z", text="water plants", first_stated_at=T0))
    newer = ("newer", memory("a", text="water plants", first_stated_at=T0 + timedelta(days=1)))
    said = claim(text="water plants", category="note")
    for held in ([older, newer], [newer, older]):
        verdict = Nearest(alike()).find(said, held)
        assert verdict is not None
        assert verdict.cell_key == "older"


def test_a_repetition_counts_before_a_nearer_one_that_a_number_tells_apart() -> None:
    stored = {"call the bank at 4": 1.0, "at 3 call the bank": 0.95}
    verdict = find("call the bank at 3", *stored, compare=scores(**stored))
    assert verdict is not None
    assert (verdict.memory.text, verdict.same) == ("at 3 call the bank", True)


def test_without_anything_stored_nothing_is_compared() -> None:
    def never(_text: str, _others: Sequence[str]) -> Sequence[float]:
        raise AssertionError

    assert Nearest(never).find(claim(), []) is None


def test_all_stored_sentences_are_compared_in_one_call() -> None:
    calls: list[tuple[str, list[str]]] = []

    def compare(text: str, others: Sequence[str]) -> Sequence[float]:
        calls.append((text, list(others)))
        return [0.0] * len(others)

    assert find("new", "a", "b", "c", compare=compare) is None
    assert calls == [("new", ["a", "b", "c"])]
