"""Migrations: an empty database becomes exactly what the code declares, on every backend, and an old one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine

from processors.exceptions import FatalError
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import check, configuration, current, head, upgrade
from sinks.truth.tables import metadata


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.services)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database without a table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """The database, brought up to date."""
    upgrade(empty_url)
    engine = make_engine(empty_url)
    yield engine
    engine.dispose()


def tables(connection: Connection) -> set[str]:
    return set(sa.inspect(connection).get_table_names()) - {"alembic_version"}


def test_an_empty_database_becomes_what_the_code_declares(engine: Engine) -> None:
    with engine.connect() as connection:
        assert tables(connection) == set(metadata.tables)
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        # Booleans are TINYINT(1) on MySQL, and alembic knows; nothing else differs and nothing has to be let through.
        assert compare_metadata(context, metadata) == []


def test_upgrading_again_changes_nothing_and_says_where_it_is(empty_url: str) -> None:
    assert current(empty_url) is None
    assert upgrade(empty_url) == head()
    truth = Truth(make_engine(empty_url))
    with truth.begin() as connection:
        row: dict[str, Any] = {"owner_key": "k", "tenant": "t", "owner_kind": "user", "owner": "ann", "seq": 4}
        connection.execute(metadata.tables["owners"].insert(), row)
    assert upgrade(empty_url) == head()
    with truth.reading() as connection:
        assert connection.execute(sa.select(metadata.tables["owners"].c.seq)).scalars().all() == [4]
    truth.close()
    assert current(empty_url) == head()


def test_a_database_at_the_newest_revision_passes_the_check(empty_url: str) -> None:
    upgrade(empty_url)
    check(empty_url)


def test_an_empty_database_is_refused_with_the_command_to_run(empty_url: str) -> None:
    with pytest.raises(FatalError, match=r"at revision none.*`memriver db upgrade`"):
        check(empty_url)


def test_a_database_at_another_revision_is_refused_with_both_revisions(empty_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'zzzz'"))
    with pytest.raises(FatalError, match=f"at revision zzzz, this code needs {head()}: run `memriver db upgrade`"):
        check(empty_url)


@pytest.mark.services
def test_a_refusal_does_not_tell_the_databases_password(database_url: str) -> None:
    password = sa.make_url(database_url).password
    assert password
    with pytest.raises(FatalError) as caught:
        check(database_url)
    assert str(password) not in str(caught.value)


@pytest.mark.services
def test_every_text_column_compares_bytes_and_holds_every_character(database_url: str) -> None:
    upgrade(database_url)
    engine = make_engine(database_url)
    query = sa.text(
        "SELECT DISTINCT collation_name FROM information_schema.columns"
        " WHERE table_schema = DATABASE() AND collation_name IS NOT NULL AND table_name <> 'alembic_version'"
    )
    with engine.connect() as connection:
        assert connection.execute(query).scalars().all() == ["utf8mb4_bin"]
    engine.dispose()


@pytest.mark.services
def test_every_moment_has_microseconds(database_url: str) -> None:
    upgrade(database_url)
    engine = make_engine(database_url)
    query = sa.text(
        "SELECT DISTINCT column_type FROM information_schema.columns"
        " WHERE table_schema = DATABASE() AND data_type IN ('datetime', 'timestamp')"
    )
    with engine.connect() as connection:
        assert connection.execute(query).scalars().all() == ["datetime(6)"]
    engine.dispose()


def test_the_first_schema_can_be_taken_back(empty_url: str, engine: Engine) -> None:
    command.downgrade(configuration(empty_url), "base")
    with engine.connect() as connection:
        assert tables(connection) == set()
    assert current(empty_url) is None
    assert upgrade(empty_url) == head()
