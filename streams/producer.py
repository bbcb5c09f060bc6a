"""The producer: aiokafka, idempotent, acks=all, with the partition chosen by the message's partition key."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from processors.exceptions import PoisonError, TransientError
from sinks import outages
from sinks.truth.outbox import Outgoing
from streams.connection import client_options
from streams.settings import Settings

MAX_MESSAGE_BYTES = 1_000_000
"""What a gateway's message may have: the broker's bound for `turns`, less its record overhead."""
_MAX_REQUEST_BYTES = 9_000_000
"""Above the largest `max.message.bytes` of topics.yaml (dead letters, 8 MiB)."""


def outage(error: KafkaError) -> TransientError:
    """What a Kafka client's error comes to: it is waited out, under its name."""
    return TransientError(
        f"broker away or refusing ({type(error).__name__})", part="broker", outage=outages.broker(error)
    )


class EventProducer:
    """Publishes outbox rows in order, in idempotent sessions: a retry inside one neither doubles nor reorders.

    A session can end for good (its sequence has a gap, the broker does not know it any more): from then on it refuses
    everything. The next message begins a new one, after the old one has let go of what it held.

    `sent` counts messages by topic; an embedded run compares it with what its stages have handled.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._broken: AIOKafkaProducer | None = None
        self._started = False
        self._renewing = asyncio.Lock()
        self._partitions: dict[str, int] = {}
        self.sent: Counter[str] = Counter()

    async def start(self) -> None:
        """Connect.

        Raises:
            TransientError: no broker answers.
        """
        producer = AIOKafkaProducer(
            **client_options(self._settings),
            enable_idempotence=True,
            acks="all",
            linger_ms=1,
            max_batch_size=256_000,
            max_request_size=_MAX_REQUEST_BYTES,
            request_timeout_ms=20_000,
        )
        try:
            await producer.start()
        except KafkaError as error:
            await producer.stop()
            where = self._settings.kafka_bootstrap
            raise TransientError(f"no broker answers at {where} ({type(error).__name__})", part="broker") from error
        self._producer, self._started = producer, True

    async def stop(self) -> None:
        """Flush and disconnect."""
        self._started = False
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """All of them are on the brokers' disks when this returns.

        Raises:
            TransientError: the broker is away; the rows stay in the outbox and go again.
        """
        producer = await self._session()
        try:
            waits: list[asyncio.Future[Any]] = []
            for message in messages:
                topic = self._settings.topic(message.topic)
                self.sent[message.topic] += 1
                partition = await self._partition(topic, message.partition_key)
                version = message.version
                waits.append(
                    await producer.send(
                        topic,
                        value=message.payload,
                        key=message.key.encode(),
                        partition=partition,
                        headers=[] if version is None else [("version", str(version).encode())],
                    )
                )
            if waits:
                await asyncio.gather(*waits)
        except KafkaError as error:
            self._failed(producer, error)
            raise outage(error) from error

    async def ping(self) -> None:
        """Ask the broker for its topics.

        Raises:
            TransientError: no broker answers.
        """
        client = self._ready().client
        try:
            await client.fetch_all_metadata()
        except KafkaError as error:
            raise outage(error) from error

    def topic(self, name: str) -> str:
        """The real name of a topic."""
        return self._settings.topic(name)

    async def send(
        self,
        topic: str,
        key: str,
        payload: bytes,
        *,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> asyncio.Future[Any]:
        """Queue one message of a gateway; the future is done when the brokers have it. The key chooses the partition.

        Raises:
            PoisonError: larger than a broker takes.
        """
        if topic == "turns" and len(payload) > MAX_MESSAGE_BYTES:
            raise PoisonError("too_large", f"{len(payload)} bytes; a message may have {MAX_MESSAGE_BYTES}")
        name = self._settings.topic(topic)
        self.sent[topic] += 1
        if partition is None:
            partition = await self._partition(name, key)
        producer = await self._session()
        try:
            future: asyncio.Future[Any] = await producer.send(
                name, value=payload, key=key.encode(), partition=partition, headers=list(headers)
            )
        except KafkaError as error:
            self._failed(producer, error)
            raise
        future.add_done_callback(lambda done: self._failed(producer, None if done.cancelled() else done.exception()))
        return future

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; raises what the client raises when it does not exist."""
        return len(await self._ready().partitions_for(self._settings.topic(topic)))

    async def _partition(self, topic: str, partition_key: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = len(await self._ready().partitions_for(topic))
        return zlib.crc32(partition_key.encode()) % count

    async def _session(self) -> AIOKafkaProducer:
        """The session in use, or a new one in place of one that is over. Raises TransientError as `start` does."""
        if self._started and (self._producer is None or self._producer is self._broken):
            async with self._renewing:
                over = self._producer
                beyond_use = over is self._broken
                if over is not None and beyond_use:
                    self._producer = self._broken = None
                    await over.stop()
                if self._producer is None:
                    await self.start()
        return self._ready()

    def _failed(self, producer: AIOKafkaProducer, error: BaseException | None) -> None:
        # A broker that is away, or slow, is no reason: the session outlives that, and with it the order of what it holds.
        if isinstance(error, KafkaError) and not isinstance(error, (KafkaConnectionError, KafkaTimeoutError)):
            self._broken = producer

    def _ready(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise TransientError("the producer is not started", part="broker")
        return self._producer
