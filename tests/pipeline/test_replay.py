"""Replay, embedded: the demo log and a few people judged again, compared, switched to and back, beside a live schema."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from processors.exceptions import FatalError
from schemas import Command, CommandKind, Memory, Status
from sinks.truth import Truth, make_engine, memories
from sinks.truth.outbox import Outgoing
from streams.cli.embedded import Embedded
from streams.replay import run
from streams.replay.comparing import Comparison
from streams.replay.judging import chosen
from streams.replay.merging import Merged
from streams.replay.operating import Operator
from streams.replay.operating import Status as Standing
from streams.runtime import Runtime
from tests.doubles.rerun import Killed, MortalLog, dump, rules_with_otters
from tests.pipeline.conftest import DEMO
from tests.pipeline.river import STAGES, publish, said, settings, write_log

LINES = [
    said(1, "I live in Berlin"),
    said(2, "I chose the otter as my mascot"),
    said(3, "I'm allergic to peanuts"),
    said(4, "I'm allergic to shellfish"),
    said(1, "I live in Leeds", user_id="bob", conversation_id="c2"),
    said(2, "I chose the heron as my mascot", user_id="bob", conversation_id="c2"),
    said(3, "scratch that", user_id="bob", conversation_id="c2"),
]
LATER = [said(90, "I live in Leipzig"), said(91, "I chose the fox as my mascot")]


@dataclass
class Seen:
    """What the scenario came upon."""

    first: dict[str, Any] = field(default_factory=dict)
    again: dict[str, Any] = field(default_factory=dict)
    resumed: dict[str, Any] = field(default_factory=dict)
    sealed: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Standing] = field(default_factory=dict)
    diffs: dict[str, Comparison] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    untouched: dict[str, bool] = field(default_factory=dict)
    merged: dict[str, Merged] = field(default_factory=dict)
    held: dict[str, dict[str, Memory]] = field(default_factory=dict)
    points: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    history: list[tuple[int, str]] = field(default_factory=list)


class Stage:
    """An embedded river whose workers can be stopped and started while its broker lives."""

    def __init__(self, directory: Path) -> None:
        self.embedded = Embedded(settings(), directory / "data", STAGES)
        self.directory = directory
        self.stopped = False
        self.settings = self.embedded.settings
        self.operator = Operator(self.settings, now=lambda: datetime.now(UTC))
        self.packaged = chosen()
        self.otters = chosen(str(rules_with_otters(directory / "rules")))

    async def work(self, *logs: Sequence[dict[str, Any]], commands: Sequence[Command] = ()) -> None:
        """The workers take these in and rest."""
        for number, lines in enumerate(logs):
            await publish(self.embedded, write_log(self.directory / f"{number}.jsonl", lines))
        sent = [Outgoing("commands", item.owner_key, item.owner_key, item.to_bytes()) for item in commands]
        await self.embedded.runtime.producer.publish(sent)
        await self.embedded.drained()

    async def restart(self) -> None:
        """New workers; what the outbox holds goes out."""
        self.embedded.runtime = Runtime(self.settings, STAGES, on_fatal=self.embedded._failed)
        self.stopped = False
        await self.embedded.runtime.start()
        await self.embedded.drained()
        await self.heard()

    async def heard(self) -> None:
        """Agents have the newest version of every memory."""
        async with asyncio.timeout(60):
            while True:
                latest = {event.event_id for event in self.embedded.events}
                if all(f"{memory.id}:{memory.version}" in latest for memory in self.held().values()):
                    return
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """The workers; the broker lives on."""
        if not self.stopped:
            self.stopped = True
            await self.embedded.runtime.stop()

    async def close(self) -> None:
        """All of it."""
        await self.stop()
        if self.embedded._listener is not None:
            self.embedded._listener.cancel()
        await self.embedded._events.stop()
        self.embedded._broker.close()

    def live(self) -> Truth:
        return Truth(make_engine(self.settings.database_url.get_secret_value()))

    def held(self) -> dict[str, Memory]:
        """Everybody's memories, by owner, attribute and value."""
        truth = self.live()
        try:
            with truth.reading() as connection:
                return {f"{m.owner} {m.attribute} {m.value}": m for m in memories.listing(connection)}
        finally:
            truth.close()

    def points(self) -> dict[str, tuple[int, str]]:
        with self.embedded.runtime.collections.live() as collection:
            return {point.id: (point.version, point.status) for point in collection.store.scroll()}

    def bytes_live(self) -> dict[str, Any]:
        truth = self.live()
        try:
            return dump(truth)
        finally:
            truth.close()

    def bytes_beside(self) -> dict[str, Any]:
        truth = self.operator.beside.open()
        try:
            return dump(truth)
        finally:
            truth.close()

    async def refusal(self, seen: Seen, name: str, work: Callable[[], Any]) -> None:
        """The words with which it is refused; nothing may have changed."""
        before = self.bytes_live()
        try:
            done = work()
            if asyncio.iscoroutine(done):
                await done
            seen.refused[name] = "it was done"
        except FatalError as error:
            seen.refused[name] = str(error)
        seen.untouched[name] = self.bytes_live() == before


