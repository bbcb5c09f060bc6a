"""Tests, doubles: a story with everything in it that a stage can meet, and what must be the same however it was lived."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from schemas import Command, CommandKind, Feedback, MemoryUpdated, Turn
from sinks.sealing import open_frame, read_frame
from sinks.truth import Truth, memories, outbox, tables
from tests.doubles.mortal import PARTITIONS, World
from tests.doubles.sealing import sealer

START = datetime(2026, 3, 2, 1, tzinfo=UTC)
_MOMENTARY = {
    "batches": {"attempts"},
    "dead_letters": {"place"},
    "dead_letter_log": {"id"},
    "memory_versions": {"envelope"},
    "model_replies": {"id"},
    "subjects": {"key_id"},
    "data_keys": {"key_id", "wrapped"},
}
"""What may differ: attempts that a death cost; where a second copy stood; an event's number (`events`); keys drawn by lot."""


def said(number: int, text: str, **fields: Any) -> bytes:
    """One turn as a gateway would send it: ann's, in minute `number`."""
    given: dict[str, Any] = {
        "tenant": "acme",
        "conversation_id": "c1",
        "turn_id": f"t{number}",
        "user_id": "ann",
        "role": "user",
        "text": text,
        "sent_at": START + timedelta(minutes=number),
        "timezone": "Asia/Shanghai",
    }
    return Turn.model_validate(given | fields).to_bytes()


TURNS = (
    said(1, "我住在北京"),
    said(2, "我对花生过敏"),
    said(3, "I'm allergic to latex.", conversation_id="c2", user_id="bob"),
    b"\xff not a turn",
    said(4, "我在腾讯上班"),
    said(5, "刚才说错了当我没说"),
    said(6, "我上个月搬到上海了"),
    said(2, "我对花生过敏"),
    said(7, "我喜欢爬山"),
    said(7, "我喜欢游泳", revision=1),
    said(3, "", conversation_id="c2", user_id="bob", revision=1, deleted=True),
    said(9, "这周不要提醒我开会", conversation_id="c5", user_id="cat"),
    said(10, "下周之前不要给我推荐餐厅", conversation_id="c8", user_id="cat"),
    said(8, "我住在上海", conversation_id="c3", conversation_end=True),
    *(said(20 + n, f"第{n}个接口的报价还要再核对一遍", conversation_id="c4") for n in range(10)),
    said(30, "报价核对完了，我喜欢蓝色", conversation_id="c4"),
    said(40, "The notes of #model:prose were lost again today", conversation_id="c6", user_id="dan"),
    said(41, "The invoices of last month have to be checked by Friday", conversation_id="c7", user_id="eve"),
)
UNREADABLE = {
    "candidates": b"{}",
    "commands": b'"a command"',
    "batches": b"\x00",
    "feedback": b"[1]",
    "deadletters": b"no letter",
}


async def first_act(world: World) -> None:
    """Turns; and on every other topic something that nobody can read."""
    for topic, raw in UNREADABLE.items():
        await world.say(("unreadable", raw), topic=topic)
    await world.say(*TURNS)


async def second_act(world: World) -> None:
    """What agents and people say of what was remembered; a move; and orders, one of them from an old version."""
    held = by_value(world.truth)
    home, nuts, swim = held["上海"], held["花生"], held["游泳"]
    feedback: list[dict[str, Any]] = [
        {"kind": "used", "memory_ids": (home.id, nuts.id)},
        {"kind": "ignored", "memory_ids": (nuts.id,)},
        {"kind": "corrected", "memory_ids": (home.id,), "correction": "我住在杭州"},
        {"kind": "forgotten", "query": "我喜欢什么"},
        {"kind": "used", "memory_ids": ("no-such-memory",)},
    ]
    for number, item in enumerate(feedback):
        given = {"feedback_id": f"f{number}", "tenant": "acme", "owner": "ann", "agent_id": "crm"}
        heard = Feedback.model_validate({**given, **item, "given_at": world.now})
        await world.say(heard.to_bytes(), topic="feedback")
    orders: list[dict[str, Any]] = [
        {"kind": CommandKind.FORGET, "memory_id": swim.id},
        {"kind": CommandKind.DELETE, "memory_id": nuts.id},
        {"kind": CommandKind.EDIT, "memory_id": home.id, "expected_version": 77, "payload": {"value": "苏州"}},
    ]
    for number, item in enumerate(orders):
        given = {"command_id": f"order-{number}", "tenant": "acme", "owner": "ann", "issued_by": "user:ann"}
        order = Command.model_validate({**given, **item, "issued_at": world.now})
        await world.say(order.to_bytes(), topic="commands")
    await world.say(said(60, "我搬到苏州了", conversation_id="c9"))


ACTS: tuple[Callable[[World], Awaitable[None]], ...] = (first_act, second_act)


def by_value(truth: Truth) -> dict[str, Any]:
    """The newest memory with each value."""
    with truth.reading() as connection:
        return {item.value: item for item in memories.listing(connection)}


