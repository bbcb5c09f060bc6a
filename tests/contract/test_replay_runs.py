"""Replay, runs: the log into a schema beside, on SQLite and without a broker: batches, replies, moments, the erased."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from processors.extraction import prompts
from processors.extraction.prompts import PROMPTS, extract_v1_en, extract_v1_zh
from schemas import Role, Turn
from sinks.truth import Truth, batches, make_engine, memories, replays, suppression, tables
from sinks.truth.suppression import Subject
from streams.replay.comparing import compare
from streams.replay.door import returning
from streams.replay.judging import chosen
from streams.replay.log import LoggedTurn
from streams.sealing import make_identities
from streams.settings import Settings
from tests.doubles.model_replies import Item
from tests.doubles.model_server import ModelServer
from tests.doubles.rerun import NOW, START, ListLog, again, dump, replay


def said(number: int, text: str, user: str = "ann", **fields: Any) -> Turn:
    return Turn(
        tenant="acme",
        conversation_id=f"with-{user}",
        turn_id=f"{user}-{number}",
        user_id=user,
        role=Role.USER,
        text=text,
        sent_at=START + timedelta(seconds=number),
        **fields,
    )


TALK = [
    said(1, "I live in Berlin"),
    said(2, "The garden is finished and the dog is called Amber"),
    said(3, "Which contractor did we use for the roof?"),
    said(4, "I moved to Leeds"),
    said(5, "The kitchen is next and the cat is called Coal"),
    said(6, "The old fence is gone and the parrot is called Rio"),
    said(7, "I like peanut butter", "bob"),
    said(8, "The shed is new and the goat is called Ivy", "bob"),
]


def pets(user: str) -> list[Item]:
    """What the model finds: things that no rule knows."""
    found: list[Item] = []
    for line in user.splitlines():
        number, _, rest = line.removeprefix("[").partition("] ")
        speaker, _, words = rest.partition(" 2026-")
        _, _, text = words.partition(": ")
        for animal in ("dog", "cat", "parrot", "goat"):
            start = text.find(f"the {animal} is called")
            if start >= 0:
                found.append(
                    {
                        "turn": int(number),
                        "speaker": speaker,
                        "type": "semantic",
                        "category": "fact",
                        "attribute": f"{animal}_name",
                        "subject": "user",
                        "value": text[start:].split()[-1],
                        "text": text[start:],
                        "quote": text[start:],
                        "confidence": 0.9,
                        "operation": "assert",
                        "time": None,
                    }
                )
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(rule=pets) as double:
        yield double


@pytest.fixture
def fresh(sqlite_template: Path, tmp_path: Path) -> Iterator[Callable[[str], Truth]]:
    """Migrated and empty schemas, as many as a test names."""
    made: dict[str, Truth] = {}

    def make(name: str) -> Truth:
        if name not in made:
            shutil.copyfile(sqlite_template, tmp_path / f"{name}.db")
            made[name] = Truth(make_engine(f"sqlite:///{tmp_path / f'{name}.db'}"))
        return made[name]

    yield make
    for truth in made.values():
        truth.close()


def settings(server: ModelServer | None = None) -> Settings:
    address = server.base_url if server is not None else ""
    return Settings(
        _env_file=None, hash_key=SecretStr("a key for tests only"), model_base_url=address, model_name="double-1"
    )


def held(truth: Truth) -> set[tuple[str, str]]:
    with truth.reading() as connection:
        return {
            (memory.attribute, memory.value) for memory in memories.listing(connection) if memory.status == "active"
        }


def states(truth: Truth) -> dict[str, int]:
    with truth.reading() as connection:
        return batches.count_by_status(connection)


ALL = {
    ("residence", "Leeds"),
    ("dog_name", "Amber"),
    ("cat_name", "Coal"),
    ("parrot_name", "Rio"),
    ("goat_name", "Ivy"),
    ("likes", "peanut butter"),
}


def test_recorded_replies_are_used_and_the_model_is_not_asked_again(
    fresh: Callable[[str], Truth], server: ModelServer
) -> None:
    """Scenario: a replay asks the model; it becomes the live schema; another replay runs beside it."""
    log = ListLog(list(enumerate(TALK)))
    first = replay(settings(server), fresh("nothing"), fresh("live"), log)
    calls = len(server.calls)
    second = replay(settings(), fresh("live"), fresh("beside"), log)
    assert held(fresh("live")) == ALL
    assert first.batches == {"recorded": 0, "asked": 3}
    assert second.batches["recorded"] == 3
    assert len(server.calls) == calls
    found = compare(fresh("live"), fresh("beside"), NOW, limit=10)
    assert found.differences == []
    assert found.same == len(ALL) + 1
    third = replay(settings(server), fresh("live"), fresh("third"), log)
    assert third.batches["recorded"] == 3
    assert dump(fresh("third")) == dump(fresh("beside"))


def test_another_prompt_is_asked_and_without_a_model_its_batches_wait(
    fresh: Callable[[str], Truth], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario: the model answers one prompt; another version of it is replayed, first without a model and then with one."""
    other = {
        "zh": SimpleNamespace(**vars(extract_v1_zh) | {"VERSION": "extract_v2_zh"}),
        "en": SimpleNamespace(**vars(extract_v1_en) | {"VERSION": "extract_v2_en"}),
    }
    monkeypatch.setattr(prompts, "PROMPTS", {**PROMPTS, "extract_v2": other})
    log = ListLog(list(enumerate(TALK)))
    replay(settings(server), fresh("nothing"), fresh("live"), log)
    replay(settings(), fresh("live"), fresh("beside"), log, prompt="extract_v2")
    assert states(fresh("beside")) == {"waiting": 3}
    assert held(fresh("beside")) == {("residence", "Leeds"), ("likes", "peanut butter")}
    gone = compare(fresh("live"), fresh("beside"), NOW, limit=10)
    assert gone.total.current == {"added": 0, "gone": 4, "changed": 0}
    calls = len(server.calls)
    done = asyncio.run(again(settings(server), fresh("live"), fresh("beside"), log, chosen(None, "extract_v2")))
    assert done.batches["asked"] == len(server.calls) - calls == 3
    assert held(fresh("beside")) == ALL
    with fresh("beside").reading() as connection:
        versions = set(connection.execute(select(tables.model_replies.c.prompt_version)).scalars())
    assert versions == {"extract_v2_en"}


