"""Each sentence of the chaos load says exactly one thing to the rules and to the model's double, or nothing at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ops.chaos.model import likes_found
from ops.chaos.talk import ANSWERS, CHAT, NOISE, RETRACTIONS, SEGMENTS, START, VALUES, ZONE, Talk, memory_id, sentences
from processors.extraction.item import read_item
from processors.extraction.judge import Judge
from processors.extraction.outcome import RawItem
from processors.extraction.render import render
from processors.intake import Intake, Judged
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.resolution.cell import memory_id_of
from processors.rules import RuleBook
from processors.slots import value_key
from processors.spans import own_words
from processors.times import resolve
from schemas import ExtractionBatch, Role, Turn

GATE = PolicyGate(PolicySettings(), b"a key for tests only")


@pytest.fixture(scope="module")
def intake() -> Intake:
    return Intake(RuleBook.load(), NoiseFilter.load(), GATE)


def turn(text: str, role: Role = Role.USER) -> Turn:
    return Turn(
        tenant="chaos",
        conversation_id="u1-a",
        turn_id="t1",
        user_id="u1",
        role=role,
        text=text,
        sent_at=START,
        timezone=ZONE,
    )


SAID = [
    (attribute, channel, value, sentence.format(value=value, number=17))
    for attribute, values in VALUES.items()
    for value in values
    for channel, sentence in sentences(attribute, value)
]


@pytest.mark.parametrize(("attribute", "channel", "value", "text"), SAID, ids=[item[3] for item in SAID])
def test_a_statement_is_one_claim_of_one_channel(
    intake: Intake, attribute: str, channel: str, value: str, text: str
) -> None:
    judged = intake.judge(turn(text))
    assert judged.noise is None
    claims = [verdict.candidate for verdict in judged.verdicts]
    if channel == "model":
        assert claims == []
        claims = [verdict_of(text)]
    (claim,) = claims
    assert (claim.attribute, claim.value, claim.decision) == (attribute, value, "accept")
    assert claim.namespace == f"user/u1/{SEGMENTS[attribute]}"
    assert memory_id("u1", attribute, value) == memory_id_of(claim, value_key(value))
    assert likes_found(prompted(text)) == [] or channel == "model"


def prompted(text: str) -> str:
    return render(batch(text), own_words).user


def batch(text: str) -> ExtractionBatch:
    return ExtractionBatch(
        batch_id="b",
        tenant="chaos",
        conversation_id="u1-a",
        conversation_key="k",
        turns=(turn(text),),
        language="en",
        token_estimate=1,
        closed_by="end",
        closed_at=START + timedelta(minutes=1),
    )


def verdict_of(text: str):  # type: ignore[no-untyped-def]  # a candidate
    prompt = render(batch(text), own_words)
    (found,) = likes_found(prompt.user)
    item = read_item(found)
    assert isinstance(item, RawItem)
    candidates, rejected = Judge(prompt, "double-1", own_words, resolve).judge_all([item])
    assert rejected == ()
    return GATE.judge(candidates[0], turn(text)).candidate


@pytest.mark.parametrize(
    "text", [text.format(number=17) for text in (*CHAT, "That is all for today, ticket {number}.")]
)
def test_chat_says_nothing(intake: Intake, text: str) -> None:
    judged = intake.judge(turn(text))
    assert (judged.noise, judged.retracts, judged.verdicts) == (None, False, ())
    assert likes_found(prompted(text)) == []


@pytest.mark.parametrize("text", [text.format(number=17) for text in ANSWERS])
def test_an_answer_says_nothing(intake: Intake, text: str) -> None:
    judged = intake.judge(turn(text, Role.ASSISTANT))
    assert (judged.noise, judged.verdicts) == (None, ())


@pytest.mark.parametrize(("text", "reason"), NOISE)
def test_noise_is_filtered_for_the_reason_expected(intake: Intake, text: str, reason: str) -> None:
    assert intake.judge(turn(text)).noise == reason


@pytest.mark.parametrize("text", RETRACTIONS)
def test_a_retraction_takes_back(intake: Intake, text: str) -> None:
    judged: Judged = intake.judge(turn(text))
    assert (judged.noise, judged.retracts, judged.verdicts) == ("retraction", True, ())


def test_the_same_seed_is_the_same_talk() -> None:
    def talked(seed: int) -> list[bytes]:
        talk = Talk(seed, 5, visible=lambda _id: True, acknowledged=lambda _line: True)
        return [line.raw for _ in range(300) for line in talk.next()]

    assert talked(1) == talked(1)
    assert talked(1) != talked(2)
