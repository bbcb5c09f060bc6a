"""The embedded broker: librdkafka's mock cluster speaks the Kafka protocol on loopback, in this process.

It is for trying and testing: nothing is on disk, every topic has four partitions, and it drops the oldest messages of a
partition beyond 5 MB or 100,000 without a word. Intake is therefore bounded (`streams.publish`), and consumers
check that they have not fallen behind the log's start (`streams.delivery`).
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from processors.exceptions import FatalError

PARTITIONS = 4

MAX_IN_FLIGHT_MESSAGES = 4_000


class EmbeddedBroker:
    """A one-node mock cluster that lives as long as this object."""

    def __init__(self) -> None:
        self._client = Producer({"test.mock.num.brokers": 1, "log_level": 3})
        metadata = self._client.list_topics(timeout=10)
        brokers = list(metadata.brokers.values())
        if not brokers:
            raise FatalError("the embedded broker did not start")
        self.bootstrap = f"{brokers[0].host}:{brokers[0].port}"

    def create(self, topics: Sequence[str]) -> None:
        """Have the topics exist before a consumer subscribes; the mock makes them when first asked about."""
        for topic in topics:
            self._client.list_topics(topic, timeout=10)

    def close(self) -> None:
        """Stop the cluster; what it held is gone."""
        self._client.flush(1)