def remains(world: World) -> dict[str, Any]:
    """Everything that must not depend on what happened to processes."""
    found: dict[str, Any] = {}
    with world.truth.reading() as connection:
        assert outbox.size(connection) == 0, "what was committed has gone out"
        for table in tables.metadata.sorted_tables:
            hidden = _MOMENTARY.get(table.name, set())
            rows = connection.execute(select(*(column for column in table.c if column.name not in hidden)))
            # As sets: a question that had to be asked again has two equal answers.
            found[table.name] = sorted({repr(tuple(row)) for row in rows})
    found["vectors"] = dict(world.vectors.points)
    # As sets here too: a copy that had to go out again is the same turn.
    found["turns.sealed"] = sorted(set(sealed(world)))
    return found


def sealed(world: World) -> list[bytes]:
    """Every turn on the sealed log, opened, in the order of its partitions; what was destroyed is left out."""
    frames = [read_frame(item.payload or b"") for item in world.log.of("turns.sealed")]
    with world.truth.reading() as connection:
        keys = sealer().data_keys.fetch(connection, {frame.key_id for frame in frames})
    held = [(frame, keys[frame.key_id]) for frame in frames]
    return [open_frame(frame, key.cipher) for frame, key in held if key is not None]


def events(world: World) -> dict[str, list[str]]:
    """Every content that went out for each (memory, version). Its place among its owner's events is another matter:
    changes of one group that concern different memories may be numbered either way."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for event in _published(world):
        found[event.event_id].add(event.model_copy(update={"owner_seq": 0}).model_dump_json())
    return {key: sorted(contents) for key, contents in found.items()}


def _published(world: World) -> list[MemoryUpdated]:
    messages = world.log.of("memory_updated")
    return [MemoryUpdated.from_bytes(item.payload) for item in messages if item.payload is not None]


def broken(world: World) -> list[str]:
    """The invariants that do not hold, by name and place; empty when the river is at rest and everything is right."""
    wrong: list[str] = []
    with world.truth.reading() as connection:
        held = {item.id: item for item in memories.listing(connection)}
        rows = connection.execute(select(tables.memory_versions.c.memory_id, tables.memory_versions.c.version)).all()
        sequences = dict(connection.execute(select(tables.owners.c.owner_key, tables.owners.c.seq)).all())
    versions: defaultdict[str, list[int]] = defaultdict(list)
    for memory_id, version in rows:
        versions[memory_id].append(version)
    for memory_id, memory in held.items():
        if sorted(versions[memory_id]) != list(range(1, memory.version + 1)):
            wrong.append(f"version gap: {memory_id}")
    wrong += [f"vector at another version: {key}" for key, memory in held.items()
              if world.vectors.points.get(key, (0, ""))[0] != memory.version]  # fmt: skip
    wrong += [f"orphan point: {key}" for key in world.vectors.points.keys() - held.keys()]
    out = events(world)
    wrong += [f"two contents of one version: {key}" for key, contents in out.items() if len(contents) > 1]
    wrong += [f"version never published: {key}:{number}" for key, numbers in versions.items() for number in numbers
              if f"{key}:{number}" not in out]  # fmt: skip
    for key, payload in world.log.compacted("memory_updated").items():
        last = None if payload is None else MemoryUpdated.from_bytes(payload).memory.version
        if last != (None if held[key].status == "deleted" else held[key].version):
            wrong.append(f"compaction would keep version {last} of {key}, truth has {held[key].version}")
    return wrong + _out_of_order(world, sequences) + _unsealed(world)


def _unsealed(world: World) -> list[str]:
    """Stored turns without a copy: of every revision that is in truth, and as it is there, a replay must find one."""
    copies = set(sealed(world))
    with world.truth.reading() as connection:
        rows = connection.execute(select(tables.turns.c.turn_id, tables.turns.c.revision, tables.turns.c.body)).all()
    return [f"not on the sealed log: {row.turn_id}, revision {row.revision}" for row in rows
            if row.body.encode() not in copies]  # fmt: skip


def _out_of_order(world: World, sequences: Mapping[str, int]) -> list[str]:
    """What a reader of the topic would notice of owners' numbers: one that skips another, is another event's, or is missing.

    A repetition is none of these. Offsets count within a partition only, so an owner's events have to be in one.
    """
    wrong: list[str] = []
    last: defaultdict[str, int] = defaultdict(int)
    homes: defaultdict[str, set[int]] = defaultdict(set)
    numbered: dict[tuple[str, int], str] = {}
    for partition in range(PARTITIONS):
        for item in world.log.records["memory_updated", partition]:
            if item.payload is None:
                continue
            event = MemoryUpdated.from_bytes(item.payload)
            owner, number = event.memory.owner_key, event.owner_seq
            homes[owner].add(partition)
            if number > last[owner] + 1:
                wrong.append(f"owner_seq skips: {number} after {last[owner]} of {owner}")
            last[owner] = max(last[owner], number)
            first = numbered.setdefault((owner, number), event.event_id)
            if first != event.event_id:
                wrong.append(f"owner_seq of two events: {number} of {owner} is {first} and {event.event_id}")
    wrong += [f"events in {len(places)} partitions: {owner}" for owner, places in homes.items() if len(places) > 1]
    wrong += [f"owner_seq ends at {seen}: {owner} is at {sequences[owner]}" for owner, seen in last.items()
              if seen != sequences[owner]]  # fmt: skip
    return wrong
