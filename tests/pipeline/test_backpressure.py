"""Back-pressure: a stage whose sink is blocked reads on only so far, however much waits; an end is possible meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import orjson
from sqlalchemy import select

from processors.exceptions import Outage, TransientError
from sinks.truth import Truth, batches, deadletters, make_engine, outbox, tables, turns
from sinks.truth.outbox import Outgoing
from streams.cli.embedded import Embedded
from streams.faust_app import MAX_POLL, STREAM_BUFFER
from tests.doubles.log import until
from tests.doubles.model_replies import Behaviour
from tests.doubles.model_server import ModelServer
from tests.pipeline.river import publish, said, settings, write_log
from tests.pipeline.test_model import chat

WAITING = 50_000
GROUP = 100


class Blocked:
    """An outflow whose vector store is away."""

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        raise TransientError("the vector store is away", part="vectors", outage=Outage.AWAY)


def fact(number: int) -> Outgoing:
    """A turn that has something to send on."""
    line = said(1, "我住在北京") | {"turn_id": f"t{number}", "conversation_id": f"c{number % 500}"}
    return Outgoing("turns", f"k{number}", f"c{number % 500}", orjson.dumps(line))


def read_from_the_log(embedded: Embedded) -> int:
    """Messages that the stage's consumer has taken from the broker."""
    [app] = embedded.runtime._apps
    return sum(offset + 1 for offset in app.consumer._read_offset.values() if offset is not None)


async def quiet(embedded: Embedded) -> int:
    """How far it has read, once it reads no further."""
    looks: list[int] = []
    async with asyncio.timeout(120):
        while len(looks) < 15 or len(set(looks[-15:])) > 1 or looks[-1] == 0:
            looks.append(read_from_the_log(embedded))
            await asyncio.sleep(0.1)
    return looks[-1]


async def test_fifty_thousand_messages_wait_in_the_log_and_not_in_memory(tmp_path: Path) -> None:
    """Scenario: turns pour in while the sink is blocked. We expect as many in hand as the buffers are made for, no more."""
    embedded = Embedded(settings(group_size=GROUP), tmp_path / "data", ("ingest",))
    delivery = embedded.runtime.delivery
    delivery._publisher = Blocked()
    await embedded.start()
    try:
        for start in range(0, WAITING, 1000):
            await embedded.runtime.producer.publish([fact(number) for number in range(start, start + 1000)])
        await until(lambda: bool(delivery.waits))
        taken = await quiet(embedded)
        assert taken <= STREAM_BUFFER + MAX_POLL + 3 * GROUP
        assert delivery.progress["ingest"].handled == 0
        with embedded.runtime.truth.reading() as connection:
            stored = len(connection.execute(select(tables.turns.c.turn_key)).all())
            assert 0 < stored <= GROUP, "one group is committed and waits for its sink; the others are behind it"
            assert outbox.size(connection) > 0
            assert deadletters.count(connection) == 0
        assert embedded.failure is None
    finally:
        assert await embedded.stop(), "what is held up is given back, and nothing hangs"
    assert embedded.failure is None


async def test_a_river_without_a_drop_in_it_has_looked_at_every_partition(tmp_path: Path) -> None:
    """Scenario: nobody says anything. We expect each stage to know soon that nothing is there: it is not standing still."""
    embedded = Embedded(settings(), tmp_path / "data")
    await embedded.start()
    try:
        assigned = {app.memriver_stage for app in embedded.runtime._apps if app.consumer.assignment()}
        assert assigned == {"ingest", "extract", "resolve", "feedback", "bury"}
        await until(lambda: not embedded.runtime.unseen())
    finally:
        await embedded.stop()


async def test_a_stop_while_the_model_hangs_gives_the_batch_back_unharmed(tmp_path: Path) -> None:
    with ModelServer(default=Behaviour.HANG) as server:
        embedded = Embedded(
            settings(model_base_url=server.base_url, model_name="double-1", stop_seconds=2.0), tmp_path / "data"
        )
        await embedded.start()
        try:
            await publish(embedded, write_log(tmp_path / "log.jsonl", chat("ann", "The dog is called Rusty by all.")))
            await until(lambda: bool(server.calls))
            assert embedded.runtime.delivery.progress["extract"].in_hand == 1
        finally:
            ended = await embedded.stop()
        assert ended
        assert embedded.failure is None
        assert embedded.runtime.delivery.progress["extract"].handled == 0
        truth = Truth(make_engine(embedded.settings.database_url.get_secret_value()))
        with truth.reading() as connection:
            assert batches.count_by_status(connection) == {"closed": 1}
            attempts = connection.execute(select(tables.batches.c.attempts)).scalars().all()
            assert attempts == [0], "only a death costs an attempt: five restarts must not make a dead letter of it"
            assert [row["outcome"] for row in turns.outcomes(connection)] == ["batched"]
            assert deadletters.count(connection) == 0
        truth.close()
