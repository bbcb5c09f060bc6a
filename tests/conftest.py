"""Tests: what all share — real services, started when the first test asks, and names that never collide."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops.dev.services import Kafka, MariaDb, ServiceUnavailable

CreateTopics = Callable[..., None]


def _missing(reason: str) -> NoReturn:
    """A missing service is a skip with its reason; in CI, which sets MEMRIVER_REQUIRE_SERVICES=1, a failure."""
    if os.environ.get("MEMRIVER_REQUIRE_SERVICES") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A running broker. A test that stops or kills it starts it again (same port, same data)."""
    try:
        Kafka.check()
    except ServiceUnavailable as missing:
        _missing(str(missing))
    with Kafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A running MariaDB. A test that stops or kills it starts it again (same port, same data)."""
    try:
        MariaDb.check()
    except ServiceUnavailable as missing:
        _missing(str(missing))
    with MariaDb() as server:
        yield server


@pytest.fixture
def database_url(mariadb: MariaDb) -> Iterator[str]:
    """SQLAlchemy address of a fresh, empty MariaDB database, dropped after the test."""
    name = f"memriver_{uuid.uuid4().hex[:12]}"
    yield mariadb.create_database(name)
    if mariadb.running:
        mariadb.drop_database(name)


@pytest.fixture
def topics_prefix() -> str:
    """Prefix for topic names and consumer groups, different in each test."""
    return f"t{uuid.uuid4().hex[:10]}."


@pytest.fixture
def create_topics(kafka: Kafka) -> Iterator[CreateTopics]:
    """`create_topics(*names, partitions=4, config=None)`: makes topics on the real broker, removed after the test."""
    made: list[str] = []

    def create(*names: str, partitions: int = 4, config: Mapping[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wanted = [
            NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {})) for name in names
        ]
        for name, done in admin.create_topics(wanted, operation_timeout=30).items():
            done.result()
            made.append(name)

    yield create
    if made and kafka.running:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for done in admin.delete_topics(made, operation_timeout=30).values():
            done.result()
