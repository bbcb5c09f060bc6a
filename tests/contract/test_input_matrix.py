"""Input of every kind has one outcome: twice, out of order, late, replayed, unreadable, huge, from wrong clocks and zones.

One test is one line of the table in ARCHITECTURE. Messages of all topics are meant where a stage reads them.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from schemas import Command, CommandKind, Memory, Status
from sinks.truth import Truth, memories, outbox, tables, turns
from sinks.truth.outbox import Outgoing
from tests.doubles.mortal import NOW, Process, World, to_quiet
from tests.doubles.story import START, TURNS, UNREADABLE, broken, by_value, events, remains, said

READERS = {
    "turns": "ingest",
    "batches": "extract",
    "candidates": "resolve",
    "commands": "resolve",
    "feedback": "feedback",
    "deadletters": "bury",
}


@pytest.fixture
def world(sqlite_truth: Truth) -> World:
    """Empty."""
    return World(sqlite_truth)


async def heard(world: World, *payloads: bytes) -> None:
    """These turns, and all that follows."""
    await world.say(*payloads)
    await to_quiet(world)


def held(world: World, status: Status = Status.ACTIVE) -> dict[str, set[str]]:
    """Values by attribute."""
    found: dict[str, set[str]] = {}
    with world.truth.reading() as connection:
        for memory in memories.listing(connection, status=status):
            found.setdefault(memory.attribute, set()).add(memory.value)
    return found


def letters(world: World) -> list[tuple[str, str]]:
    """Stage and reason of every dead letter."""
    with world.truth.reading() as connection:
        query = select(tables.dead_letters.c.stage, tables.dead_letters.c.reason)
        return sorted((row.stage, row.reason) for row in connection.execute(query))


def outcomes(world: World) -> dict[str, tuple[str, str | None]]:
    """What became of each turn."""
    with world.truth.reading() as connection:
        return {row["turn_id"]: (row["outcome"], row["reason"]) for row in turns.outcomes(connection)}


def order(number: int, kind: CommandKind, memory: Memory, **fields: Any) -> bytes:
    """A command of ann's in minute `number`."""
    given: dict[str, Any] = {
        "command_id": f"order-{number}",
        "kind": kind,
        "tenant": memory.tenant,
        "owner": memory.owner,
        "issued_by": "user:ann",
        "issued_at": START + timedelta(minutes=number),
        "memory_id": memory.id,
    }
    return Command.model_validate(given | fields).to_bytes()


# twice, out of order, late, again from the start


async def test_every_message_of_every_topic_twice_changes_nothing(world: World) -> None:
    await heard(world, *TURNS)
    before, said_then = remains(world), events(world)
    for topic in READERS:
        await world.log.publish(list(world.log.of(topic)))
    await to_quiet(world)
    after = remains(world)
    # A copy of what nobody can read is a message of its own, at a place of its own.
    for name in set(before) - {"dead_letters", "dead_letter_log"}:
        assert after[name] == before[name], name
    assert events(world) == said_then
    assert broken(world) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_conversations_in_another_order_come_to_the_same(world: World, seed: int) -> None:
    """The fifth one takes back the second: they are the two of one conversation."""
    lines = [said(n, text, conversation_id=f"c{n % 3}") for n, text in enumerate(_WORDS, 1)]
    shuffled = list(lines)
    random.Random(seed).shuffle(shuffled)
    await heard(world, *shuffled)
    assert held(world) == _MEANING
    assert broken(world) == []


_WORDS = (
    "我住在北京",
    "我对花生过敏",
    "我喜欢爬山",
    "我搬到上海了",
    "刚才说错了当我没说",
    "我对芒果过敏",
    "我住在苏州",
)
_MEANING = {"residence": {"苏州"}, "allergy": {"芒果"}, "likes": {"爬山"}}


