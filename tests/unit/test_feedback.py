"""Unit tests: what corrections say, rates of outcomes, policy hints, and the lines of the fine-tuning export."""

from __future__ import annotations

import json
from typing import Any

import pytest

from processors.feedback import Label, Outcomes, Shown, example, outcomes_of, read_correction
from processors.hints import HintAction, hints, proposal
from processors.rules import RuleBook
from processors.rules.channel import candidates_from
from schemas import Candidate, CommandKind, FeedbackKind, OwnerKind
from tests.doubles.records import at, memory, turn

RULES = RuleBook.load()


def shown(name: str = "m", attribute: str = "residence", version: int = 1, writer: str = "rules:1") -> Shown:
    return Shown(memory(name).id, version, attribute, writer)


def label(kind: str = "used", *memories: Shown, **fields: Any) -> Label:
    given: dict[str, Any] = {
        "tenant": "acme",
        "owner": "ann",
        "agent_id": "crm",
        "query": "where do I live?",
        "correction": None,
        "decision": None,
        "policy_version": "policy-1",
        "model": "hashing",
        "given_at": at(1),
    }
    return Label(kind=FeedbackKind(kind), shown=memories, **(given | fields))


def claims(text: str) -> tuple[Candidate, ...]:
    said = turn(text=text)
    return candidates_from(said, RULES.match(said))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("No, I moved to York", "York"),
        ("我现在住在上海", "上海"),
        # No rule reads it, so the words themselves are the value.
        ("York", "York"),
        ("it's York, not Leeds", "it's York, not Leeds"),
    ],
)
def test_a_correction_gives_the_value_that_the_rule_book_reads_in_it(text: str, value: str) -> None:
    read = read_correction(text, claims(text), memory())
    assert (read.value, read.ends, read.elsewhere) == (value, False, ())


def test_a_correction_that_only_denies_ends_the_memory() -> None:
    text = "I don't live in Leeds any more"
    assert read_correction(text, claims(text), memory()).ends


def test_of_a_correction_that_names_a_new_and_an_old_value_the_new_one_counts() -> None:
    text = "I'm allergic to peanuts, not shellfish"
    read = read_correction(text, claims(text), memory(attribute="allergy", value="shellfish"))
    assert (read.value, read.ends) == ("peanuts", False)


def test_a_correction_about_something_else_says_what_it_is_about() -> None:
    text = "actually I work at Acme"
    assert read_correction(text, claims(text), memory()).elsewhere == ("employer",)


def test_a_correction_about_another_person_does_not_speak_of_the_user() -> None:
    text = "No, I moved to York"
    assert read_correction(text, claims(text), memory(subject="sister")).elsewhere == ("residence",)


def test_rates_count_each_recalled_memory_once() -> None:
    """Scenario: three memories used, one ignored, one corrected, one complaint of something forgotten.

    We expect: rates over the five recalled ones; the complaint counts by itself.
    """
    report = outcomes_of(
        [
            label("used", shown("a"), shown("b"), shown("c", "diet")),
            label("ignored", shown("d", "diet"), agent_id="travel"),
            label("corrected", shown("a")),
            label("forgotten"),
        ]
    ).report()
    assert report["user_correction_rate"] == 0.2
    assert report["total"] == {
        "recalled": 5,
        "forgotten": 1,
        "used_rate": 0.6,
        "ignored_rate": 0.2,
        "correction_rate": 0.2,
    }
    assert report["attributes"]["diet"]["ignored_rate"] == 0.5
    assert report["agents"]["crm"]["correction_rate"] == 0.25
    assert report["agents"]["travel"]["used_rate"] == 0.0


def test_without_feedback_there_is_no_rate() -> None:
    report = outcomes_of([]).report()
    assert report["user_correction_rate"] is None
    assert report["attributes"] == {}


def test_feedback_that_names_no_memory_counts_as_one_outcome() -> None:
    assert outcomes_of([label("used")]).total.recalled == 1


def of(kind_and_number: dict[str, int], attribute: str = "residence", **fields: Any) -> Outcomes:
    memories = () if attribute == "" else (shown(attribute=attribute),)
    return outcomes_of(
        label(kind, *memories, **fields) for kind, number in kind_and_number.items() for _ in range(number)
    )


def test_an_attribute_ignored_in_nine_of_ten_recalls_is_proposed_a_lower_weight() -> None:
    [hint] = hints(of({"ignored": 9, "used": 1}, agent_id=None))
    assert (hint.action, hint.about, hint.value) == (HintAction.LOWER_WEIGHT, "attribute residence", "0.25")
    assert hint.detail == "residence was ignored in 9 of 10 recalls: lower its weight to 0.25"


@pytest.mark.parametrize(
    "outcomes",
    [{"ignored": 9}, {"ignored": 7, "used": 3}, {"corrected": 3, "used": 7}, {"used": 100, "corrected": 5}],
    ids=["nine in all", "seven of ten", "three corrected of ten", "five of a hundred"],
)
def test_too_little_evidence_proposes_nothing(outcomes: dict[str, int]) -> None:
    assert hints(of(outcomes)) == ()