def test_batches_close_by_the_clock_of_the_log(fresh: Callable[[str], Truth]) -> None:
    """Scenario: two turns, 40 seconds of silence, two more. We expect what 30 seconds would have cut, at that moment."""
    seconds = [0, 10, 50, 55]
    replay(settings(), fresh("live"), fresh("beside"), ListLog([*zip(seconds, TALK[:4], strict=True)]))
    with fresh("beside").reading() as connection:
        rows = connection.execute(select(tables.batches).order_by(tables.batches.c.closed_at)).all()
    assert [(row.turn_count, row.closed_by) for row in rows] == [(2, "time"), (2, "time")]
    assert [row.closed_at - START for row in rows] == [timedelta(seconds=30), timedelta(seconds=80)]


def test_where_live_waited_longer_for_a_batch_the_replay_does_too(
    fresh: Callable[[str], Truth], server: ModelServer
) -> None:
    """Scenario: live came to the log late and saw all turns at once; the log has a minute between them.

    We expect the batches that live cut, for its replies belong to them.
    """
    replay(settings(server), fresh("nothing"), fresh("live"), ListLog([(0, turn) for turn in TALK]))
    slow = ListLog([(number * 60.0, turn) for number, turn in enumerate(TALK)])
    done = replay(settings(), fresh("live"), fresh("beside"), slow)
    assert done.batches["recorded"] == 3
    assert held(fresh("beside")) == ALL


def test_what_the_end_of_the_log_leaves_waiting_waits_since_it_came(
    fresh: Callable[[str], Truth], server: ModelServer
) -> None:
    """Scenario: live cut a batch of five; the log that is read has four of them as yet, minutes apart.

    We expect the same bytes whenever the replay is run (it looks at them again after twice the wait, by the wall clock),
    and live's batches once the log has the rest.
    """
    replay(settings(server), fresh("nothing"), fresh("live"), ListLog([(0, turn) for turn in TALK]))
    slow = [(number * 60.0, turn) for number, turn in enumerate(TALK)]
    replay(settings(), fresh("live"), fresh("beside"), ListLog(slow[:4]))
    with fresh("beside").reading() as connection:
        [row] = connection.execute(select(tables.conversations)).all()
    assert (row.pending_count, row.first_pending_at) == (4, START)
    done = asyncio.run(again(settings(), fresh("live"), fresh("beside"), ListLog(slow), chosen()))
    assert done.batches["recorded"] == 3
    assert held(fresh("beside")) == ALL


def test_since_a_moment_takes_over_what_came_before_and_judges_the_rest(
    fresh: Callable[[str], Truth], server: ModelServer
) -> None:
    log = ListLog([(number * 10.0, turn) for number, turn in enumerate(TALK)])
    replay(settings(server), fresh("nothing"), fresh("live"), log)
    for second in (15, 35, 65):
        since = START + timedelta(seconds=second)
        beside = fresh(f"since-{second}")
        done = replay(settings(), fresh("live"), beside, log, since=since)
        assert 0 < done.turns < len(TALK)
        found = compare(fresh("live"), beside, NOW, limit=10)
        assert found.differences == []
        assert found.same == len(ALL) + 1
        with fresh("live").reading() as here, beside.reading() as there:
            assert replays.missing_turns(here, there) == 0


def test_who_was_erased_does_not_come_back(fresh: Callable[[str], Truth]) -> None:
    """Scenario: bob is erased, by the list alone; once before a replay and once after it."""
    log = ListLog(list(enumerate(TALK)))
    of = make_identities(settings())
    replay(settings(), fresh("live"), fresh("before"), log)
    assert ("likes", "peanut butter") in held(fresh("before"))
    bob = of.owner(TALK[-1].owner_key)
    fresh("live").run(lambda c: suppression.add(c, [Subject(bob, "owner", suppressed=True, erasure_id="e")], NOW))
    with fresh("live").reading() as here, fresh("before").reading() as there:
        assert returning(here, there, of) == 1
    replay(settings(), fresh("live"), fresh("after"), log)
    assert held(fresh("after")) == {("residence", "Leeds")}
    with fresh("live").reading() as here, fresh("after").reading() as there:
        assert returning(here, there, of) == 0
        assert "bob" not in str(there.execute(select(tables.turns)).all())


def test_a_turn_that_is_no_turn_is_a_dead_letter_and_the_replay_goes_on(fresh: Callable[[str], Truth]) -> None:
    log = ListLog(list(enumerate(TALK[:4])))
    log.rows[1:1] = [LoggedTurn(b"{not json", log.rows[0].partition, 99, START)]
    log.rows = [LoggedTurn(row.payload, 0, number, row.published_at) for number, row in enumerate(log.rows)]
    log.ends = {0: 5, 1: 0}
    replay(settings(), fresh("live"), fresh("beside"), log)
    assert held(fresh("beside")) == {("residence", "Leeds")}
    with fresh("beside").reading() as connection:
        assert list(connection.execute(select(tables.dead_letters.c.reason)).scalars()) == ["not_json"]
