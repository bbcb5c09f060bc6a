"""The first messages of a partition come again after a rebalance threw them away, though nothing of it was ever committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from ops.dev.services import Kafka
from streams.faust_app import make_app, raw_topic
from streams.settings import Settings
from tests.doubles.log import until


async def test_what_was_not_committed_is_read_again_from_the_beginning(
    kafka: Kafka, create_topics: Callable[..., None], topics_prefix: str, tmp_path: Path
) -> None:
    """Scenario: three messages have come, none is acknowledged, and Faust seeks to what is committed: nothing.
    We expect all three once more. aiokafka by itself would stay where it is, behind them."""
    create_topics(f"{topics_prefix}turns", partitions=1)
    settings = Settings(_env_file=None, kafka_bootstrap=kafka.bootstrap, topic_prefix=topics_prefix, data_dir=tmp_path)
    app = make_app(settings, "ingest")
    heard: list[Any] = []

    @app.agent(raw_topic(app, settings.topic("turns")))  # type: ignore[untyped-decorator]  # Faust's
    async def hear(stream: Any) -> None:
        async for event in stream.noack().events():
            heard.append(event)

    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(settings.topic("turns"), b"%d" % number)
    await app.start()
    try:
        await until(lambda: len(heard) >= 3)
        await app.consumer.perform_seek()
        await until(lambda: len(heard) >= 6)
    finally:
        # Faust waits for what is in somebody's hands before it stops.
        for event in heard:
            event.ack()
        await app.stop()
    assert [event.message.offset for event in heard] == [0, 1, 2, 0, 1, 2]


async def test_an_empty_partition_is_one_that_was_looked_at(
    kafka: Kafka, create_topics: Callable[..., None], topics_prefix: str, tmp_path: Path
) -> None:
    """The watchdog ends a process that never hears anything of a partition; of an empty one it hears that it is empty."""
    create_topics(f"{topics_prefix}turns", partitions=3)
    settings = Settings(_env_file=None, kafka_bootstrap=kafka.bootstrap, topic_prefix=topics_prefix, data_dir=tmp_path)
    app = make_app(settings, "ingest")

    @app.agent(raw_topic(app, settings.topic("turns")))  # type: ignore[untyped-decorator]  # Faust's
    async def hear(stream: Any) -> None:
        async for _event in stream.noack().events():
            raise AssertionError("there is nothing to hear")

    await app.start()
    try:
        await until(lambda: len(app.consumer.assignment()) == 3)
        await until(lambda: all(app.consumer.highwater(place) == 0 for place in app.consumer.assignment()))
    finally:
        await app.stop()