async def test_a_late_turn_becomes_history_where_something_newer_holds(world: World) -> None:
    await heard(world, said(50, "我住在上海"))
    await heard(world, said(10, "我住在北京", conversation_id="c2"))
    assert (held(world), held(world, Status.SUPERSEDED)) == ({"residence": {"上海"}}, {"residence": {"北京"}})
    assert by_value(world.truth)["北京"].valid_to == START + timedelta(minutes=50)
    assert broken(world) == []


async def test_the_whole_topic_from_offset_0_changes_nothing_weeks_later(world: World) -> None:
    await heard(world, *TURNS)
    before, said_then = remains(world), events(world)
    world.log.committed.clear()
    world.now += timedelta(days=21)
    await to_quiet(world)
    after = remains(world)
    for name in set(before) - {"session_summaries"}:
        assert after[name] == before[name], name
    assert events(world) == said_then


# what cannot be read


@pytest.mark.parametrize("topic", READERS)
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff\xfe\x00", "not_json"),
        (b"", "not_json"),
        (b'{"schema_version": 99}', "schema_version"),
        (b'{"schema_version": "one"}', "schema_version"),
        (b"[" * 100_000, "not_json"),
        (b'{"text": "' + b"a" * 10_000_000 + b'"}', "invalid_field"),
    ],
    ids=["bytes", "nothing", "a newer schema", "no version", "bottomless", "10 MB"],
)
async def test_what_cannot_be_read_is_one_dead_letter_and_the_next_message_is_done(
    world: World, topic: str, raw: bytes, reason: str
) -> None:
    good = said(1, "我对花生过敏")
    await world.say(("k", raw), topic=topic)
    await heard(world, good)
    await to_quiet(world)
    stage = READERS[topic]
    assert letters(world) == [(stage, reason)]
    assert held(world) == {"allergy": {"花生"}}
    with world.truth.reading() as connection:
        kept = connection.execute(select(tables.dead_letters.c.raw)).scalar_one()
    assert raw.startswith(bytes(kept))
    assert broken(world) == []


# clocks and zones


@pytest.mark.parametrize("hours", [-900, -1, 1, 900], ids=lambda hours: f"{hours:+d} h")
async def test_a_jump_of_the_workers_clock_between_two_turns_changes_no_memory(world: World, hours: int) -> None:
    await world.say(said(1, "我住在北京"), said(2, "我对花生过敏"))
    await Process(world).live(("ingest", "candidates"))
    world.now += timedelta(hours=hours)
    await heard(world, said(3, "我搬到上海了"))
    assert held(world) == {"residence": {"上海"}, "allergy": {"花生"}}
    assert {outcome for outcome, _reason in outcomes(world).values()} == {"remembered"}
    assert broken(world) == []


async def test_a_clock_that_is_set_back_holds_up_no_batch(world: World) -> None:
    """Scenario: a turn arrives while the clock is a month ahead; then the clock is put right. We expect it to be asked about."""
    await world.say(said(1, "The kitchen plans are ready at last"))
    world.now = NOW + timedelta(days=30)
    await Process(world).live(("ingest",))
    world.now = NOW
    await Process(world).live(("clock",))
    with world.truth.reading() as connection:
        assert connection.execute(select(tables.batches.c.closed_by)).scalars().all() == ["time"]


async def test_a_clock_that_is_set_back_leaves_no_row_of_a_dead_timer_behind(world: World) -> None:
    ahead = NOW + timedelta(days=30)
    world.truth.run(lambda connection: outbox.put(connection, "clock", [Outgoing("batches", "k", "k", b"{}")], ahead))
    await Process(world).live(())
    assert [row.payload for row in world.log.of("batches")] == [b"{}"]


async def test_what_people_say_is_ordered_by_their_clock_and_not_by_ours(world: World) -> None:
    """Scenario: a gateway's clock goes back an hour in a conversation. We expect the statement of the later time to hold."""
    await heard(world, said(90, "我住在上海"))
    await heard(world, said(30, "我住在北京"))
    assert held(world) == {"residence": {"上海"}}
    assert outcomes(world) == {"t90": ("remembered", None), "t30": ("remembered", None)}


