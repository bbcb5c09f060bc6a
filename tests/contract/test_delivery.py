"""Delivery, the promise of W12: a death at any arrow of the commit order, in any stage, leaves what a clean run leaves."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from sinks.truth import Truth, make_engine, tables
from tests.doubles.mortal import MODEL_STEPS, STEPS, Died, Fate, Process, World, model_reply, to_quiet
from tests.doubles.story import ACTS, broken, events, remains, said

NOTHING_TO_PUBLISH = "committed, nothing to publish"
_STREAM = tuple(step for step in STEPS if step != NOTHING_TO_PUBLISH)
_TIMER = ("in the transaction", *STEPS[3:7], STEPS[-1])
ARROWS: dict[str, tuple[str, ...]] = {
    "ingest": _STREAM,
    "extract": (*MODEL_STEPS, *_STREAM[1:]),
    # The resolver's two topics.
    "candidates": _STREAM,
    "commands": _STREAM,
    "feedback": _STREAM,
    "bury": (*_STREAM[:-1], NOTHING_TO_PUBLISH, _STREAM[-1]),
    # Timers read no log and acknowledge nothing; the last one has nothing to send either.
    "clock": _TIMER,
    "expiry": _TIMER,
    "summaries": ("in the transaction", STEPS[-1]),
}
"""By stage, after what its process may be gone: every arrow between two steps of the commit order."""
_NO_SLEEP = ("in the transaction", "half acknowledged", "acknowledged, position not committed")
"""No zombies here: a database rolls back who is silent in a transaction, a broker takes no position from who was expelled."""
DEATHS = [(stage, step) for stage, steps in ARROWS.items() for step in steps]
SLEEPS = [(stage, step) for stage, step in DEATHS if step not in _NO_SLEEP]


@dataclass(slots=True)
class Clean:
    """What an undisturbed run left on a backend, and how often each stage came to each step."""

    left: dict[str, Any] = field(default_factory=dict)
    events: dict[str, list[str]] = field(default_factory=dict)
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)

    def fate(self, stage: str, step: str, *, sleeps: bool = False) -> Fate:
        """One that strikes in the middle of the stage's work."""
        return Fate(stage, step, nth=(self.reached[stage, step] + 1) // 2, sleeps=sleeps)

    def equals(self, world: World) -> None:
        """Asserts that this world is at rest, right, and the same."""
        assert broken(world) == []
        found = remains(world)
        for name, rows in self.left.items():
            assert found[name] == rows, name
        assert events(world) == self.events, "each (memory, version) at least once, and never with another content"


@pytest.fixture(scope="module")
def clean_runs() -> dict[str, Clean]:
    """By backend."""
    return {}


@pytest.fixture(scope="module")
def kept_truth(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truth]:
    """One engine for the whole matrix: what it has compiled it need not compile again."""
    path = tmp_path_factory.mktemp("matrix") / "truth.db"
    shutil.copyfile(sqlite_template, path)
    store = Truth(make_engine(f"sqlite:///{path}"))
    yield store
    store.close()


@pytest.fixture
def emptied(kept_truth: Truth) -> Truth:
    """An empty truth on SQLite."""
    _empty(kept_truth)
    return kept_truth


def _empty(truth: Truth) -> None:
    with truth.engine.begin() as connection:
        for table in tables.metadata.sorted_tables:
            connection.execute(table.delete())


async def clean_run(truth: Truth, clean_runs: dict[str, Clean]) -> Clean:
    """Made once; the database is empty again."""
    backend = truth.engine.dialect.name
    if backend not in clean_runs:
        watching = Fate()
        world = await told(truth, watching)
        assert broken(world) == []
        clean_runs[backend] = Clean(remains(world), events(world), Counter(watching.steps))
        _empty(truth)
    return clean_runs[backend]


async def told(truth: Truth, fate: Fate) -> World:
    """The story, act by act, with one process whose fate this is."""
    world = World(truth)
    for act in ACTS:
        await act(world)
        await to_quiet(world, None if fate.struck else fate)
    return world


@pytest.mark.parametrize(("stage", "step"), DEATHS)
async def test_a_death_at_any_arrow_of_any_stage_leaves_what_a_clean_run_leaves(
    emptied: Truth, clean_runs: dict[str, Clean], stage: str, step: str
) -> None:
    clean = await clean_run(emptied, clean_runs)
    fate = clean.fate(stage, step)
    world = await told(emptied, fate)
    assert fate.struck
    clean.equals(world)


@pytest.mark.parametrize("stage", ARROWS)
async def test_one_death_after_the_other_at_every_arrow_of_a_stage_leaves_the_same_on_every_backend(
    truth: Truth, clean_runs: dict[str, Clean], stage: str
) -> None:
    """Scenario: each successor gets one step further than the one before it. We expect the last one to be done."""
    clean = await clean_run(truth, clean_runs)
    world, fates = World(truth), [Fate(stage, step) for step in ARROWS[stage]]
    for act in ACTS:
        await act(world)
        for fate in [fate for fate in fates if not fate.struck]:
            try:
                await Process(world, fate).live()
            except Died:
                continue
            break
        await to_quiet(world)
    assert all(fate.struck for fate in fates)
    clean.equals(world)


def test_no_arrow_of_the_commit_order_is_left_out() -> None:
    assert {step for steps in ARROWS.values() for step in steps} == {*STEPS, *MODEL_STEPS}


async def test_a_replay_of_every_topic_changes_nothing(truth: Truth, clean_runs: dict[str, Clean]) -> None:
    clean = await clean_run(truth, clean_runs)
    world = await told(truth, Fate())
    world.log.committed.clear()
    await to_quiet(world)
    clean.equals(world)


async def test_the_story_leads_to_what_its_words_mean(truth: Truth) -> None:
    """Or the tests above would compare one nothing with another."""
    world = await told(truth, Fate())
    with world.truth.reading() as connection:
        rows = connection.execute(select(tables.memories.c.value, tables.memories.c.status)).all()
        found: dict[str, str] = {value: status for value, status in rows if value}
        letters = set(connection.execute(select(tables.dead_letters.c.stage)).scalars())
        summaries = connection.execute(select(tables.session_summaries.c.conversation_id)).scalars().all()
    wanted = {
        "北京": "superseded",
        "上海": "superseded",
        "苏州": "active",
        "腾讯": "retracted",
        "爬山": "retracted",
        "游泳": "superseded",
        "latex": "retracted",
        "蓝色": "active",
        "这周不要提醒我开会": "expired",
    }
    assert {value: found.get(value) for value in wanted} == wanted
    assert "花生" not in found, "deleted by order"
    assert letters == {"bury", "extract", "feedback", "ingest", "resolve"}
    assert summaries == ["c4"]


@pytest.mark.parametrize(("stage", "step"), SLEEPS)
async def test_a_process_that_wakes_up_when_another_has_taken_over_changes_nothing(
    emptied: Truth, clean_runs: dict[str, Clean], stage: str, step: str
) -> None:
    """Scenario: stopped for longer than the session time-out. We expect neither lost, doubled nor resurrected memories."""
    clean = await clean_run(emptied, clean_runs)
    fate = clean.fate(stage, step, sleeps=True)
    world = await told(emptied, fate)
    assert fate.struck
    clean.equals(world)


@pytest.mark.parametrize("step", MODEL_STEPS)
async def test_of_two_processes_that_asked_about_one_batch_the_first_answer_counts(emptied: Truth, step: str) -> None:
    """Scenario: a model says another thing each time. We expect one status, one set of candidates, and no dead letter."""
    world, asked = World(emptied), 0

    def moody(user: str) -> str:
        nonlocal asked
        asked += 1
        return model_reply(user) if asked == 1 else "Nothing that anybody could read."

    world.reply = moody
    await world.say(said(1, "The kitchen plans are ready at last and I live in Leeds", conversation_end=True))
    fate = Fate("extract", step, sleeps=True)
    await to_quiet(world, fate)
    assert fate.struck
    assert asked >= 2
    with world.truth.reading() as connection:
        status = connection.execute(select(tables.batches.c.status)).scalars().all()
        letters = connection.execute(select(tables.dead_letters.c.reason)).scalars().all()
        replies = connection.execute(select(tables.model_replies.c.batch_id)).scalars().all()
        outcome = connection.execute(select(tables.turns.c.outcome)).scalars().all()
    first = (["extracted"], [], 1, ["remembered"])
    late = (["dead"], ["prose"], 3, ["remembered"])
    # Asleep before it asked, the sleeper is the second to answer; asleep with the answer in its hands, it comes too late.
    assert (status, letters, len(replies), outcome) == (first if step == MODEL_STEPS[0] else late)
