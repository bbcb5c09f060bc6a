"""The judge of the crash matrix (`tests.doubles.story.broken`): each kind of damage to what left is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from schemas import MemoryUpdated
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from tests.doubles.mortal import PARTITIONS, World, to_quiet
from tests.doubles.story import broken, remains, said

EVENTS = "memory_updated"


def event(row: Outgoing) -> MemoryUpdated:
    assert row.payload is not None
    return MemoryUpdated.from_bytes(row.payload)


def place(world: World) -> list[Outgoing]:
    """The rows of the partition that ann's events are in; a list to change."""
    [(_topic, partition)] = [key for key, rows in world.log.records.items() if key[0] == EVENTS and rows]
    return world.log.records[EVENTS, partition]


def let_one_overtake(world: World) -> None:
    rows = place(world)
    rows[0], rows[1] = rows[1], rows[0]


def number_two_alike(world: World) -> None:
    """The set of numbers is whole, and none is skipped."""
    rows = place(world)
    alike = event(rows[1]).model_copy(update={"owner_seq": event(rows[0]).owner_seq})
    rows.insert(1, replace(rows[1], payload=alike.to_bytes()))


def split_the_owner(world: World) -> None:
    rows = place(world)
    other = next(n for n in range(PARTITIONS) if world.log.records[EVENTS, n] is not rows)
    world.log.records[EVENTS, other].append(rows[0])


def leave_the_last_out(world: World) -> None:
    rows = place(world)
    last = max(event(row).owner_seq for row in rows)
    rows[:] = [row for row in rows if event(row).owner_seq != last]


def lose_a_copy(world: World) -> None:
    for partition in range(PARTITIONS):
        del world.log.records["turns.sealed", partition][-1:]


DAMAGE: list[tuple[Callable[[World], None], str]] = [
    (let_one_overtake, "owner_seq skips"),
    (number_two_alike, "owner_seq of two events"),
    (split_the_owner, "events in 2 partitions"),
    (leave_the_last_out, "owner_seq ends at"),
    (lose_a_copy, "not on the sealed log: t2, revision 1"),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGE, ids=[damage.__name__ for damage, _named in DAMAGE])
async def test_damage_is_named(sqlite_truth: Truth, damage: Callable[[World], None], named: str) -> None:
    world = await lived(sqlite_truth)
    assert broken(world) == []
    damage(world)
    assert any(line.startswith(named) for line in broken(world)), broken(world)


async def test_an_earlier_revision_without_a_copy_is_not_what_a_clean_run_leaves(sqlite_truth: Truth) -> None:
    """Truth holds a turn's last revision only, so the comparison with a clean run has to tell."""
    world = await lived(sqlite_truth)
    before = remains(world)["turns.sealed"]
    assert len(before) == 3
    for partition in range(PARTITIONS):
        del world.log.records["turns.sealed", partition][1:2]
    assert broken(world) == []
    assert remains(world)["turns.sealed"] == [before[0], before[2]]


async def test_a_repetition_is_no_damage(sqlite_truth: Truth) -> None:
    world = await lived(sqlite_truth)
    for (_topic, _partition), rows in world.log.records.items():
        rows += rows[-2:]
    assert broken(world) == []


async def lived(truth: Truth) -> World:
    """Two turns, and an edit of the second; one conversation and one person."""
    world = World(truth)
    await world.say(said(1, "我住在北京"), said(2, "我喜欢爬山"), said(2, "我喜欢游泳", revision=1))
    await to_quiet(world)
    return world
