"""Erasure beside a re-embedding: one of two people goes while turns come and a collection is built; then all is replayed.

MEMRIVER_ERASURE_MEMORIES says how many memories each of the two has.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer

from schemas import Memory
from sinks.truth import erasure, memories
from sinks.truth.collections import CollectionRow, Source, State, Task
from sinks.truth.erasure import Scope
from sinks.truth.scanning import Entry
from sinks.vectors.collection import Collection
from streams.cli.embedded import Embedded
from streams.connection import client_options
from streams.erasing.composing import verify
from streams.erasing.opening import Wish
from streams.projection import Cut, project
from streams.reindex import build
from streams.reindex.orders import Orders
from streams.replay.comparing import Comparison
from streams.replay.judging import chosen
from streams.replay.operating import Operator
from streams.runtime import wall_clock
from streams.settings import StageName
from tests.pipeline.erasing import bytes_of, finished, opening
from tests.pipeline.river import process, publish, said, write_log

MEMORIES = int(os.environ.get("MEMRIVER_ERASURE_MEMORIES", "100"))
SECONDS = 60 + MEMORIES
"""How long anything may take before it counts as stuck."""
STAGES: tuple[StageName, ...] = ("ingest", "extract", "resolve", "feedback", "erasure", "bury", "reindex")
ANN, BOB = "zz-ann-zz", "bob-stays"
TRACES = (b"zz-ann-zz", b"annweed")
"""Her id, which her conversations and namespaces contain too, and a word in each of her sentences."""
OLD, NEW = "memories_hashing-1_384", "memories_hashing-1_768"


def word(number: int) -> str:
    """A value of its own for each number, in letters."""
    return "".join(chr(97 + int(digit)) for digit in f"{number:05d}")


def told(user: str, number: int) -> dict[str, Any]:
    """One allergy, since a person may have many."""
    weed = "annweed" if user == ANN else "bobnut"
    text = f"I'm allergic to {weed}{word(number)}."
    chat = f"{user}-chat-{number // 50}"
    return said(number, text, turn_id=f"{user}-{number}", user_id=user, conversation_id=chat)


def both(numbers: range) -> list[dict[str, Any]]:
    """The two in turns."""
    return [told(user, number) for number in numbers for user in (ANN, BOB)]


def held(embedded: Embedded, owner: str) -> dict[str, Memory]:
    """Somebody's memories, by id."""
    with embedded.runtime.truth.reading() as connection:
        return {memory.id: memory for memory in memories.listing(connection, owner=owner)}


