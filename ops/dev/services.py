"""Development services: Kafka in KRaft mode from its published jars, Debian's MariaDB, and our own vector server."""

from __future__ import annotations

import getpass
import json
import os
import random
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymysql

from ops.dev.server import DEV, ROOT, Server, ServiceFailed, ServiceUnavailable, accepts, free_port

__all__ = ["JARS", "Kafka", "MariaDb", "ServiceFailed", "ServiceUnavailable", "VectorServer"]

JARS = DEV / "kafka" / "lib"

_CLUSTER = "bWVtcml2ZXItZGV2LTAwMQ"  # 16 bytes in URL-safe base64, as Kafka's Uuid wants; any constant does
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


def _program(name: str) -> str:
    # Debian keeps mariadbd in /usr/sbin, which an ordinary user's PATH may lack.
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")
    if found is None:
        raise ServiceUnavailable(f"{name} is not installed: run ops/dev/install.sh")
    return found


class Kafka(Server):
    """One node, broker and controller, plain text on loopback. It makes no topic by itself, as in production.

    `bootstrap` ("127.0.0.1:port") stays the same over `stop()`/`kill()` and `start()`.
    """

    name = "kafka"

    def __init__(self, home: Path | None = None, *, attached: bool = True, jars: Path = JARS) -> None:
        super().__init__(home, attached=attached)
        self._jars = jars
        ports = _remembered(self.home / "ports.json", ("broker", "controller"))
        self.port, self._controller = ports["broker"], ports["controller"]

    @property
    def bootstrap(self) -> str:
        """Host and port for clients."""
        return f"127.0.0.1:{self.port}"

    @staticmethod
    def check(jars: Path = JARS) -> None:
        """Raises ServiceUnavailable if Java or the jars are missing."""
        _program("java")
        if not any(jars.glob("kafka_*.jar")):
            raise ServiceUnavailable("Kafka's jars are not there: run ops/dev/install.sh")

    def prepare(self) -> None:
        """Writes `server.properties`; formats the storage the first time."""
        self.check(self._jars)
        properties = self.home / "server.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties().items()), encoding="utf-8"
        )
        if not (self.home / "data" / "meta.properties").exists():
            self.run([*self._java("128m"), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)])

    def command(self) -> list[str]:
        """Java with a small heap, running `kafka.Kafka`."""
        return [*self._java("512m"), "kafka.Kafka", str(self.home / "server.properties")]

    def ready(self) -> bool:
        """The broker has left start-up (it accepts connections a little earlier, and then answers with errors)."""
        return "Kafka Server started" in self.output() and accepts(self.port)

    def _java(self, heap: str) -> list[str]:
        # Serial collector and first-tier compiler: a short start and little memory matter more here than throughput.
        flags = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        return [_program("java"), *flags, "-cp", f"{self._jars}/*"]

    def _properties(self) -> dict[str, str | int]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.home / "data"),
            # As in production: a misspelt topic is an error, not a new topic.
            "auto.create.topics.enable": "false",
            "num.partitions": 1,
            "default.replication.factor": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            # After a kill the broker may register again as soon as its former self has timed out.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
        }