def ordered(memory: Memory, kind: CommandKind, **fields: Any) -> Command:
    """An order of a person about a memory."""
    return Command(
        command_id=f"order-{kind}",
        kind=kind,
        tenant=memory.tenant,
        owner=memory.owner,
        issued_by="user:ann",
        issued_at=datetime(2026, 3, 2, 2, tzinfo=UTC),
        memory_id=memory.id,
        **fields,
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """One river for all of it: starting one takes seconds."""
    return asyncio.run(_scenario(tmp_path_factory.mktemp("replay")))


async def _scenario(directory: Path) -> Seen:
    seen, stage = Seen(), Stage(directory)
    start = stage.operator.start
    await stage.embedded.start()
    try:
        await publish(stage.embedded, DEMO / "gateway.jsonl", tenant="demo")
        await stage.work(LINES)
        held = stage.held()
        edit = ordered(
            held["ann residence Berlin"], CommandKind.EDIT, payload={"text": "lives in Potsdam", "value": "Potsdam"}
        )
        await stage.work(commands=[edit, ordered(held["ann allergy shellfish"], CommandKind.DELETE)])
        await stage.stop()
        await stage.refusal(seen, "diff of nothing", lambda: stage.operator.diff(limit=5))
        await stage.refusal(seen, "switch to nothing", stage.operator.switch)
        await stage.refusal(seen, "drop of nothing", stage.operator.drop)
        await stage.refusal(seen, "unknown rules", lambda: chosen("rules-7"))
        await stage.refusal(seen, "unknown prompt", lambda: chosen(None, "extract_v99"))

        seen.status["first"] = await start(stage.packaged, stage.packaged, topic="turns")
        seen.first = stage.bytes_beside()
        seen.diffs["same rules"] = stage.operator.diff(limit=50)
        stage.operator.drop()
        await start(stage.packaged, stage.packaged, topic="turns")
        seen.again = stage.bytes_beside()
        stage.operator.drop()
        await _killed_and_resumed(stage, seen)
        stage.operator.drop()

        await start(stage.otters, stage.packaged, topic="turns.sealed")
        seen.diffs["new rule"] = stage.operator.diff(limit=50)
        await stage.refusal(seen, "another replay", lambda: start(stage.packaged, stage.packaged, topic="turns"))
        with stage.operator.beside.alone():
            await stage.refusal(seen, "two at once", lambda: start(stage.otters, stage.packaged, topic="turns.sealed"))
        await stage.refusal(seen, "rollback of nothing", stage.operator.rollback)
        await _there_and_back(stage, seen)
        seen.events = list(stage.embedded.events)
    finally:
        await stage.close()
    return seen


async def _killed_and_resumed(stage: Stage, seen: Seen) -> None:
    """Scenario: the process is killed in the middle of the log, and the same command is given again."""
    mortal = Operator(
        stage.settings,
        now=lambda: datetime.now(UTC),
        open_log=lambda topic, live: MortalLog(stage.operator._builder.log(topic, live), 60),
    )
    try:
        await mortal.start(stage.packaged, stage.packaged, topic="turns")
    except Killed:
        seen.status["killed"] = await stage.operator.status()
    await stage.refusal(seen, "switch before the end", stage.operator.switch)
    await stage.refusal(seen, "diff before the end", lambda: stage.operator.diff(limit=5))
    seen.status["resumed"] = await stage.operator.start(stage.packaged, stage.packaged, topic="turns")
    seen.resumed = stage.bytes_beside()


async def _there_and_back(stage: Stage, seen: Seen) -> None:
    """Scenario: switch to the new rule, say something, roll back, switch again. We expect every version to grow."""
    for name, turn in (
        ("switch", stage.operator.switch),
        ("rollback", stage.operator.rollback),
        ("again", stage.operator.switch),
    ):
        seen.merged[name] = await turn()
        await stage.refusal(seen, f"{name} twice", turn)
        await stage.restart()
        if name == "switch":
            await stage.work(LATER)
        seen.held[name] = stage.held()
        seen.points[name] = stage.points()
        await stage.stop()
    stage.operator.drop()
    seen.held["dropped"] = stage.held()


@pytest.fixture(autouse=True, scope="module")
def small_groups() -> Any:
    """Several transactions for a small log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "GROUP", 25)
        yield


def test_two_replays_of_one_log_agree_in_every_byte(seen: Seen) -> None:
    assert len(seen.first["turns"]) > 100
    assert seen.again == seen.first


def test_a_replay_that_was_killed_goes_on_where_its_last_transaction_ended(seen: Seen) -> None:
    assert seen.status["killed"].left
    assert seen.status["killed"].progress.turns == 50
    assert seen.status["resumed"].left == 0
    assert seen.resumed == seen.first


def test_under_the_same_rules_nothing_differs_orders_of_people_included(seen: Seen) -> None:
    report = seen.diffs["same rules"]
    assert report.differences == []
    assert report.same == len(seen.first["memories"])
    assert seen.status["first"].progress.commands == 2


def test_a_new_rule_shows_exactly_its_own_differences(seen: Seen) -> None:
    found = seen.diffs["new rule"]
    assert [(item.owner, item.attribute, item.value, item.kind) for item in found.differences if item.current] == [
        ("ann", "mascot", "otter", "added")
    ]
    # What was taken back is no memory, but the replay knows that it was said.
    assert {item.value for item in found.differences} == {"otter", "heron"}
    assert found.total.current == {"added": 1, "gone": 0, "changed": 0}
    assert found.same == len(seen.first["memories"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("diff of nothing", "there is no replay"),
        ("switch to nothing", "there is no replay"),
        ("drop of nothing", "there is no replay"),
        ("unknown rules", "there are no rules rules-7"),
        ("unknown prompt", "there is no prompt extract_v99"),
        ("switch before the end", "has not come to the end"),
        ("diff before the end", "has not come to the end"),
        ("another replay", "drop"),
        ("two at once", "another `memriver replay` is at work"),
        ("rollback of nothing", "nothing to roll back"),
        ("switch twice", "switched already"),
        ("rollback twice", "nothing to roll back"),
    ],
)
def test_wrong_use_is_refused_and_changes_nothing(seen: Seen, name: str, words: str) -> None:
    assert words in seen.refused[name]
    assert seen.untouched[name]


def test_a_switch_brings_the_difference_to_agents_and_vectors(seen: Seen) -> None:
    assert seen.merged["switch"].events == {"created": 2}
    held = seen.held["switch"]
    otter = held["ann mascot otter"]
    assert otter.status is Status.ACTIVE
    assert held["ann residence Leipzig"].status is Status.ACTIVE
    assert held["ann residence Potsdam"].status is Status.SUPERSEDED
    assert "ann mascot fox" not in held, "the workers have the packaged rules still"
    assert seen.points["switch"][otter.id] == (otter.version, "active")


def test_a_rollback_takes_it_back_and_keeps_what_was_said_since(seen: Seen) -> None:
    held = seen.held["rollback"]
    assert held["ann mascot otter"].status is Status.RETRACTED
    assert held["ann residence Leipzig"].status is Status.ACTIVE
    assert seen.points["rollback"][held["ann mascot otter"].id][1] == "retracted"


def test_after_another_switch_and_a_drop_the_replay_is_live_for_good(seen: Seen) -> None:
    assert seen.held["dropped"] == seen.held["again"]
    assert {value for key in seen.held["dropped"] if (value := key.split()[-1]) in ("otter", "heron", "fox")} >= {
        "otter"
    }
    assert seen.held["again"]["ann mascot otter"].status is Status.ACTIVE


def test_versions_only_grow_and_no_event_has_two_contents(seen: Seen) -> None:
    contents: dict[str, bytes] = {}
    latest: dict[str, int] = {}
    for event in seen.events:
        body = event.memory.to_bytes()
        assert contents.setdefault(event.event_id, body) == body
        assert event.memory.version >= latest.get(event.memory.id, 0)
        latest[event.memory.id] = event.memory.version
    held = {memory.id: memory for memory in seen.held["dropped"].values()}
    assert latest == {key: memory.version for key, memory in held.items()}
    assert all(contents[f"{memory.id}:{memory.version}"] == memory.to_bytes() for memory in held.values())


def test_an_owners_events_are_counted_without_a_gap_through_every_switch(seen: Seen) -> None:
    numbers: dict[str, list[int]] = {}
    for event in seen.events:
        found = numbers.setdefault(event.memory.owner_key, [])
        if event.owner_seq not in found:
            found.append(event.owner_seq)
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


@pytest.mark.parametrize("name", ["switch", "rollback", "again"])
def test_vectors_are_at_the_version_and_status_of_truth_after(seen: Seen, name: str) -> None:
    kept = {m.id: (m.version, m.status.value) for m in seen.held[name].values() if m.status is not Status.DELETED}
    assert {key: point for key, point in seen.points[name].items() if key in kept} == kept
