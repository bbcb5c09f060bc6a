"""Truth, the door: an engine per backend, one transaction per message group, retries for what a retry can cure."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tenacity
from sqlalchemy import Connection, Engine, create_engine, delete, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InvalidatePoolError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from processors.exceptions import ConflictError, FatalError, Outage, TransientError
from sinks import outages
from sinks.truth import together
from sinks.truth.tables import inbox

R = TypeVar("R")

_POOL_SECONDS = 10
"""Waiting for a connection of our own pool: longer, and it is not a moment's crowd but an outage with a name."""
_RESTED_SECONDS = 1.0
"""A connection that was not used for so long is asked whether it still stands. A busy one is not: that would be a question
before every transaction, and one that breaks in the middle is waited out anyhow."""
_RECYCLE_SECONDS = 280  # below the 300 s after which many MySQL proxies drop an idle connection


def make_engine(url: str, *, pool_size: int = 8, create: bool = False) -> Engine:
    """An engine for `mysql+pymysql://…`, `mariadb+pymysql://…` or `sqlite:///path`.

    `create`: an SQLite file that is not there is made. Without it connecting is a FatalError: who only wants to look, perhaps
    in the wrong directory, leaves no empty database behind.

    Raises:
        FatalError: another kind of address.
    """
    if url.startswith("sqlite"):
        engine = create_engine(
            url,
            connect_args={"check_same_thread": False, "timeout": 30},
            pool_size=pool_size,
            pool_timeout=_POOL_SECONDS,
            hide_parameters=True,
        )
        if not create:
            event.listen(engine, "do_connect", _refuse_to_create)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
        return engine
    if not url.startswith(("mysql+pymysql://", "mariadb+pymysql://")):
        # Not the address itself: it may hold a password.
        raise FatalError("the database address must begin with sqlite:///, mysql+pymysql:// or mariadb+pymysql://")
    engine = create_engine(
        url,
        pool_size=pool_size,
        pool_timeout=_POOL_SECONDS,
        hide_parameters=True,
        max_overflow=4,
        pool_recycle=_RECYCLE_SECONDS,
        isolation_level="READ COMMITTED",
        connect_args={"charset": "utf8mb4", "connect_timeout": 5, "read_timeout": 60, "write_timeout": 60},
    )
    _ask_the_rested(engine)
    together.listen(engine)
    return engine


def _ask_the_rested(engine: Engine) -> None:
    """`pool_pre_ping`, but only for a connection that has rested."""

    def given_back(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["rests_since"] = time.monotonic()

    def taken(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
        since = record.info.get("rests_since")
        if since is not None and time.monotonic() - since >= _RESTED_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except Exception as error:  # whatever it says: this connection and those of its age are of no use
                raise InvalidatePoolError from error

    event.listen(engine, "checkin", given_back)
    event.listen(engine, "checkout", taken)


def _refuse_to_create(_dialect: Any, _record: Any, arguments: list[Any], _options: dict[str, Any]) -> None:
    # A directory that is not there is one that is away, and SQLite says so itself.
    if not file_is_there(str(arguments[0])) and Path(arguments[0]).parent.is_dir():
        raise FatalError(f"there is no database {Path(arguments[0]).name} here: run `memriver db upgrade` to make it")


def file_is_there(database: str | None) -> bool:
    """Whether the SQLite database of this name exists; one in memory does."""
    return not database or database.startswith((":memory:", "file:")) or Path(database).exists()


def _prepare_sqlite(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves; the driver's own guess takes the write lock too late
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.execute("PRAGMA foreign_keys=ON")
    # What is deleted is overwritten with zeros, not only forgotten: an erasure means the bytes.
    cursor.execute("PRAGMA secure_delete=ON")
    cursor.close()


def _begin_immediate(connection: Connection) -> None:
    # A read that turns into a write fails at once under WAL; taking the write lock first makes it wait instead.
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get("read_only") else "BEGIN IMMEDIATE")


def translate(error: StatementError) -> Exception:
    """The exception tree's word for a driver's error; the code only, since a statement may hold personal text."""
    original: Any = error.orig
    if not isinstance(error, DBAPIError):
        # A value was refused before the driver saw it (a naive time): that is what to say.
        return original if isinstance(original, Exception) else FatalError("a statement could not be built")
    code = original.args[0] if original is not None and original.args else None
    if isinstance(error, IntegrityError):
        return ConflictError(f"integrity ({code if isinstance(code, int) else type(original).__name__})")
    outage = outages.sqlite(original) or outages.database(code, str(original))
    if outage is None and (error.connection_invalidated or isinstance(error, InterfaceError)):
        outage = Outage.AWAY
    if outage is not None:
        name = getattr(original, "sqlite_errorname", code)
        return TransientError(f"database {outage.replace('_', ' ')} ({name})", part="database", outage=outage)
    detail = f"{type(original).__name__} {code}" if isinstance(code, int) else type(original).__name__
    return FatalError(f"the database refused a statement ({detail})")


@contextmanager
def translated() -> Iterator[None]:
    """A driver's errors leave as those of the exception tree; see `Truth.begin`."""
    try:
        yield
    except StatementError as error:
        # The frames say where it was; the driver's own words would say what was in the row.
        raise translate(error).with_traceback(error.__traceback__) from None
    except PoolTimeout:
        raise TransientError(
            "no database connection became free", part="database", outage=Outage.NO_CONNECTION
        ) from None


class Truth:
    """The relational store. Methods block; the streams call them in threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction: commits on a clean exit, rolls back otherwise.

        Raises:
            TransientError: deadlock, lock time-out, server away: the same work may succeed later.
            ConflictError: a unique key was taken meanwhile: read again.
            FatalError: the database refuses the statement itself.
        """
        with translated(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent read that takes no write lock."""
        with translated(), self.engine.connect().execution_options(read_only=True) as connection:
            yield connection

    def run(self, work: Callable[[Connection], R], *, attempts: int = 6) -> R:
        """`work` in one transaction, again from the start on a conflict or a deadlock, with jittered backoff.

        `work` must have no effect outside the transaction. The last error is raised when the attempts are used up.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((TransientError, ConflictError)),
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            reraise=True,
        )
        for attempt in retrying:
            with attempt, self.begin() as connection:
                result = work(connection)
        return result

    def ping(self) -> None:
        """Raises TransientError when the database does not answer."""
        with self.reading() as connection:
            connection.execute(text("SELECT 1"))

    def probe(self) -> None:
        """Whether it can be written to: takes a transaction, changes no row.

        Raises:
            TransientError: it cannot, and what is the matter.
        """
        with self.begin() as connection:
            connection.execute(delete(inbox).where(inbox.c.stage == "", inbox.c.message_id == ""))

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()