class MariaDb(Server):
    """MariaDB with MySQL 8.4's strictness. `create_database()` gives the user `memriver` a database of its own.

    Args:
        options: more of `mariadbd`'s own, such as how large its files may become; others may be set before a `start()`.
    """

    name = "mariadb"
    user = "memriver"

    def __init__(self, home: Path | None = None, *, attached: bool = True, options: Sequence[str] = ()) -> None:
        super().__init__(home, attached=attached)
        self.options = tuple(options)
        self.port = _remembered(self.home / "ports.json", ("mariadb",))["mariadb"]
        self._passwords = _remembered_secrets(self.home / "passwords.json", ("admin", self.user))

    @staticmethod
    def check() -> None:
        """Raises ServiceUnavailable if MariaDB is not installed."""
        _program("mariadbd")
        _program("mariadb-install-db")

    def url(self, database: str) -> str:
        """SQLAlchemy address of a database, user `memriver`."""
        password = self._passwords[self.user]
        return f"mysql+pymysql://{self.user}:{password}@127.0.0.1:{self.port}/{_checked(database)}?charset=utf8mb4"

    def create_database(self, name: str) -> str:
        """Makes the database unless it exists and returns its `url()`."""
        quoted = f"`{_checked(name)}`"
        # In a GRANT `_` and `%` are wildcards of the database's name.
        granted = quoted.replace("_", r"\_")
        self.execute(f"CREATE DATABASE IF NOT EXISTS {quoted} CHARACTER SET utf8mb4")
        self.execute(f"GRANT ALL ON {granted}.* TO '{self.user}'@'127.0.0.1'")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Removes the database if it exists."""
        self.execute(f"DROP DATABASE IF EXISTS `{_checked(name)}`")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs one statement as administrator and returns its rows."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def prepare(self) -> None:
        """Makes the system tables the first time, and the accounts at each start."""
        self.check()
        if not (self.home / "installed").exists():
            # A half-made data folder of an interrupted first time cannot be continued.
            shutil.rmtree(self.home / "data", ignore_errors=True)
            install = [
                "--no-defaults",
                f"--datadir={self.home / 'data'}",
                "--skip-test-db",
                f"--user={getpass.getuser()}",
            ]
            self.run([_program("mariadb-install-db"), *install, f"--auth-root-socket-user={getpass.getuser()}"])
            (self.home / "installed").touch()
        accounts = self.home / "accounts.sql"
        accounts.touch(mode=0o600)
        accounts.write_text(
            f"CREATE OR REPLACE USER 'admin'@'127.0.0.1' IDENTIFIED BY '{self._passwords['admin']}';\n"
            "GRANT ALL ON *.* TO 'admin'@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE USER IF NOT EXISTS '{self.user}'@'127.0.0.1' IDENTIFIED BY '{self._passwords[self.user]}';\n",
            encoding="utf-8",
        )

    def command(self) -> list[str]:
        """`mariadbd`, loopback only, nothing read from the machine's own configuration."""
        return [
            _program("mariadbd"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.home / 'data'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--socket=mariadb.sock",  # relative to the data folder: a full path may exceed a socket's 107 bytes
            f"--pid-file={self.home / 'mariadb.pid'}",
            f"--init-file={self.home / 'accounts.sql'}",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--default-time-zone=+00:00",
            # What MySQL 8.4 refuses by default is refused here too.
            "--sql-mode=ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
            "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
            "--max-allowed-packet=64M",
            "--innodb-log-file-size=64M",
            *self.options,
        ]

    def ready(self) -> bool:
        """The administrator's account, made by the init file, can log in."""
        if not accepts(self.port):
            return False
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _connect(self) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="admin", password=self._passwords["admin"], autocommit=True
        )


def _checked(database: str) -> str:
    if not _NAME.fullmatch(database):
        raise ValueError("a database name has 1 to 64 letters, digits and underscores")
    return database


class VectorServer(Server):
    """`memriver vectors serve` on a folder and a port that stay the same over a kill."""

    name = "vectors"

    def __init__(self, home: Path | None = None, *, attached: bool = True) -> None:
        super().__init__(home, attached=attached)
        self.port = _remembered(self.home / "ports.json", ("vectors",))["vectors"]

    @property
    def url(self) -> str:
        """As MEMRIVER_QDRANT_URL takes it."""
        return f"edge+http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """The command makes what it needs."""

    def command(self) -> list[str]:
        """As an operator starts it, but from this tree."""
        arguments = ["vectors", "serve", "--data", str(self.home / "data"), "--port", str(self.port)]
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from streams.cli import main; main()"
        return [sys.executable, "-c", program, *arguments]

    def ready(self) -> bool:
        """It accepts connections."""
        return accepts(self.port)


def _remembered(file: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Ports by name, chosen the first time and kept in `file`, so that a folder's server comes back where it was."""
    if not file.exists():
        chooser = random.Random()
        file.write_text(json.dumps({name: free_port(chooser) for name in names}), encoding="utf-8")
    ports: dict[str, int] = json.loads(file.read_text(encoding="utf-8"))
    return ports


def _remembered_secrets(file: Path, names: tuple[str, ...]) -> dict[str, str]:
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(json.dumps({name: secrets.token_hex(12) for name in names}), encoding="utf-8")
    passwords: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return passwords
