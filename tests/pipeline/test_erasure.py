"""Erasure: one of two people goes while turns keep coming, and no byte of them is left; through the embedded river."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection, select

from schemas import Status
from sinks.sealing import DataKeys
from sinks.truth import erasure, memories, tables
from sinks.truth.beside import Beside
from sinks.truth.erasure import Erasure, Scope
from sinks.truth.sql import insert_rows
from streams.cli.embedded import Embedded
from streams.erasing.composing import make_eraser, verify
from streams.erasing.logs import READERS
from streams.erasing.opening import Wish
from streams.runtime import wall_clock
from streams.sealed import SealedLog
from streams.sealing import make_wrapper
from streams.settings import StageName
from tests.pipeline.erasing import bytes_of, erase, opening
from tests.pipeline.river import process, publish, said, write_log

STAGES: tuple[StageName, ...] = ("ingest", "extract", "resolve", "feedback", "erasure", "bury")
ANN = Wish(Scope.OWNER, "acme", "zz-ann-zz")
TRACES = (b"zz-ann-zz", b"Annfield", b"annweed", b"zz-ann-chat", "安城".encode())
"""Words that only ann uses, and her ids."""
TRANSIT = tuple(f"topic:{name}" for name in READERS)


def lines() -> list[dict[str, Any]]:
    """Two people, each in a conversation of their own and both in a group."""
    ann, bob = {"user_id": "zz-ann-zz"}, {"user_id": "bob"}
    return [
        said(1, "I live in Annfield.", conversation_id="zz-ann-chat", **ann),
        said(2, "I'm allergic to annweed.", conversation_id="zz-ann-chat", **ann),
        said(3, "我住在安城", conversation_id="zz-ann-chat", **ann),
        said(4, "I live in Bobtown.", conversation_id="bobs", **bob),
        said(5, "I'm allergic to bobnuts.", conversation_id="bobs", **bob),
        said(6, "I work at Annfield Mills.", conversation_id="group", group=True, **ann),
        said(7, "My favourite colour is green.", conversation_id="group", group=True, **bob),
    ]


def of_bob(embedded: Embedded) -> dict[str, tuple[int, str]]:
    with embedded.runtime.truth.reading() as connection:
        found = memories.listing(connection, owner="bob")
    return {memory.id: (memory.version, memory.text) for memory in found}


def stand_beside(embedded: Embedded) -> None:
    """What a replay leaves for going back: the derived tables once more, in a schema of their own."""
    beside = Beside(embedded.settings.database_url.get_secret_value())
    beside.create()
    other = beside.open()
    with embedded.runtime.truth.reading() as live, other.begin() as copy:
        for table in (
            tables.owners,
            tables.turns,
            tables.claims,
            tables.cells,
            tables.memories,
            tables.memory_versions,
        ):
            insert_rows(copy, table, [dict(row._mapping) for row in live.execute(select(table))])
    other.close()


def run(tmp_path: Path, then: Callable[[Embedded], Awaitable[None]], given: list[dict[str, Any]] | None = None) -> None:
    process(tmp_path / "data", write_log(tmp_path / "log.jsonl", given or lines()), stages=STAGES, then=then)


def test_no_byte_of_an_erased_person_is_left_and_the_other_is_untouched(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    async def then(embedded: Embedded) -> None:
        seen["before"] = of_bob(embedded)
        await asyncio.to_thread(stand_beside, embedded)
        done = await erase(embedded, ANN)
        seen["receipt"] = done.receipt
        seen["target"] = done.target
        # The same log again, and a late word: nothing comes back.
        await publish(embedded, tmp_path / "log.jsonl")
        late = [said(9, "I live in Annfield Green.", conversation_id="zz-ann-chat", user_id="zz-ann-zz")]
        await publish(embedded, write_log(tmp_path / "late.jsonl", late))
        await embedded.drained()
        seen["after"] = of_bob(embedded)
        log = SealedLog(embedded.settings, embedded.runtime.truth, DataKeys(make_wrapper(embedded.settings)))
        seen["replayed"] = {item.turn.user_id async for item in log.turns()}
        seen["destroyed"] = log.counts.destroyed

    run(tmp_path, then)
    assert seen["receipt"]["remaining"] == dict.fromkeys(seen["receipt"]["remaining"], 0)
    erased = seen["receipt"]["erased"]
    assert erased["turns"] == 4
    assert erased["memories"] >= 3
    assert erased["data_keys"] == 1
    assert (erased["beside:turns"], erased["beside:memories"]) == (erased["turns"], erased["memories"])
    assert any(store.startswith("vectors:") and number for store, number in erased.items())
    assert seen["target"] is None
    assert seen["before"] == seen["after"]
    assert seen["replayed"] == {"bob"}
    assert seen["destroyed"] == 4
    left = bytes_of(tmp_path / "data")
    assert {trace for trace in TRACES if trace in left} == set()
    assert b"Bobtown" in left


class Died(BaseException):
    """The process is gone; nothing may catch it."""


async def die_in_every_step(
    embedded: Embedded, wish: Wish, monkeypatch: pytest.MonkeyPatch
) -> tuple[Erasure, list[str]]:
    """Carry it out with a death before each step is recorded: its effects are there, and it is done once more."""
    asked = await asyncio.to_thread(opening(embedded).open, wish, by="test", reason="", now=wall_clock())
    runtime, died, real = embedded.runtime, list[str](), erasure.step

    def mortal(connection: Connection, erasure_id: str, name: str, found: Any) -> None:
        if name not in died:
            died.append(name)
            raise Died
        real(connection, erasure_id, name, found)

    monkeypatch.setattr(erasure, "step", mortal)
    async with asyncio.timeout(60):
        while True:
            eraser = make_eraser(runtime, wall_clock)  # another process, as far as it can tell
            try:
                worked = await eraser.step()
            except Died:
                continue
            with runtime.truth.reading() as connection:
                item = erasure.get(connection, asked.erasure_id)
            assert item is not None
            if item.status == "done":
                return item, died
            await asyncio.sleep(0 if worked else 0.05)


def test_a_conversation_a_memory_and_a_tenant_go_through_a_death_in_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays is sealed anew and comes out of the log once; the other people's words and memories are as before."""
    seen: dict[str, Any] = {}

    async def replayed(embedded: Embedded) -> list[str]:
        log = SealedLog(embedded.settings, embedded.runtime.truth, DataKeys(make_wrapper(embedded.settings)))
        return sorted([item.turn.turn_id async for item in log.turns()])

    def held(embedded: Embedded, owner: str) -> dict[str, str]:
        with embedded.runtime.truth.reading() as connection:
            return {
                m.attribute: m.value for m in memories.listing(connection, owner=owner) if m.status is Status.ACTIVE
            }

    async def then(embedded: Embedded) -> None:
        seen["before"] = held(embedded, "zz-ann-zz")
        group = Wish(Scope.CONVERSATION, "acme", "group")
        seen["group"], seen["died"] = await die_in_every_step(embedded, group, monkeypatch)
        seen["replayed without group"] = await replayed(embedded)
        seen["without group"] = held(embedded, "zz-ann-zz")
        with embedded.runtime.truth.reading() as connection:
            [home] = [m for m in memories.listing(connection, owner="zz-ann-zz") if m.value == "安城"]
        memory = Wish(Scope.MEMORY, "acme", home.id)
        seen["memory"], _died = await die_in_every_step(embedded, memory, monkeypatch)
        seen["without home"] = held(embedded, "zz-ann-zz")
        seen["replayed without home"] = await replayed(embedded)
        # Everything once more: what was erased is refused, what stays is known.
        await publish(embedded, tmp_path / "log.jsonl")
        await embedded.drained()
        seen["again"] = held(embedded, "zz-ann-zz")
        raw = orjson.dumps(dict(seen["memory"].receipt))
        seen["verified"] = await verify(
            embedded.settings, raw, topics=True, broker=True, collections=embedded.runtime.collections
        )
        seen["tenant"], _died = await die_in_every_step(embedded, Wish(Scope.TENANT, "acme"), monkeypatch)

    stages: tuple[StageName, ...] = ("ingest", "extract", "resolve", "feedback", "bury")
    process(tmp_path / "data", write_log(tmp_path / "log.jsonl", lines()), stages=stages, then=then)
    assert seen["died"] == ["ordered", "resolved", "truth", "vectors", "keys", "logs", "verified"]
    for name in ("group", "memory", "tenant"):
        receipt = seen[name].receipt
        assert receipt["remaining"] == dict.fromkeys(receipt["remaining"], 0), name
    assert seen["group"].receipt["erased"]["turns"] == 2
    assert seen["replayed without group"] == ["t1", "t2", "t3", "t4", "t5"]
    assert seen["before"]["residence"] == "安城"
    assert seen["without home"]["residence"] == "Annfield"
    assert seen["replayed without home"] == ["t1", "t2", "t4", "t5"]
    assert seen["again"] == seen["without home"]
    assert seen["verified"]["faults"] == []
    # Plain text on its way is still to be read until it ages out, as the receipt says; nothing else is.
    assert {store for store, number in seen["verified"]["remaining"].items() if number} <= set(TRANSIT)
    assert seen["verified"]["remaining"]["topic:turns"] > 0
    left = bytes_of(tmp_path / "data")
    assert {trace for trace in (*TRACES, b"Bobtown", b"bobnuts") if trace in left} == set()