def test_an_attribute_that_is_often_corrected_is_to_be_asked_for_first() -> None:
    [hint] = hints(of({"corrected": 5, "used": 5}))
    assert (hint.action, hint.about) == (HintAction.CONFIRM_FIRST, "attribute residence")


def test_an_agent_that_ignores_what_it_gets_is_shown_fewer() -> None:
    found = hints(of({"ignored": 20}, attribute=""))
    assert [(hint.action, hint.about) for hint in found] == [(HintAction.SHOW_FEWER, "agent crm")]


def test_an_agent_that_misses_memories_is_to_search_more_widely() -> None:
    found = hints(of({"forgotten": 8, "used": 8}, attribute=""))
    assert [(hint.action, hint.about) for hint in found] == [(HintAction.WIDEN, "agent crm")]


def test_no_hint_names_an_attribute_of_one_persons_own_making() -> None:
    assert hints(of({"ignored": 20}, attribute="jane_s_new_phone", agent_id=None)) == ()


def test_a_proposal_is_a_command_of_the_policys_own_owner_and_the_same_each_time() -> None:
    [hint] = hints(of({"ignored": 9, "used": 1}, agent_id=None))
    one, other = proposal(hint, "acme", at(1)), proposal(hint, "acme", at(90))
    assert one.command_id == other.command_id
    assert (one.kind, one.owner_kind, one.owner) == (CommandKind.ASSERT, OwnerKind.AGENT, "memriver")
    claim = Candidate.from_dict(one.payload)
    assert (claim.owner_key, claim.subject, claim.value) == (one.owner_key, "attribute residence", "0.25")
    assert proposal(hint, "other", at(1)).command_id != one.command_id


def test_a_hint_with_ten_times_the_evidence_is_a_new_question() -> None:
    few, many = (hints(of({"ignored": number}, agent_id=None))[0] for number in (20, 200))
    assert proposal(few, "acme", at(1)).command_id != proposal(many, "acme", at(1)).command_id


def line(given: Label, **texts: str) -> dict[str, Any] | None:
    told = {(memory(name).id, 1): text for name, text in texts.items()}
    return example(given, told, lambda text: text.replace("13800138000", "[phone]"))


def test_an_example_is_a_chat_with_the_answer_that_would_have_been_right() -> None:
    made = line(label("used", shown("a"), shown("b", "diet")), a="lives in Leeds", b="eats no meat")
    assert made is not None
    assert [message["role"] for message in made["messages"]] == ["system", "user", "assistant"]
    assert made["messages"][1]["content"] == (
        "Question: where do I live?\nMemories:\n[1] residence: lives in Leeds\n[2] diet: eats no meat"
    )
    assert json.loads(made["messages"][2]["content"]) == {
        "use": [1, 2],
        "wrong": [],
        "missing": False,
        "correction": None,
    }
    assert (made["label"], made["agent"], made["writers"]) == ("used", "crm", ["rules:1"])


def test_an_example_of_a_correction_says_what_was_wrong_and_what_is_right() -> None:
    made = line(label("corrected", shown("a"), correction="York", decision="accept"), a="lives in Leeds")
    assert made is not None
    answer = json.loads(made["messages"][2]["content"])
    assert (answer["wrong"], answer["correction"]) == ([1], "York")


def test_an_example_names_no_owner_and_no_number() -> None:
    given = label(
        "used",
        shown("a", writer="person:ann"),
        query="Is Ann's number 13800138000? 我是ann的",
        agent_id="ann",
    )
    made = line(given, a="ann lives in Annecy")
    assert made is not None
    assert made["messages"][1]["content"] == (
        "Question: Is [owner]'s number [phone]? 我是[owner]的\nMemories:\n[1] residence: [owner] lives in Annecy"
    )
    assert (made["agent"], made["writers"]) == (None, ["person"])


def test_a_memory_that_is_gone_is_in_no_example() -> None:
    assert line(label("corrected", shown("a"), correction="York")) is None
    made = line(label("used", shown("a"), shown("b", "diet")), b="eats no meat")
    assert made is not None
    assert made["messages"][1]["content"].endswith("Memories:\n[1] diet: eats no meat")


@pytest.mark.parametrize("decision", ["quarantine", "refuse"])
def test_what_the_policy_kept_out_trains_no_model(decision: str) -> None:
    assert line(label("corrected", shown("a"), correction="obey me", decision=decision), a="lives in Leeds") is None


def test_a_complaint_is_an_example_without_memories() -> None:
    made = line(label("forgotten", query="what is my sister's name?"))
    assert made is not None
    assert made["messages"][1]["content"].endswith("Memories:\n(none)")
    assert json.loads(made["messages"][2]["content"])["missing"] is True
