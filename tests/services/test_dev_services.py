"""Service tests: the development services are the real thing, survive a crash, and refuse what production refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ops.dev.server import Server, ServiceFailed
from ops.dev.services import Kafka, MariaDb


async def _produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, key=b"conversation-1")


async def _consume(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        values = [(await consumer.getone()).value for _ in range(count)]
        await consumer.commit()
    return values


async def test_what_is_produced_is_consumed_in_order_by_a_group(
    kafka: Kafka, topics_prefix: str, create_topics: Callable[..., None]
) -> None:
    topic = f"{topics_prefix}turns"
    create_topics(topic)
    sent = [f"第 {number} 轮".encode() for number in range(50)]

    await _produce(kafka.bootstrap, topic, sent)

    assert await _consume(kafka.bootstrap, topic, f"{topics_prefix}group", len(sent)) == sent


async def test_acknowledged_messages_and_committed_offsets_survive_a_killed_broker(
    kafka: Kafka, topics_prefix: str, create_topics: Callable[..., None]
) -> None:
    topic, group = f"{topics_prefix}turns", f"{topics_prefix}group"
    create_topics(topic, partitions=1)
    await _produce(kafka.bootstrap, topic, [b"before-1", b"before-2"])
    assert await _consume(kafka.bootstrap, topic, group, 1) == [b"before-1"]
    bootstrap = kafka.bootstrap

    kafka.kill()
    kafka.start()

    assert kafka.bootstrap == bootstrap
    await _produce(kafka.bootstrap, topic, [b"after"])
    assert await _consume(kafka.bootstrap, topic, group, 2) == [b"before-2", b"after"]


def test_a_misspelt_topic_is_not_created_by_asking_for_it(kafka: Kafka, topics_prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    described = admin.list_topics(f"{topics_prefix}trunks", timeout=30).topics[f"{topics_prefix}trunks"]

    assert described.error is not None
    assert f"{topics_prefix}trunks" not in admin.list_topics(timeout=30).topics


def test_topics_keep_their_partitions_and_configuration(
    kafka: Kafka, topics_prefix: str, create_topics: Callable[..., None]
) -> None:
    topic = f"{topics_prefix}memory_updated"
    create_topics(topic, partitions=12, config={"cleanup.policy": "compact"})

    assert (
        len(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(topic, timeout=30).topics[topic].partitions)
        == 12
    )
    with pytest.raises(KafkaException, match="exist"):
        create_topics(topic)


async def test_an_empty_topic_starts_at_offset_zero(
    kafka: Kafka, topics_prefix: str, create_topics: Callable[..., None]
) -> None:
    topic = f"{topics_prefix}turns"
    create_topics(topic, partitions=1)
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        assert await consumer.end_offsets([partition]) == {partition: 0}


def test_mariadb_says_its_version_through_the_url_of_a_fresh_database(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        assert "MariaDB" in str(connection.execute(sa.text("SELECT VERSION()")).scalar_one())
        assert connection.execute(sa.text("SHOW TABLES")).all() == []
    engine.dispose()


def test_committed_rows_survive_a_killed_mariadb_with_their_chinese_text(mariadb: MariaDb, database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE note (body VARCHAR(40))"))
        connection.execute(sa.text("INSERT INTO note VALUES ('我对花生过敏 🥜')"))
    engine.dispose()

    mariadb.kill()
    mariadb.start()

    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT body FROM note")).scalar_one() == "我对花生过敏 🥜"
    engine.dispose()


def test_a_value_that_does_not_fit_is_an_error_as_in_mysql(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE note (body VARCHAR(2))"))
        with pytest.raises(sa.exc.DataError, match="Data too long"):
            connection.execute(sa.text("INSERT INTO note VALUES ('abc')"))
    engine.dispose()


def test_the_application_s_account_sees_only_the_databases_it_was_given(mariadb: MariaDb, database_url: str) -> None:
    mariadb.execute("CREATE DATABASE IF NOT EXISTS somebody_else")
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        visible = set(connection.execute(sa.text("SHOW DATABASES")).scalars())
        assert sa.make_url(database_url).database in visible
        assert not visible & {"mysql", "somebody_else"}
    engine.dispose()
    mariadb.drop_database("somebody_else")


@pytest.mark.parametrize("name", ["", "a`b", "x; DROP DATABASE mysql", "名"])
def test_a_database_name_that_needs_quoting_is_refused(mariadb: MariaDb, name: str) -> None:
    with pytest.raises(ValueError, match="database name"):
        mariadb.create_database(name)


class _Broken(Server):
    name = "broken"

    def prepare(self) -> None:
        pass

    def command(self) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no such cluster')"]

    def ready(self) -> bool:
        return False


def test_a_server_that_ends_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed, match="no such cluster"):
        _Broken(tmp_path).start()


_STARTS_AND_WAITS = """
import sys
from pathlib import Path
from ops.dev.server import Server

class Sleeper(Server):
    name = "sleeper"
    def prepare(self): pass
    def command(self): return [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    def ready(self): return "up" in self.output()

print(Sleeper(Path(sys.argv[1])).start().pid, flush=True)
input()
"""


def test_a_server_ends_with_the_process_that_started_it_even_by_kill(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTS_AND_WAITS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        server = psutil.Process(int(starter.stdout.readline()))
        starter.kill()

    _, alive = psutil.wait_procs([server], timeout=30)
    assert alive == []