def test_who_comes_back_on_purpose_begins_anew_above_what_was(tmp_path: Path) -> None:
    """The same words make the same memory id; its versions go on, or stores and replicas would take it for old."""
    seen: dict[str, Any] = {}
    home = said(1, "I live in Annfield.", conversation_id="zz-ann-chat", user_id="zz-ann-zz")

    def held(embedded: Embedded) -> dict[str, int]:
        with embedded.runtime.truth.reading() as connection:
            return {m.id: m.version for m in memories.listing(connection, owner="zz-ann-zz")}

    async def then(embedded: Embedded) -> None:
        seen["before"] = held(embedded)
        await erase(embedded, ANN)
        seen["between"] = held(embedded)
        await asyncio.to_thread(opening(embedded).lift, ANN, by="test", now=wall_clock())
        again = write_log(tmp_path / "again.jsonl", [home | {"turn_id": "t100", "conversation_id": "anew"}])
        await publish(embedded, again)
        await embedded.drained()
        seen["after"] = held(embedded)
        seen["points"] = {p.id: (p.version, p.status) for p in embedded.runtime.vectors.scroll()}
        log = SealedLog(embedded.settings, embedded.runtime.truth, DataKeys(make_wrapper(embedded.settings)))
        seen["replayed"] = [item.turn.turn_id async for item in log.turns()]

    run(tmp_path, then, [home])
    assert seen["between"] == {}
    [(memory_id, version)] = seen["after"].items()
    assert version > seen["before"][memory_id]
    assert seen["points"][memory_id] == (version, "active")
    assert seen["replayed"] == ["t100"]
