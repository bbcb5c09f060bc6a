"""The sealed log: everything that was let in is on it, under its owner's key, and comes out once; embedded river."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from sqlalchemy import Connection

from sinks.sealing import DataKeys
from sinks.truth import keys
from streams.cli.embedded import Embedded
from streams.connection import client_options
from streams.sealed import Counts, SealedLog
from streams.sealing import make_identities, make_wrapper
from tests.pipeline.river import process, publish, said, write_log


def log_of(embedded: Embedded) -> SealedLog:
    settings = embedded.runtime.settings
    return SealedLog(settings, embedded.runtime.truth, DataKeys(make_wrapper(settings)))


async def raw(embedded: Embedded) -> bytes:
    """Everything on the topic, as bytes: keys and values."""
    settings = embedded.runtime.settings
    consumer = AIOKafkaConsumer(
        settings.topic("turns.sealed"), **client_options(settings), auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        found = await consumer.getmany(timeout_ms=3000)
        return b"\n".join(bytes(row.key) + b" " + bytes(row.value) for rows in found.values() for row in rows)
    finally:
        await consumer.stop()


def test_every_turn_that_was_let_in_comes_out_of_the_sealed_log_once(tmp_path: Path) -> None:
    """Filtered turns, edits and deletions too: a replay must see what intake saw."""
    lines = [
        said(1, "我住在北京"),
        said(2, "哈哈哈"),
        said(3, "I'm allergic to peanuts.", user_id="bob", conversation_id="c2"),
        said(1, "我住在上海", revision=1),
        said(4, "", deleted=True, revision=1),
    ]
    seen: dict[str, object] = {}

    async def then(embedded: Embedded) -> None:
        # The whole log once more: a redelivery as far as ingest can tell.
        await publish(embedded, tmp_path / "log.jsonl")
        await embedded.drained()
        log = log_of(embedded)
        found = [item.turn async for item in log.turns()]
        seen["turns"] = sorted((turn.turn_id, turn.revision, turn.text) for turn in found)
        seen["counts"] = log.counts
        seen["bytes"] = await raw(embedded)

        def destroy(connection: Connection) -> int:
            bob = next(turn for turn in found if turn.user_id == "bob")
            owner = make_identities(embedded.runtime.settings).owner(bob.owner_key)
            return keys.destroy(connection, [owner], embedded.runtime.delivery._now())

        await asyncio.to_thread(embedded.runtime.truth.run, destroy)
        log = log_of(embedded)
        seen["left"] = {item.turn.user_id async for item in log.turns()}
        seen["after"] = log.counts

    process(tmp_path / "data", write_log(tmp_path / "log.jsonl", lines), then=then)
    assert seen["turns"] == [
        ("t1", 0, "我住在北京"),
        ("t1", 1, "我住在上海"),
        ("t2", 0, "哈哈哈"),
        ("t3", 0, "I'm allergic to peanuts."),
        ("t4", 1, ""),
    ]
    assert seen["counts"] == Counts(read=10, given=5, repeated=5)
    assert seen["left"] == {"ann"}
    assert seen["after"] == Counts(read=10, given=4, repeated=4, destroyed=2)
    assert isinstance(seen["bytes"], bytes)
    for trace in ("北京", "peanuts", "ann", "bob", "acme"):
        assert trace.encode() not in seen["bytes"]
