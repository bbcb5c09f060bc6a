"""Tests, extraction: the parser reads what a model meant, and tells "nothing" from "unreadable"."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.extraction.outcome import Extracted, Nothing, RawItem, Truncated, Unparsable
from processors.extraction.parse import MAX_ITEMS, MAX_REPLY_CHARS, parse
from schemas import Category, MemoryType, Operation

ITEM: dict[str, Any] = {"turn": 1, "attribute": "residence", "value": "成都", "quote": "我住在成都"}
OTHER: dict[str, Any] = {"turn": 2, "attribute": "likes", "value": "火锅", "quote": "我喜欢火锅"}
ONE = json.dumps(ITEM, ensure_ascii=False)
TWO = json.dumps(OTHER, ensure_ascii=False)
GOOD = f'{{"memories": [{ONE}, {TWO}]}}'
EMPTY = '{"memories": []}'


def values(outcome: object) -> list[str]:
    assert isinstance(outcome, (Extracted, Truncated)), outcome
    return [item.value for item in outcome.items]


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"\ufeff \n{GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"~~~\n{GOOD}",
        f"Sure, {{here}} you are [1]:\n{GOOD}\nAnything {{else}}?",
        f"<think>is it {EMPTY}?</think>\n{GOOD}",
        f"<think>{EMPTY} no…\n{GOOD}",
        f"<think>so:\n{GOOD}\n</think>",
        f"<THINKING>so</THINKING>{GOOD}",
        f"the template opened it </think>\n{GOOD}",
        f"{EMPTY}\nWait, no:\n{GOOD}",
        f"[{ONE}, {TWO}]",
        f"{ONE}\n{TWO}",
        f"[{GOOD}]",
        f'{{"memories": [{ONE}, {TWO},],}}',
        f'{{"facts": [{ONE}, {TWO}]}}',
        str({"memories": [{**ITEM, "time": None}, OTHER]}),
        GOOD.replace("我住在成都", "我住在\n成都"),
        GOOD.replace("我住在成都", "我住在\\_成都"),
    ],
)
def test_an_answer_is_found_in_whatever_stands_around_it(reply: str) -> None:
    assert values(parse(reply, "stop")) == ["成都", "火锅"]


def test_a_think_tag_in_somebodys_words_is_not_a_think_block() -> None:
    reply = GOOD.replace("我住在成都", "<think> 我住在成都")
    assert values(parse(reply, "stop")) == ["成都", "火锅"]


def test_the_last_of_several_answers_wins_also_when_it_is_empty() -> None:
    assert isinstance(parse(f"{GOOD}\nOn reflection:\n{EMPTY}", "stop"), Nothing)


def test_a_single_object_in_place_of_the_list_is_one_item() -> None:
    assert values(parse(f'{{"memories": {ONE}}}', "stop")) == ["成都"]


@pytest.mark.parametrize("reply", [EMPTY, f"```\n{EMPTY}\n```", "[]", "```json\n[ ]\n```", "{'memories': []}"])
def test_a_valid_empty_list_is_nothing(reply: str) -> None:
    assert parse(reply, "stop") == Nothing()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty_reply"),
        (" \n", "empty_reply"),
        ("There is nothing worth keeping.", "prose"),
        ("I looked at [] and found nothing.", "no_memories"),
        ("{}", "no_memories"),
        ('{"memories": null}', "no_memories"),
        ('["likes tea"]', "no_memories"),
        ('{"error": {"message": "overloaded"}}', "provider_error"),
        ("{not json at all}", "malformed"),
        ("[" * 1_000_000, "malformed"),
        ('{"a":' * 100_000, "malformed"),
        ('{"' * 200_000, "malformed"),
        ("{'a" * 200_000, "malformed"),
        ("x" * (MAX_REPLY_CHARS + 1), "too_large"),
    ],
)
def test_what_holds_no_answer_is_unparsable_and_never_nothing(reply: str, reason: str) -> None:
    assert parse(reply, "stop") == Unparsable(reason)


def test_a_filtered_answer_is_a_refusal() -> None:
    assert parse("", "content_filter") == Unparsable("refused")


def test_a_megabyte_of_thinking_does_not_hide_the_answer() -> None:
    assert values(parse(f"<think>{'{so ' * 350_000}</think>{GOOD}", "stop")) == ["成都", "火锅"]


@pytest.mark.parametrize("finish", ["length", "stop"])
def test_an_answer_that_stops_in_its_middle_is_truncated_whatever_the_endpoint_says(finish: str) -> None:
    assert values(parse(GOOD[:-30], finish)) == ["成都"]
    assert isinstance(parse(GOOD[:-30], finish), Truncated)


@pytest.mark.parametrize("reply", ["", "<think>long", "Let me", '{"memories": [', f"{GOOD} Final: {GOOD[:20]}"])
def test_a_reply_cut_at_its_length_is_truncated(reply: str) -> None:
    assert isinstance(parse(reply, "length"), Truncated)


def test_a_whole_answer_that_was_cut_in_its_last_words_is_whole() -> None:
    assert isinstance(parse(f"{GOOD}\nI hope this", "length"), Extracted)


def test_one_bad_item_is_rejected_with_a_reason_and_the_others_go_on() -> None:
    bad: list[Any] = [
        "text",
        None,
        {"turn": 1, "quote": "q"},
        {"turn": {}, "value": "v", "quote": "q"},
        {"turn": True, "value": "v", "quote": "q"},
        {"turn": 1, "value": ["a", "b"], "quote": "q"},
        {"turn": 1, "value": " ", "quote": "q"},
        {"turn": 1, "value": "v"},
        {"turn": 1, "value": "v", "quote": "q", "operation": "explode"},
        {"turn": 1, "value": "v", "quote": "q", "operation": "clear"},
        {"turn": 1, "value": "v", "quote": "q", "confidence": "very"},
    ]
    outcome = parse(json.dumps({"memories": [ITEM, *bad, OTHER]}), "stop")
    assert isinstance(outcome, Extracted)
    assert values(outcome) == ["成都", "火锅"]
    assert [rejected.reason for rejected in outcome.rejected] == [
        "not_an_object",
        "not_an_object",
        "value:missing",
        "turn:wrong_type",
        "turn:wrong_type",
        "value:wrong_type",
        "value:missing",
        "quote:missing",
        "operation:wrong_type",
        "operation:wrong_type",
        "confidence:wrong_type",
    ]


def test_a_malformed_item_in_the_middle_costs_only_itself() -> None:
    reply = f'{{"memories": [{ONE}, {{"turn": 2, "value": "a "quoted" word", "quote": "x"}}, {TWO}]}}'
    outcome = parse(reply, "stop")
    assert isinstance(outcome, Extracted)
    assert values(outcome) == ["成都", "火锅"]
    assert [rejected.reason for rejected in outcome.rejected] == ["malformed"]


@pytest.mark.parametrize(
    ("field", "written", "read"),
    [
        ("turn", "[2]", 2),
        ("turn", "turn 2", 2),
        ("turn", 2.0, 2),
        ("turn", [2], 2),
        ("value", 30, "30"),
        ("value", 30.0, "30"),
        ("value", 1.5, "1.5"),
        ("value", ["成都"], "成都"),
        ("confidence", "0.8", 0.8),
        ("confidence", "90%", 0.9),
        ("confidence", 7, 1.0),
        ("confidence", -1, 0.0),
        ("confidence", None, 0.5),
        ("operation", "End", Operation.END),
        ("type", "Episodic", MemoryType.EPISODIC),
        ("type", "opinion", None),
        ("category", "goal", Category.GOAL),
        ("category", 5, None),
        ("time", 5, None),
        ("time", " 昨天 ", "昨天"),
        ("subject", "", "user"),
        ("subject", None, "user"),
        ("value", "a\ud83db", "a\ufffdb"),
        ("value", "a\x00b", "a b"),
    ],
)
def test_wrong_types_are_coerced_where_that_is_safe(field: str, written: Any, read: Any) -> None:
    outcome = parse(json.dumps({"memories": [{**ITEM, field: written}]}), "stop")
    assert isinstance(outcome, Extracted)
    assert getattr(outcome.items[0], field) == read


def test_nan_is_no_confidence() -> None:
    outcome = parse('{"memories": [{"turn": 1, "value": "v", "quote": "q", "confidence": NaN}]}', "stop")
    assert values(outcome) == ["v"]
    assert isinstance(outcome, Extracted)
    assert outcome.items[0].confidence == 0.5


def test_a_reply_with_endless_items_is_read_up_to_a_bound() -> None:
    outcome = parse(json.dumps({"memories": [ITEM] * (MAX_ITEMS + 5)}), "stop")
    assert isinstance(outcome, Extracted)
    assert len(outcome.items) == MAX_ITEMS
    assert outcome.rejected[-1].reason == "too_many"


@given(
    st.text(alphabet=st.sampled_from("{}[]\",:\\'`<>/think memoris1.\n"), max_size=200),
    st.sampled_from(["stop", "length"]),
)
def test_no_text_makes_the_parser_raise(reply: str, finish: str) -> None:
    assert isinstance(parse(reply, finish), (Extracted, Nothing, Unparsable, Truncated))


@given(st.integers(min_value=1, max_value=len(GOOD) - 3))
def test_no_prefix_of_an_answer_passes_for_a_whole_one(length: int) -> None:
    outcome = parse(GOOD[:length], "length")
    assert isinstance(outcome, Truncated)
    assert all(isinstance(item, RawItem) for item in outcome.items)
    # The same prefix, said to be complete, may be unreadable or cut off, and is never "nothing to remember".
    assert isinstance(parse(GOOD[:length], "stop"), (Truncated, Unparsable))