class Gate:
    """Lets the first page of a build pass, and holds all others, read from truth as they are, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: list[Counter[str]] = []
        self._open = threading.Event()
        self._lock = threading.Lock()
        # Eight pages, of which four are on their way at a time.
        monkeypatch.setattr(build, "PAGE", max(1, MEMORIES // 4))
        monkeypatch.setattr(build, "project", self._project)

    def _project(self, collection: Collection, entries: list[Entry], cut: Cut) -> None:
        with self._lock:
            first = not self.pages
            self.pages.append(Counter(entry.namespace.split("/")[1] for entry in entries))
        if not first:
            assert self._open.wait(SECONDS)
        project(collection, entries, cut)

    def open(self) -> None:
        """Whatever waits goes on, with what it read before."""
        self._open.set()


async def messages(embedded: Embedded, name: str) -> list[tuple[bytes, bytes | None]]:
    """(key, value) of all that can be read from a topic, in order."""
    found: list[tuple[bytes, bytes | None]] = []
    consumer = AIOKafkaConsumer(
        embedded.settings.topic(name), **client_options(embedded.settings), auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        ends = await consumer.end_offsets(sorted(consumer.assignment()))
        await consumer.seek_to_beginning()
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found += [(record.key or b"", record.value) for record in records]
    finally:
        await consumer.stop()
    return found


@dataclass
class Seen:
    """What the drill came upon."""

    before: dict[str, Memory] = field(default_factory=dict)
    after: dict[str, Memory] = field(default_factory=dict)
    more: int = 0
    building: CollectionRow | None = None
    receipt: dict[str, Any] = field(default_factory=dict)
    verified: CollectionRow | None = None
    points: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    replayed: Comparison | None = None
    again: dict[str, Any] = field(default_factory=dict)
    sealed: bytes = b""
    last_words: dict[bytes, bytes | None] = field(default_factory=dict)


async def drill(embedded: Embedded, gate: Gate, directory: Path, seen: Seen) -> None:
    truth, orders = embedded.runtime.truth, Orders(embedded.settings, embedded.runtime.truth, wall_clock)
    halt, sent = asyncio.Event(), MEMORIES

    async def keep_talking() -> None:
        nonlocal sent
        while not halt.is_set():
            await publish(embedded, write_log(directory / "more.jsonl", both(range(sent, sent + 2))))
            sent += 2
            await asyncio.sleep(0.2)

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not await asyncio.to_thread(condition):
                assert embedded.failure is None, embedded.failure
                await asyncio.sleep(0.05)

    def steps() -> set[str]:
        with truth.reading() as connection:
            item = erasure.get(connection, asked.erasure_id)
        assert item is not None
        return set(item.steps)

    seen.before = held(embedded, BOB)
    assert len(seen.before) == len(held(embedded, ANN)) == MEMORIES
    await asyncio.to_thread(orders.start, "hashing:768", Source.TRUTH, None)
    await until(lambda: len(gate.pages) >= 1 + build.IN_FLIGHT - 1)
    talking = asyncio.create_task(keep_talking())
    asked = await asyncio.to_thread(
        opening(embedded).open, Wish(Scope.OWNER, "acme", ANN), by="test", reason="drill", now=wall_clock()
    )
    await until(lambda: "vectors" in steps())
    seen.building = await asyncio.to_thread(orders.look, NEW)
    gate.open()
    seen.receipt = dict((await finished(embedded, asked.erasure_id, seconds=SECONDS)).receipt or {})
    halt.set()
    await talking
    await embedded.drained()
    await until(lambda: orders.look(NEW).task is None)
    await asyncio.to_thread(orders.request, Task.VERIFY)
    await until(lambda: orders.look(NEW).task is None)
    seen.verified, seen.more = await asyncio.to_thread(orders.look, NEW), sent - MEMORIES
    # Everything once more, as it came and from the sealed log.
    await publish(embedded, directory / "log.jsonl")
    await embedded.drained()
    operator = Operator(embedded.settings, now=wall_clock)
    await operator.start(chosen(), chosen(), topic="turns.sealed")
    seen.replayed = await asyncio.to_thread(operator.diff, limit=10)
    seen.after = held(embedded, BOB)
    with embedded.runtime.collections.every() as collections:
        for collection in collections:
            seen.points[collection.name] = {it.id: (it.version, it.status) for it in collection.store.scroll()}
    raw = orjson.dumps(seen.receipt)
    seen.again = await verify(
        embedded.settings, raw, topics=False, broker=True, collections=embedded.runtime.collections
    )
    seen.sealed = b"".join(key + (value or b"") for key, value in await messages(embedded, "turns.sealed"))
    seen.last_words = dict(await messages(embedded, "memory_updated"))


def traces_in(raw: bytes) -> set[bytes]:
    return {trace for trace in TRACES if trace in raw}


def test_one_of_two_people_goes_while_another_collection_is_built_and_all_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario: pages with her memories are read for the new collection before she is erased, and written after it.
    We expect no byte of her on the disk, nothing of her from any replay, and the other with all he had and has said since."""
    seen, gate, data = Seen(), Gate(monkeypatch), tmp_path / "data"

    async def then(embedded: Embedded) -> None:
        await drill(embedded, gate, tmp_path, seen)

    process(data, write_log(tmp_path / "log.jsonl", both(range(MEMORIES))), stages=STAGES, then=then)
    # The build was under way: of her, pages had been written, and others came too late.
    assert seen.building is not None
    assert seen.building.built_at is None
    assert all(page[ANN] for page in gate.pages[: build.IN_FLIGHT])
    # She is gone from every store, which also the build's own verification and a later look say.
    assert seen.receipt["remaining"] == dict.fromkeys(seen.receipt["remaining"], 0)
    assert seen.receipt["erased"]["memories"] >= MEMORIES
    assert {OLD, NEW} == {store.removeprefix("vectors:") for store in seen.receipt["remaining"] if "vectors" in store}
    assert seen.again["faults"] == []
    assert seen.again["remaining"] == dict.fromkeys(seen.again["remaining"], 0)
    assert seen.verified is not None
    assert seen.verified.status is State.VERIFIED, seen.verified.report
    # He is untouched, and what he said meanwhile is there, in both collections.
    assert {memory_id: seen.after.get(memory_id) for memory_id in seen.before} == seen.before
    assert len(seen.after) == MEMORIES + seen.more
    his = {memory.id: (memory.version, memory.status.value) for memory in seen.after.values()}
    for name in (OLD, NEW):
        assert {key: at for key, at in seen.points[name].items() if at[1] != "deleted"} == his, name
    # The sealed log, judged again beside the live tables, makes the same memories of him and nothing else.
    assert seen.replayed is not None
    assert seen.replayed.differences == []
    assert seen.replayed.same == len(seen.after)
    # Bytes: database, the schema beside, both collections; the log that is kept for years, the last words of the events.
    assert traces_in(seen.sealed) == set()
    assert seen.sealed
    assert traces_in(b"".join(value for value in seen.last_words.values() if value is not None)) == set()
    assert sum(value is None for value in seen.last_words.values()) >= MEMORIES
    assert traces_in(bytes_of(data)) == set()
    assert {collection.name for collection in (data / "vectors").iterdir()} == {OLD, NEW}
    assert b"bobnut" in bytes_of(data)
