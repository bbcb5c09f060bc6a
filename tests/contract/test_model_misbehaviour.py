"""A model that misbehaves, end to end: each way has one outcome, for the batch and for every turn in it (FIELD_REPORTS 1–10).

`test_model_channel.py` looks at the calls; this one at what is left in truth when all stages have come to rest.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select

from processors.extraction.schema import answer_schema
from sinks.truth import Truth, deadletters, memories, tables, turns
from streams import provider_errors
from streams.breaker import Breaker
from streams.model import ModelConfig, OpenAIChatModel
from tests.doubles.log import until
from tests.doubles.model_replies import Behaviour, Item
from tests.doubles.model_server import ModelServer
from tests.doubles.mortal import Process, World, to_quiet
from tests.doubles.story import broken, said

_LINE = re.compile(r"^\[(\d+)\] (.+?) \d{4}-\d{2}-\d{2} \S+ \d{2}:\d{2}: (.*)$", re.MULTILINE)
_DOG = re.compile(r"the dog is called (?P<name>[A-Z]\w+)")
TURNS = (
    said(1, "The renovation is finished at last and the dog is called Biscuit."),
    said(2, "Which of the two contracts has the shorter notice period?", conversation_end=True),
)
KNOWN = {"dog_name": "Biscuit"}

READ = [
    Behaviour.OK,
    Behaviour.FENCES,
    Behaviour.PROSE_AROUND,
    Behaviour.THINK,
    Behaviour.THINK_UNCLOSED,
    Behaviour.THINK_INSIDE,
    Behaviour.REASONING_ONLY,
    Behaviour.TWO_ANSWERS,
    Behaviour.BARE_LIST,
    Behaviour.TRAILING_COMMA,
    Behaviour.DUPLICATES,
    Behaviour.WRONG_TYPES,
    Behaviour.WRONG_LANGUAGE,
    Behaviour.ONE_BAD_ITEM,
    Behaviour.COPIED_EXAMPLE,
    Behaviour.HUGE,
    Behaviour.NO_RESPONSE_FORMAT,
    Behaviour.NO_JSON_SCHEMA,
    Behaviour.NO_MAX_TOKENS,
]
NOTHING = {Behaviour.EMPTY: "empty"}
GIVEN_UP = {
    Behaviour.PROSE: {"prose"},
    Behaviour.BLANK: {"empty_reply"},
    Behaviour.WRONG_ALIAS: {"no_such_turn"},
    Behaviour.ERROR_WITH_200: {"provider_error"},
    Behaviour.HTML_WITH_200: {"prose"},
    Behaviour.TRUNCATED: {"truncated"},
    Behaviour.NESTED: {"truncated"},
    Behaviour.REFUSAL: {"refused"},
    Behaviour.TOO_LONG: {"too_long"},
    Behaviour.CONTENT_POLICY: {"refused"},
    Behaviour.BAD_REQUEST: {"bad_request"},
}
AWAY = [
    Behaviour.RATE_LIMITED,
    Behaviour.RATE_LIMITED_SILENT,
    Behaviour.RATE_LIMIT_WITH_200,
    Behaviour.SERVER_ERROR,
    Behaviour.RESET,
    Behaviour.HANG,
    Behaviour.SLOW_DRIP,
    Behaviour.UNAUTHORIZED,
]


def dogs(user: str) -> list[Item]:
    """What a good model lists: something that no rule of the rule channel knows."""
    return [
        {
            "turn": int(line[1]),
            "speaker": line[2],
            "type": "semantic",
            "category": "fact",
            "attribute": "dog_name",
            "subject": "user",
            "value": match["name"],
            "text": match[0],
            "quote": match[0],
            "confidence": 0.9,
            "operation": "assert",
            "time": None,
        }
        for line in _LINE.finditer(user)
        for match in _DOG.finditer(line[3])
    ]


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left: the batch's status and attempts, each turn's outcome, values by attribute, dead letters' reasons."""

    batch: tuple[str, int]
    outcomes: list[tuple[str, str | None]]
    values: dict[str, str]
    letters: set[str]


