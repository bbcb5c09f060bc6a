"""Positions: where a consumer group stands against where its log begins; a loss between the two must be loud."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from processors.exceptions import TransientError
from streams.broker import MAX_IN_FLIGHT_MESSAGES
from streams.connection import client_options
from streams.producer import EventProducer
from streams.settings import Settings


async def committed(
    settings: Settings, group: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The next offset the group will read, for each partition it has ever committed.

    Raises:
        TransientError: the broker is away.
    """
    wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(group, partitions=wanted)
        finally:
            await admin.close()
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error
    return {(tp.topic, tp.partition): meta.offset for tp, meta in found.items() if meta.offset >= 0}


async def intake_bound(settings: Settings, producer: EventProducer) -> Callable[[int, int], Awaitable[None]] | None:
    """For an importer that writes to the embedded broker: waits while too much is not yet taken in (see `streams.broker`).

    None on a real broker, which keeps what it was given.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    try:
        cluster = (await admin.describe_cluster())["cluster_id"] or ""
    finally:
        await admin.close()
    if not str(cluster).startswith("mock"):
        return None
    topic = settings.topic("turns")
    places = [(topic, partition) for partition in range(await producer.partitions("turns"))]
    before = sum((await committed(settings, settings.group("ingest"), places)).values())

    async def room(messages: int, _bytes: int) -> None:
        while True:
            taken = sum((await committed(settings, settings.group("ingest"), places)).values()) - before
            if messages - taken <= MAX_IN_FLIGHT_MESSAGES // 2:
                return
            await asyncio.sleep(0.2)

    return room
