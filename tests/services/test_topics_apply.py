"""Service tests: `memriver topics apply` makes the declared topics, mends them, and refuses what would tear their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from ops.dev.services import Kafka
from processors.exceptions import FatalError, TransientError
from streams import topics
from streams.settings import Settings
from streams.topics import Applied, apply, declared

SPECS = {spec.name: spec for spec in declared()}


class Broker:
    """The broker as an operator sees it; names are logical ones."""

    def __init__(self, admin: AIOKafkaAdminClient, settings: Settings) -> None:
        self._admin = admin
        self._settings = settings

    async def config(self, name: str) -> dict[str, str]:
        topic = ConfigResource(ConfigResourceType.TOPIC, self._settings.topic(name))
        (response,) = await self._admin.describe_configs([topic])
        return {entry[0]: entry[1] for entry in response.resources[0][4]}

    async def configure(self, name: str, **changes: str) -> None:
        """Set the topic's own settings: the declared ones, with these changes."""
        config = SPECS[name].config | {key.replace("_", "."): value for key, value in changes.items()}
        topic = ConfigResource(ConfigResourceType.TOPIC, self._settings.topic(name), configs=config)
        (response,) = await self._admin.alter_configs([topic])
        assert [row[0] for row in response.resources] == [0]
        await self.shows(name, **changes)

    async def shows(self, name: str, **wanted: str) -> None:
        """Waits until the broker, which learns a little after its controller, has these settings."""
        expected = {key.replace("_", "."): value for key, value in wanted.items()}
        for _look in range(500):
            if (await self.config(name)).items() >= expected.items():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} never got {expected}")

    async def partitions(self) -> dict[str, int]:
        prefix = self._settings.topic_prefix
        rows = await self._admin.describe_topics()
        return {
            row["topic"].removeprefix(prefix): len(row["partitions"]) for row in rows if row["topic"].startswith(prefix)
        }

    async def create(self, name: str, partitions: int) -> None:
        response = await self._admin.create_topics([NewTopic(self._settings.topic(name), partitions, 1)])
        assert [row[1] for row in response.topic_errors] == [0]

    async def delete(self, *names: str) -> None:
        if names:
            await self._admin.delete_topics([self._settings.topic(name) for name in names])
        for _look in range(500):
            if not set(names) & set(await self.partitions()):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{names} never went")


@pytest.fixture
def settings(kafka: Kafka, topics_prefix: str) -> Settings:
    """Settings with a prefix of their own."""
    return Settings(kafka_bootstrap=kafka.bootstrap, topic_prefix=topics_prefix)


@pytest.fixture
async def broker(settings: Settings) -> AsyncIterator[Broker]:
    """The broker; the test's topics are removed after it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka_bootstrap)
    await admin.start()
    seen = Broker(admin, settings)
    yield seen
    await seen.delete(*await seen.partitions())
    await admin.close()


def actions(done: list[Applied], settings: Settings) -> dict[str, str]:
    return {row.name.removeprefix(settings.topic_prefix): row.action for row in done}


async def test_every_declared_topic_is_made_as_declared_and_applying_again_changes_nothing(
    settings: Settings, broker: Broker
) -> None:
    first = await apply(settings)
    second = await apply(settings)

    assert actions(first, settings) == {spec.name: "created" for spec in declared()}
    assert actions(second, settings) == {spec.name: "unchanged" for spec in declared()}
    assert await broker.partitions() == {spec.name: spec.partitions for spec in declared()}
    for spec in declared():
        assert (await broker.config(spec.name)).items() >= spec.config.items()


async def test_a_setting_that_was_changed_is_put_right_and_named(settings: Settings, broker: Broker) -> None:
    await apply(settings)
    await broker.configure("turns", retention_ms="1000")
    await broker.configure("memory_updated", cleanup_policy="delete")

    done = await apply(settings)

    changed = {row.name: row.detail for row in done if row.action != "unchanged"}
    assert changed == {settings.topic("turns"): "retention.ms", settings.topic("memory_updated"): "cleanup.policy"}
    await broker.shows("turns", retention_ms="604800000")
    await broker.shows("memory_updated", cleanup_policy="compact")
    assert set(actions(await apply(settings), settings).values()) == {"unchanged"}


async def test_a_setting_that_an_operator_added_stays(settings: Settings, broker: Broker) -> None:
    await apply(settings)
    await broker.configure("turns", flush_messages="5000")
    assert set(actions(await apply(settings), settings).values()) == {"unchanged"}

    await broker.configure("turns", flush_messages="5000", retention_ms="1000")
    await apply(settings)

    await broker.shows("turns", retention_ms="604800000")
    assert (await broker.config("turns"))["flush.messages"] == "5000"
    assert (await broker.config("turns"))["message.timestamp.type"] == "LogAppendTime"


async def test_what_is_missing_is_made_beside_what_is_there(settings: Settings, broker: Broker) -> None:
    await apply(settings)
    await broker.delete("feedback")

    made = actions(await apply(settings), settings)

    assert {name for name, action in made.items() if action == "created"} == {"feedback"}


@pytest.mark.parametrize("partitions", [4, 16])
async def test_another_number_of_partitions_is_refused_and_left_alone(
    settings: Settings, broker: Broker, partitions: int
) -> None:
    await broker.create("candidates", partitions)

    with pytest.raises(FatalError, match=rf"candidates has {partitions} partitions, declared are 12.*lose their order"):
        await apply(settings)

    assert (await broker.partitions())["candidates"] == partitions


async def test_a_setting_that_the_broker_refuses_is_an_error_and_not_a_success(
    settings: Settings, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(settings)
    (turns,) = [spec for spec in declared() if spec.name == "turns"]
    wrong = replace(turns, config=turns.config | {"retention.ms": "for ever"})
    monkeypatch.setattr(topics, "declared", lambda: (wrong,))

    with pytest.raises(FatalError, match="turns could not be configured"):
        await apply(settings)

    assert (await broker.config("turns"))["retention.ms"] == "604800000"


async def test_more_copies_than_brokers_is_refused(settings: Settings, broker: Broker) -> None:
    with pytest.raises(FatalError, match="could not be created"):
        await apply(settings, replication_factor=3)
    assert await broker.partitions() == {}


async def test_a_broker_that_is_away_is_transient() -> None:
    with pytest.raises(TransientError, match="the broker does not answer"):
        await apply(Settings(kafka_bootstrap="127.0.0.1:1"))
