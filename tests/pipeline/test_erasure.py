"""Erasure: one of two people goes while turns keep coming, and no byte of them is left; through the embedded river."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sinks.sealing import DataKeys
from sinks.truth import erasure, memories
from sinks.truth.erasure import Erasure, Scope
from streams.cli.embedded import Embedded
from streams.erasing.composing import make_opening
from streams.erasing.opening import Opening, Wish
from streams.runtime import wall_clock
from streams.sealed import SealedLog
from streams.sealing import make_wrapper
from streams.settings import StageName
from tests.pipeline.river import process, publish, said, write_log

STAGES: tuple[StageName, ...] = ("ingest", "extract", "resolve", "feedback", "erasure", "bury")
ANN = Wish(Scope.OWNER, "acme", "zz-ann-zz")
TRACES = (b"zz-ann-zz", b"Annfield", b"annweed", b"zz-ann-chat", "安城".encode())
"""Words that only ann uses, and her ids."""


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


def opening(embedded: Embedded) -> Opening:
    return make_opening(embedded.settings, embedded.runtime.truth)


async def erase(embedded: Embedded, wish: Wish) -> Erasure:
    """Ask, and wait for the receipt."""
    asked = await asyncio.to_thread(opening(embedded).open, wish, by="test", reason="asked", now=wall_clock())
    return await finished(embedded, asked.erasure_id)


async def finished(embedded: Embedded, erasure_id: str) -> Erasure:
    def look() -> Erasure | None:
        with embedded.runtime.truth.reading() as connection:
            return erasure.get(connection, erasure_id)

    async with asyncio.timeout(60):
        while True:
            item = await asyncio.to_thread(look)
            assert item is not None
            if item.status == "done":
                return item
            assert embedded.failure is None, embedded.failure
            await asyncio.sleep(0.05)


def bytes_of(directory: Path) -> bytes:
    """Every file, as it is on the disk."""
    return b"\n".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def of_bob(embedded: Embedded) -> dict[str, tuple[int, str]]:
    with embedded.runtime.truth.reading() as connection:
        found = memories.listing(connection, owner="bob")
    return {memory.id: (memory.version, memory.text) for memory in found}


def run(tmp_path: Path, then: Callable[[Embedded], Awaitable[None]], given: list[dict[str, Any]] | None = None) -> None:
    process(tmp_path / "data", write_log(tmp_path / "log.jsonl", given or lines()), stages=STAGES, then=then)


def test_no_byte_of_an_erased_person_is_left_and_the_other_is_untouched(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    async def then(embedded: Embedded) -> None:
        seen["before"] = of_bob(embedded)
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
    assert any(store.startswith("vectors:") and number for store, number in erased.items())
    assert seen["target"] is None
    assert seen["before"] == seen["after"]
    assert seen["replayed"] == {"bob"}
    assert seen["destroyed"] == 4
    left = bytes_of(tmp_path / "data")
    assert {trace for trace in TRACES if trace in left} == set()
    assert b"Bobtown" in left
