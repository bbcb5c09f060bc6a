"""A log that is read again after a restore: the resolver may come to a claim before ingest has stored its turn."""

from __future__ import annotations

import pytest

from schemas import Outcome
from sinks.truth import Truth, turns
from tests.doubles.records import claim, turn, turn_row
from tests.doubles.traveller import Traveller


@pytest.mark.parametrize(
    ("stored", "revision", "outcome"),
    [
        (Outcome.STORED, 0, "remembered"),
        (Outcome.BATCHED, 0, "remembered"),
        # Edited since: the claim was made of other words.
        (Outcome.STORED, 1, "stored"),
        (Outcome.FILTERED, 0, "filtered"),
    ],
)
def test_a_turn_that_is_stored_after_its_claim_is_remembered_when_the_claim_comes_again(
    truth: Truth, stored: Outcome, revision: int, outcome: str
) -> None:
    here = Traveller(truth)
    here.hear(claim(1))
    said = turn(1, revision=revision)
    truth.run(lambda connection: turns.insert_turns(connection, [turn_row(said, outcome=stored, pending=False)]))
    before = here.held()
    here.hear(claim(1))
    with truth.reading() as connection:
        assert [row["outcome"] for row in turns.outcomes(connection)] == [outcome]
    assert here.held() == before