async def test_a_turn_from_the_future_is_a_dead_letter_and_holds_against_nothing(world: World) -> None:
    """Scenario: a gateway that takes milliseconds for seconds. We expect its turn to wait for a person, the next to hold."""
    await heard(world, said(1, "我住在北京", sent_at=NOW + timedelta(days=900)), said(2, "我住在上海"))
    await heard(world, said(3, "我对花生过敏", sent_at=NOW + timedelta(hours=23)))
    assert held(world) == {"residence": {"上海"}, "allergy": {"花生"}}
    assert letters(world) == [("ingest", "future_sent_at")]
    assert broken(world) == []


async def test_a_change_of_zone_within_a_conversation_is_the_zone_of_the_turn(world: World) -> None:
    """Scenario: the same moment in Shanghai and in New York, and "this week" is over at another instant."""
    sunday = datetime(2026, 3, 1, 20, tzinfo=UTC)  # Monday 04:00 in Shanghai, Sunday 15:00 in New York
    await world.say(
        said(1, "这周不要提醒我开会", sent_at=sunday, timezone="Asia/Shanghai"),
        said(2, "这周不要推荐餐厅", sent_at=sunday + timedelta(minutes=1), timezone="America/New_York"),
    )
    world.now = sunday + timedelta(minutes=2)
    await Process(world).live(("ingest", "candidates", "commands"))
    ends = {value: memory.expires_at for value, memory in by_value(world.truth).items()}
    assert ends == {
        "这周不要提醒我开会": datetime(2026, 3, 8, 16, tzinfo=UTC),
        "这周不要推荐餐厅": datetime(2026, 3, 2, 5, tzinfo=UTC),
    }


# orders that come when what they mean is gone


@pytest.mark.parametrize("kind", [CommandKind.DELETE, CommandKind.FORGET, CommandKind.CONFIRM, CommandKind.DEMOTE])
async def test_an_order_about_a_deleted_memory_falls_upon_no_other(world: World, kind: CommandKind) -> None:
    """Scenario: two agents act on one memory of a single-valued slot. We expect the value that holds now to be left alone."""
    await heard(world, said(1, "我住在北京"))
    old = by_value(world.truth)["北京"]
    await world.say(order(2, CommandKind.DELETE, old), topic="commands")
    await heard(world, said(3, "我搬到上海了"))
    await world.say(order(4, kind, old), topic="commands")
    await to_quiet(world)
    assert held(world) == {"residence": {"上海"}}
    with world.truth.reading() as connection:
        gone = memories.get(connection, old.id)
    assert gone is not None
    assert (gone.status, gone.text, gone.value) == (Status.DELETED, "", "")
    assert letters(world) == []


async def test_a_second_deletion_also_ends_what_was_said_in_between_and_comes_late(world: World) -> None:
    await heard(world, said(1, "我对花生过敏"))
    nuts = by_value(world.truth)["花生"]
    await world.say(order(2, CommandKind.DELETE, nuts), order(9, CommandKind.DELETE, nuts), topic="commands")
    await to_quiet(world)
    await heard(world, said(5, "我对花生过敏", conversation_id="c2"))
    assert held(world) == {}
    assert broken(world) == []
    last = world.log.compacted("memory_updated")[nuts.id]
    assert last is None


def test_every_topic_that_a_stage_reads_has_its_unreadable_message() -> None:
    assert set(READERS) == {"turns", *UNREADABLE}


async def test_a_deleted_turn_that_its_gateway_restores_holds_again(world: World) -> None:
    """Scenario: deleted at revision 1, restored at revision 2, in either order. We expect what revision 2 says."""
    restored = [said(1, "", revision=1, deleted=True), said(1, "我住在上海", revision=2)]
    await heard(world, said(1, "我住在北京"), *restored)
    late = [said(2, "我对芒果过敏", revision=2), said(2, "", revision=1, deleted=True), said(2, "我对花生过敏")]
    await heard(world, *late)
    assert held(world) == {"residence": {"上海"}, "allergy": {"芒果"}}
    assert broken(world) == []