def left(world: World) -> Left:
    """As truth has it."""
    with world.truth.reading() as connection:
        [batch] = connection.execute(select(tables.batches.c.status, tables.batches.c.attempts)).all()
        outcomes = [(row["outcome"], row["reason"]) for row in turns.outcomes(connection)]
        values = {item.attribute: item.value for item in memories.listing(connection)}
        letters = {row["reason"] for row in deadletters.listing(connection)}
    return Left((batch.status, batch.attempts), outcomes, values, letters)


async def _at_once(_seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(rule=dogs) as running:
        yield running


@pytest.fixture
async def world(sqlite_truth: Truth, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """With a real adapter before a server that does as it is told; nobody waits longer than a moment."""
    monkeypatch.setattr(provider_errors, "MISCONFIGURED_WAIT", 0.01)
    model = OpenAIChatModel(
        ModelConfig(base_url=server.base_url, model="double-1", timeout=0.5, attempts=2),
        json_schema=answer_schema(),
        breaker=Breaker(asyncio.get_running_loop().time, cooldown=0.01, max_cooldown=0.02),
        rng=random.Random(7),
        sleep=_at_once,
    )
    made = World(sqlite_truth, model=model)
    await made.say(*TURNS)
    yield made
    await model.aclose()


@pytest.mark.parametrize("behaviour", READ)
async def test_whatever_stands_around_it_what_the_model_found_is_remembered(
    world: World, server: ModelServer, behaviour: Behaviour
) -> None:
    server.default = behaviour
    await to_quiet(world)
    assert left(world) == Left(("extracted", 1), [("remembered", None), ("extracted", None)], KNOWN, set())
    assert broken(world) == []


@pytest.mark.parametrize("behaviour", NOTHING)
async def test_an_empty_list_is_an_answer_that_nothing_is_to_be_remembered(
    world: World, server: ModelServer, behaviour: Behaviour
) -> None:
    server.default = behaviour
    await to_quiet(world)
    assert left(world) == Left((NOTHING[behaviour], 1), [("extracted", None)] * 2, {}, set())
    assert len(server.calls) == 1


@pytest.mark.parametrize("behaviour", GIVEN_UP)
async def test_what_nobody_can_read_is_a_dead_letter_and_never_nothing_to_remember(
    world: World, server: ModelServer, behaviour: Behaviour
) -> None:
    server.default = behaviour
    await to_quiet(world)
    found = left(world)
    assert (found.batch, found.letters) == (("dead", 1), GIVEN_UP[behaviour])
    assert found.outcomes == [("dead_lettered", "unparsable")] * 2
    assert len(server.calls) <= 12, "a batch has a budget of calls"
    asked = len(server.calls)
    await to_quiet(world)
    assert len(server.calls) == asked, "and is not asked about for ever"


@pytest.mark.parametrize("behaviour", AWAY)
async def test_while_the_provider_is_away_the_batch_waits_and_then_goes_on(
    world: World, server: ModelServer, behaviour: Behaviour
) -> None:
    server.default = behaviour
    working = asyncio.create_task(to_quiet(world))
    await until(lambda: len(server.calls) >= 3 and left(world).batch == ("closed", 0))
    assert not working.done(), "it waits, whatever comes"
    waiting = left(world)
    assert (waiting.outcomes, waiting.values, waiting.letters) == ([("batched", None)] * 2, {}, set())
    server.default = Behaviour.OK
    await working
    assert left(world) == Left(("extracted", 1), [("remembered", None), ("extracted", None)], KNOWN, set())
    assert broken(world) == []


async def test_attempts_that_end_in_a_death_are_counted_and_the_last_one_is_a_dead_letter(world: World) -> None:
    """Scenario: a batch that kills every worker which asks about it. We expect five deaths, a letter, and peace."""
    for _death in range(5):
        process = Process(world)
        await process.live(("ingest",))
        world.truth.run(_begun)
    await to_quiet(world)
    found = left(world)
    assert (found.batch[0], found.letters) == ("dead", {"attempts"})
    assert found.outcomes == [("dead_lettered", "attempts")] * 2


def _begun(connection: Any) -> None:
    connection.execute(tables.batches.update().values(attempts=tables.batches.c.attempts + 1))


def test_every_behaviour_of_the_double_has_its_outcome_here() -> None:
    assert {*READ, *NOTHING, *GIVEN_UP, *AWAY} == set(Behaviour)
