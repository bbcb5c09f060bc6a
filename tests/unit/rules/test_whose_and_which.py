"""Rules: whom an order is given to, what belongs to a value and what does not, and one name for one thing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from processors.rules import HitKind
from processors.slots import known_slots
from schemas import Operation
from tests.doubles.heard import LONDON, heard

Facts = set[tuple[str, str]]


read = partial(heard, **LONDON)


def asserted(text: str, **fields: Any) -> Facts:
    return {(hit.attribute, hit.value) for hit in read(text, **fields) if hit.operation is Operation.ASSERT}


@pytest.mark.parametrize(
    "text",
    [
        "@alice remember to bring the cake",
        "Bob, don't forget you owe me $20",
        "hey Bob, don't forget the milk",
        "Mom, remember to call the bank",
        "@carol please always cc me",
        "John, forget my phone number",
        "Dave, call me Al",
        "Anna, scratch that",
    ],
)
def test_what_is_ordered_of_somebody_else_is_nothing_of_the_speakers(text: str) -> None:
    assert read(text, group=True) == read(text) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@bot remember that I like tea", {("likes", "tea")}),
        ("Claude, remember that I'm vegan", {("diet", "vegan")}),
        ("@AI助手 记住我住在上海", {("residence", "上海")}),
        ("@memo-bot remember I live in Rome", {("residence", "Rome")}),
        ("@bob I live in Rome", {("residence", "Rome")}),
        ("Mom, I'm vegan", {("diet", "vegan")}),
        ("Remember that Alice hates nuts", {("note", "Alice hates nuts")}),
    ],
)
def test_an_agent_may_be_called_and_somebody_else_may_be_told(text: str, expected: Facts) -> None:
    assert asserted(text) == expected


def test_the_agent_of_the_turn_may_have_anybodys_name() -> None:
    assert asserted("Alice, remember that I'm vegan", agent_id="Alice-v2") == {("diet", "vegan")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I moved to Berlin in March", {("residence", "Berlin")}),
        ("I moved to Berlin on 3/4/2026", {("residence", "Berlin")}),
        ("I moved to Hamburg yesterday night", {("residence", "Hamburg")}),
        ("I moved to Monterey in early June", {("residence", "Monterey")}),
        ("I live in Berlin temporarily", {("residence", "Berlin")}),
        ("I live in May Township", {("residence", "May Township")}),
        ("I work at Century 21", {("employer", "Century 21")}),
        ("I work at Google living in NYC", {("employer", "Google"), ("residence", "NYC")}),
        ("I live in 上海 and work at 腾讯", {("residence", "上海"), ("employer", "腾讯")}),
    ],
)
def test_a_name_holds_no_time_and_no_second_statement(text: str, expected: Facts) -> None:
    assert asserted(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My birthday is tomorrow", set()),
        ("My birthday is in 3 days", set()),
        ("I don't eat meat today", set()),
        ("I'm vegan this week", set()),
        ("I don't eat meat starting today", {("diet", "don't eat meat")}),
    ],
)
def test_what_holds_for_once_is_no_fact(text: str, expected: Facts) -> None:
    assert asserted(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My sister and I are vegan", {("diet", "vegan")}),
        ("We are allergic to peanuts", {("allergy", "peanuts")}),
        ("My sister and her husband are vegan", set()),
    ],
)
def test_what_is_said_of_the_speaker_and_others_is_said_of_the_speaker(text: str, expected: Facts) -> None:
    assert asserted(text) == expected


@pytest.mark.parametrize(
    ("chinese", "english", "attribute"),
    [
        ("我老婆的生日是6月1号", "My wife's birthday is June 2", "wife_birthday"),
        ("我妈妈的生日是5月1号", "My mom's birthday is May 2", "mother_birthday"),
        ("我的电脑是MacBook", "My computer is a ThinkPad", "computer"),
        ("我的MBTI是INTJ", "My MBTI is INFP", "personality"),
        ("我的星座是狮子座", "My star sign is Virgo", "zodiac"),
        ("我老婆的手机号是13812345678", "My wife's phone number is 555-1234", "wife_phone"),
    ],
)
def test_one_thing_has_one_name_in_both_languages(chinese: str, english: str, attribute: str) -> None:
    assert [hit.attribute for hit in (*read(chinese), *read(english))] == [attribute, attribute]


def test_the_new_thing_takes_the_place_of_the_old_one() -> None:
    assert asserted("I just moved, my new address is 12 Main Street") == {("residence", "12 Main Street")}
    assert asserted("My New Year's resolution is to run") == {("goal", "run")}


def test_an_order_to_forget_everything_names_every_slot() -> None:
    found = {(hit.kind, hit.operation, hit.attribute, hit.value) for hit in read("Forget everything about me")}
    assert found == {(HitKind.FORGET, Operation.CLEAR, name, "") for name in known_slots()}
