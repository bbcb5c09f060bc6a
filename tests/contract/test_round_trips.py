"""How often a stage's transaction goes to the database: once to ask, once to write, once to commit."""

from __future__ import annotations

import pytest

from processors.batching import BatchLimits
from processors.intake import Intake
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from sinks.sealing.guard import Guard
from sinks.truth import Truth
from streams.metrics import Metrics
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from tests.doubles.carrier import Carrier
from tests.doubles.records import claim, turn
from tests.doubles.sealing import sealer

pytestmark = pytest.mark.services


def test_claims_of_people_who_are_known_are_resolved_in_three(mariadb_truth: Truth, sent: list[str]) -> None:
    guard = Guard(sealer().identities)
    stage = ResolveStage("candidates", Nearest(lambda _text, others: [0.0] * len(others)), Metrics(), guard)
    carry_out = Carrier(mariadb_truth, stage)
    moves = [
        [
            claim(number, value=f"City {number}", text=f"lives in City {number}"),
            claim(100 + number, owner="bob", namespace="user/bob/profile", value=f"City {number}"),
            claim(200 + number, attribute="likes", cardinality="multi", value="tea" if number < 3 else "coffee"),
        ]
        for number in range(1, 4)
    ]
    carry_out([claim(900, owner="carol", namespace="user/carol/profile", value="Oslo")])
    sent.clear()
    carry_out(moves[0])
    # Nobody's row is there yet, and what is new may have been erased once.
    assert [words.split()[0] for words in sent] == ["DELETE", "SELECT", "INSERT", "COMMIT"]
    sent.clear()
    carry_out(moves[1])
    assert [words.split()[0] for words in sent] == ["DELETE", "INSERT", "COMMIT"]
    sent.clear()
    carry_out(moves[2])
    # A value that is new may have been erased once.
    assert [words.split()[0] for words in sent] == ["DELETE", "SELECT", "INSERT", "COMMIT"]
    sent.clear()
    carry_out(moves[2])
    assert len(sent) <= 4, "delivered again"


def test_turns_of_people_who_are_known_are_taken_in_in_three(mariadb_truth: Truth, sent: list[str]) -> None:
    gate = PolicyGate(PolicySettings(), b"a key for tests only")
    intake = Intake(RuleBook.load(), NoiseFilter.load(), gate)
    stage = IngestStage(intake, BatchLimits(), Metrics(), sealer())
    carry_out = Carrier(mariadb_truth, stage)
    said = [turn(number, text=f"记住我的储物柜号码是{number}") for number in range(1, 4)]
    carry_out(said[:1])
    # The first time its data key is fetched, and then it is known.
    carry_out(said[1:2])
    sent.clear()
    carry_out(said[2:])
    assert [words.split()[0] for words in sent] == ["DELETE", "INSERT", "COMMIT"]
