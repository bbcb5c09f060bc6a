"""Replay, workers: the log's place of the live schema, and whether the workers stand still as an exchange needs it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from processors.exceptions import FatalError, TransientError
from streams.connection import client_options
from streams.position import committed
from streams.settings import Settings

_GROUPS = ("ingest", "extract", "resolve", "feedback")
"""The stages that write what is exchanged. The clocks are in no group, and run in processes that have one of these."""
_SETTLED = ("Empty", "Dead")


async def standing_still(settings: Settings) -> None:
    """Raises FatalError while a worker is a member of a stage's group, or what they sent is not resolved yet.

    A claim that the old rules made and that is still on its way would be entered after the exchange.
    """
    groups = [settings.group(stage) for stage in _GROUPS]
    running = await _members(settings, groups)
    # One that was killed is a member until its session is over.
    for _second in range(math.ceil(settings.session_timeout_seconds) + 1):
        if not running:
            break
        await asyncio.sleep(1)
        running = await _members(settings, groups)
    if running:
        raise FatalError(
            f"workers are running ({', '.join(running)}): stop all of them first; meanwhile Kafka takes in what is said, and "
            "recall answers"
        )
    unread = await unread_by(settings, "resolve", "candidates")
    if unread:
        raise FatalError(
            f"{unread} candidates are not resolved yet: start the workers, stop ingest and extract first, and resolve last"
        )


async def unread_by(settings: Settings, stage: str, topic: str) -> int:
    """Messages of a topic that the stage's group has not acknowledged."""
    starts, ends = await _bounds(settings, topic)
    places = [(settings.topic(topic), number) for number in ends]
    done = await committed(settings, settings.group(stage), places)
    return sum(end - max(starts[number], done.get((settings.topic(topic), number), 0)) for number, end in ends.items())


async def taken_in(settings: Settings, numbers: Mapping[int, int]) -> dict[int, int]:
    """How far ingest has come in `turns`, for these partitions."""
    name = settings.topic("turns")
    done = await committed(settings, settings.group("ingest"), [(name, number) for number in numbers])
    return {number: done.get((name, number), 0) for number in numbers}


async def partitions_of(settings: Settings, topic: str) -> int:
    """How many there are."""
    return len((await _bounds(settings, topic))[1])


async def _members(settings: Settings, groups: list[str]) -> list[str]:
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        try:
            # One by one: aiokafka 0.14 reads the answer about the first of several groups with the wrong layout (its
            # request of version 3 names the response of version 2).
            found = [answer for group in groups for answer in await admin.describe_consumer_groups([group])]
        finally:
            await admin.close()
    except IncompatibleBrokerVersion:
        # The embedded broker, which does not know the question; it lives in the process of its one worker.
        return []
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error
    # error_code, group, state, … (KIP-222)
    return [str(row[1]) for response in found for row in response.groups if row[2] not in _SETTLED]


async def _bounds(settings: Settings, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    name = settings.topic(topic)
    consumer = AIOKafkaConsumer(**client_options(settings), group_id=None, enable_auto_commit=False)
    try:
        await consumer.start()
        numbers = (await consumer._client.fetch_all_metadata()).partitions_for_topic(name) or set()
        places = [TopicPartition(name, number) for number in sorted(numbers)]
        starts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error
    finally:
        await consumer.stop()
    return {p.partition: at for p, at in starts.items()}, {p.partition: at for p, at in ends.items()}
