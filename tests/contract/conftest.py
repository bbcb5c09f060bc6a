"""Contract suites: the same truth on every backend, migrated once and empty at the start of each test."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ops.dev.services import MariaDb
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from sinks.truth.tables import metadata


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file to copy."""
    path = tmp_path_factory.mktemp("truth") / "template.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def mariadb_schema(mariadb: MariaDb) -> Iterator[str]:
    """Address of a migrated MariaDB database that the tests of a session share."""
    name = f"memriver_{uuid.uuid4().hex[:12]}"
    url = mariadb.create_database(name)
    upgrade(url)
    yield url
    mariadb.drop_database(name)


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Address of a migrated, empty SQLite database."""
    path = tmp_path / "truth.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def mariadb_url(mariadb_schema: str) -> str:
    """Address of the migrated MariaDB database, emptied."""
    engine = make_engine(mariadb_schema, pool_size=1)
    try:
        with engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())
    finally:
        engine.dispose()
    return mariadb_schema


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.services)])
def truth(request: pytest.FixtureRequest) -> Iterator[Truth]:
    """An empty truth; the test runs once on each backend."""
    store = Truth(make_engine(request.getfixturevalue(f"{request.param}_url")))
    yield store
    store.close()


@pytest.fixture
def sqlite_truth(sqlite_url: str) -> Iterator[Truth]:
    """An empty truth on SQLite."""
    store = Truth(make_engine(sqlite_url))
    yield store
    store.close()


@pytest.fixture
def mariadb_truth(mariadb_url: str) -> Iterator[Truth]:
    """An empty truth on MariaDB."""
    store = Truth(make_engine(mariadb_url))
    yield store
    store.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What leaves for the server, by its first words."""
    left: list[str] = []
    send = pymysql.connections.Connection._execute_command

    def heard(self: Any, command: int, sql: Any) -> None:
        left.append((sql if isinstance(sql, str) else bytes(sql).decode("utf-8", "replace"))[:20])
        send(self, command, sql)

    monkeypatch.setattr(pymysql.connections.Connection, "_execute_command", heard)
    yield left
