"""Truth, schema migrations: Alembic run from code, so that an installed package needs no files beside it."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import make_url

from processors.exceptions import FatalError
from sinks.truth.engine import Truth, file_is_there, make_engine

_SCRIPTS = Path(__file__).parent / "migrations"


def configuration(url: str) -> Config:
    """Alembic's configuration for this database, for `alembic.command`."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["url"] = url
    return config


def upgrade(url: str, revision: str = "head") -> str:
    """Bring the schema up to `revision`; returns what it is at now."""
    command.upgrade(configuration(url), revision)
    return current(url) or ""


def current(url: str) -> str | None:
    """The revision that the database is at, None for an empty one, or for a file that is not there."""
    address = make_url(url)
    if address.get_backend_name() == "sqlite" and not file_is_there(address.database):
        return None
    truth = Truth(make_engine(url, pool_size=1))
    try:
        with truth.reading() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        truth.close()


def head() -> str:
    """The newest revision that this code knows."""
    return ScriptDirectory(str(_SCRIPTS)).get_current_head() or ""


def check(url: str) -> None:
    """Raises FatalError, naming the command to run, unless the database is at the newest revision."""
    found = current(url)
    if found != head():
        raise FatalError(
            f"the database is at revision {found or 'none'}, this code needs {head()}: run `memriver db upgrade`"
        )
