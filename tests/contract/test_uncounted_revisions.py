"""Edits and deletions of a gateway that counts no revisions: the order of arrival changes nothing, and nobody is bothered."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processors.batching import BatchLimits
from processors.intake import LAST_REVISION, Intake, numbered
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from schemas import Status, Turn
from sinks.truth import Truth, deadletters, memories, turns
from sinks.truth.outbox import Outgoing
from streams.delivery import Delivery
from streams.metrics import Metrics
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from tests.doubles.log import Broker, Stream

SAID_AT = datetime(2026, 3, 2, 1, tzinfo=UTC)


def turn(text: str, *, edited: float | None = None, **fields: Any) -> Turn:
    """The one turn that everything here is about; `edited` is in seconds after it was said."""
    given = {"tenant": "acme", "conversation_id": "c1", "turn_id": "t1", "user_id": "ann", "role": "user"}
    at = SAID_AT + timedelta(seconds=edited) if edited is not None else None
    return Turn.model_validate(given | {"text": text, "sent_at": SAID_AT, "edited_at": at} | fields)


ORIGINAL = turn("我住在北京")
EDIT = turn("我住在上海", edited=40)
SECOND_EDIT = turn("我住在杭州", edited=90.5)
DELETION = turn("", deleted=True)


@pytest.fixture(scope="module")
def intake() -> Intake:
    """Loaded once."""
    return Intake(RuleBook.load(), NoiseFilter.load(), PolicyGate(PolicySettings(), b"a key for tests only"))


class Published:
    """A broker that is a list."""

    def __init__(self) -> None:
        self.broker = Broker()

    async def flush(self, messages: Any) -> None:
        await self.broker.publish(messages)


async def arrive(truth: Truth, intake: Intake, *arriving: Turn) -> None:
    """Each in a group of its own, through ingest and resolve."""
    out = Published()
    metrics = Metrics()
    nearest = Nearest(lambda _text, others: [0.0] * len(others))
    with ThreadPoolExecutor(1) as executor:
        delivery = Delivery(
            truth, out, executor, metrics, now=lambda: SAID_AT, group_size=1, linger_seconds=0.0, on_fatal=pytest.fail
        )
        await out.broker.publish([Outgoing("turns", "k", "k", item.to_bytes()) for item in arriving])
        for stage in (
            IngestStage(intake, BatchLimits(), metrics),
            ResolveStage("candidates", nearest, metrics),
            ResolveStage("commands", nearest, metrics),
        ):
            await delivery.run(Stream(out.broker.unread(stage.name, stage.topic)), stage)


def held(truth: Truth) -> tuple[list[str], int, str]:
    """Current values, dead letters, and the turn's text."""
    with truth.reading() as connection:
        values = [item.value for item in memories.listing(connection) if item.status is Status.ACTIVE]
        [row] = turns.outcomes(connection)
        return values, deadletters.count(connection), row["text"]


@pytest.mark.parametrize("order", list(itertools.permutations([ORIGINAL, EDIT, SECOND_EDIT])), ids=lambda _order: "")
async def test_the_latest_edit_stands_in_whatever_order_they_come(
    truth: Truth, intake: Intake, order: tuple[Turn, ...]
) -> None:
    await arrive(truth, intake, *order)
    assert held(truth) == (["杭州"], 0, "我住在杭州")


@pytest.mark.parametrize("order", list(itertools.permutations([ORIGINAL, EDIT, DELETION])), ids=lambda _order: "")
async def test_a_deletion_is_the_last_word_also_before_what_it_deletes(
    truth: Truth, intake: Intake, order: tuple[Turn, ...]
) -> None:
    await arrive(truth, intake, *order)
    assert held(truth) == ([], 0, "")


async def test_a_counted_deletion_that_is_faster_than_its_edit_is_no_dead_letter(truth: Truth, intake: Intake) -> None:
    await arrive(truth, intake, turn("", deleted=True, revision=1), turn("我住在上海", revision=1), ORIGINAL)
    assert held(truth) == ([], 0, "")


async def test_two_texts_that_nothing_orders_are_for_a_person_to_decide(truth: Truth, intake: Intake) -> None:
    await arrive(truth, intake, ORIGINAL, turn("我住在上海"))
    assert held(truth) == (["北京"], 1, "我住在北京")


@pytest.mark.parametrize(
    ("given", "revision"),
    [
        (ORIGINAL, 0),
        (EDIT, 40),
        (SECOND_EDIT, 91),
        (DELETION, LAST_REVISION),
        (turn("x", edited=0.001), 1),
        (turn("x", edited=0), 0),
        (turn("x", edited=-5), 0),
        (turn("x", edited=40, revision=3), 3),
        (turn("", deleted=True, revision=3), 3),
        (turn("", deleted=True, edited=40), LAST_REVISION),
        (turn("x", edited=200 * 365 * 86400), LAST_REVISION - 1),
    ],
)
def test_what_a_gateway_counts_is_kept_and_what_it_does_not_count_follows_from_the_turn(
    given: Turn, revision: int
) -> None:
    assert numbered(given).revision == revision
    assert numbered(numbered(given)) == numbered(given)
