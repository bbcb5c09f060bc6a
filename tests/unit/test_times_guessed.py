"""Unit tests, guessed times: nothing is reckoned from a time that nobody stated, and such a time makes no two turns of one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processors.intake import Intake, says_the_same
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.rules import RuleBook, candidates_from
from processors.times import resolve, times_of
from schemas import Role, Turn

FILE = datetime(2026, 11, 30, 9, tzinfo=UTC)


def turn(text: str, **changes: Any) -> Turn:
    fields: dict[str, Any] = {
        "conversation_id": "c",
        "turn_id": "0-a",
        "user_id": "u",
        "role": Role.USER,
        "text": text,
        "sent_at": FILE,
        "sent_at_guessed": True,
    }
    return Turn(**(fields | changes))


def quotes(said: Turn) -> list[str]:
    return [span.quote for span in times_of(said, said.text, "en", resolve)]


@pytest.mark.parametrize(
    "text",
    [
        "last month",
        "上周",
        "tomorrow",
        "in three months",
        "on Monday",
        "12月25号",
        "on December 25",
        "until Friday",
        "今年",
    ],
)
def test_what_is_reckoned_from_the_moment_of_speaking_is_read_only_when_that_is_known(text: str) -> None:
    said = turn(f"See you there {text}.")
    assert quotes(said) == []
    assert quotes(said.model_copy(update={"sent_at_guessed": False})) != []


@pytest.mark.parametrize("text", ["in May 2019", "2019年5月", "on 2019-05-03", "since 2015"])
def test_a_date_with_its_year_is_read_whenever_it_was_said(text: str) -> None:
    assert quotes(turn(f"I was there {text}.")) != []


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_a_guess_may_lie_anywhere_in_the_calendar(year: int) -> None:
    said = turn("I moved to Rome last month and to Leeds in May 2019.", sent_at=datetime(year, 6, 1, tzinfo=UTC))
    assert [quote for quote in quotes(said) if "month" in quote] == []
    assert len(quotes(said)) == 1


def test_a_claim_of_unknown_time_has_no_other_time_than_its_turn() -> None:
    for text, when in (
        ("I moved to Rome last month.", FILE),
        ("I moved to Rome in May 2019.", datetime(2019, 5, 1, tzinfo=UTC)),
    ):
        said = turn(text)
        (home,) = candidates_from(said, RuleBook.load().match(said))
        assert (home.value, home.event_time) == ("Rome", when)


@pytest.mark.parametrize("text", ["这周不要提醒我开会", "Keep your answers short this week."])
def test_an_order_for_a_week_that_nobody_knows_binds_nobody_now(text: str) -> None:
    said = turn(text)
    (order,) = candidates_from(said, RuleBook.load().match(said))
    assert (order.attribute, order.valid_to) == ("instruction", FILE)


def judged_hash(said: Turn) -> str:
    return (
        Intake(RuleBook.load(), NoiseFilter.load(), PolicyGate(PolicySettings(), b"a key for tests only"))
        .judge(said)
        .content_hash
    )


LATER = {"sent_at": FILE + timedelta(days=3)}
STATED = {"sent_at": datetime(2024, 5, 1, tzinfo=UTC), "sent_at_guessed": False}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({}, {}, True),
        ({}, LATER, True),
        ({}, STATED, True),
        (STATED, {}, True),
        (STATED, STATED, True),
        (STATED, STATED | LATER, False),
        ({}, LATER | {"text": "another"}, False),
        (STATED, {"text": "another"}, False),
        ({}, LATER | {"user_id": "v"}, False),
        (STATED, {"role": "assistant"}, False),
    ],
)
def test_a_repeat_is_told_by_what_it_says_and_by_times_that_were_stated(
    first: dict[str, Any], second: dict[str, Any], same: bool
) -> None:
    stored, come = turn("hello", **first), turn(**({"text": "hello"} | second))
    assert says_the_same(come, judged_hash(stored), stored.sent_at) is same


def test_a_turn_that_was_stored_with_its_guess_before_guesses_were_marked_is_still_the_same() -> None:
    come = turn("hello")
    old = judged_hash(come.model_copy(update={"sent_at_guessed": False}))
    assert says_the_same(come, old, come.sent_at)
