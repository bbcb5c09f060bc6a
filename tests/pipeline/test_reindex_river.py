"""A re-embedding inside `memriver up`: ordered through truth by another process, done by the one that owns the vectors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Scope, authorise_all
from recall.request import RecallRequest
from recall.screening import TurnScreen
from recall.service import RecallService
from schemas import OwnerKind, Status
from sinks.truth.collections import CollectionRow, Source, State, Task
from streams.cli.embedded import Embedded
from streams.reindex.orders import Orders
from streams.runtime import wall_clock
from tests.pipeline.river import STAGES, process, publish, said, settings, write_log

OLD, NEW = "memories_hashing-1_384", "memories_hashing-1_768"


async def done(orders: Orders, embedded: Embedded) -> CollectionRow:
    """The new collection, when nothing is left to do with it."""
    async with asyncio.timeout(60):
        while True:
            assert embedded.failure is None
            row = await asyncio.to_thread(orders.look, NEW)
            if row.task is None:
                return row
            await asyncio.sleep(0.05)


async def recalled(embedded: Embedded, query: str) -> set[str]:
    """Values that recall hands out about ann."""
    agent = Principal(
        "acme", PrincipalKind.AGENT, "helper", "k", frozenset({Scope.READ}), (Grant(OwnerKind.USER, "ann"),)
    )
    reaches = authorise_all(agent, Scope.READ, [OwnerRef(OwnerKind.USER, "ann")], wall_clock())
    service = RecallService(
        embedded.runtime.truth, embedded.runtime.collections, screen=TurnScreen(embedded.runtime.gate)
    )
    result = await asyncio.to_thread(service.recall, RecallRequest(reaches, query, wall_clock()))
    assert not result.degraded
    return {item.memory.value for item in result.items if item.memory is not None}


@pytest.mark.parametrize("source", list(Source))
def test_a_river_that_flows_on_gets_another_model(tmp_path: Path, source: Source) -> None:
    """Scenario: memories exist; another embedder is ordered, from truth or from the event topic, while new turns come.
    We expect every memory in both collections, and recall from the new one, without a restart."""
    first = write_log(
        tmp_path / "a.jsonl", [said(1, "I live in Leeds"), said(2, "I'm allergic to peanuts"), said(3, "我喜欢爬山")]
    )
    more = write_log(
        tmp_path / "b.jsonl",
        [said(10, "I live in Berlin"), said(11, "I'm allergic to shellfish"), said(12, "我喜欢摄影")],
    )
    points: dict[str, dict[str, tuple[int, str]]] = {}

    async def then(embedded: Embedded) -> None:
        orders = Orders(embedded.settings, embedded.runtime.truth, wall_clock)
        await asyncio.to_thread(orders.start, "hashing:768", source, None)
        await publish(embedded, more)
        await embedded.drained()
        assert (await done(orders, embedded)).error is None
        await asyncio.to_thread(orders.request, Task.VERIFY)
        verified = await done(orders, embedded)
        assert verified.status is State.VERIFIED, verified.report
        await asyncio.to_thread(orders.switch)
        await asyncio.to_thread(embedded.runtime.collections.refresh)
        assert embedded.runtime.vectors.collection == NEW
        assert await recalled(embedded, "Where do I live?") == {"Berlin"}
        with embedded.runtime.collections.every() as every:
            for collection in every:
                points[collection.name] = {it.id: (it.version, it.status) for it in collection.store.scroll()}

    left = process(tmp_path / "data", first, given=settings(), stages=(*STAGES, "reindex"), then=then)
    assert points[OLD] == points[NEW] == {it.id: (it.version, it.status.value) for it in left.memories}
    assert {it.value for it in left.of("ann", Status.SUPERSEDED)} == {"Leeds"}
