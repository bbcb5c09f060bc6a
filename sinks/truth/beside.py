"""Truth, beside: a second schema next to the live one, and the exchange of what is derived from turns between the two."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Table, make_url, text
from sqlalchemy.engine import URL

from processors.exceptions import FatalError, TransientError
from schemas import digest
from sinks.truth import tables
from sinks.truth.engine import Truth, make_engine
from sinks.truth.migrate import current, head, upgrade

DERIVED: tuple[Table, ...] = (
    tables.owners,
    tables.conversations,
    tables.turns,
    tables.batches,
    tables.model_replies,
    tables.claims,
    tables.retractions,
    tables.cells,
    tables.memories,
    tables.memory_versions,
    tables.decisions,
    tables.reviews,
    # Events that must leave when the tables come, and with them.
    tables.outbox,
    tables.replay_mark,
)
"""What a replay makes anew. Every other table stays where it is: keys, grants, suppressions, feedback, checkpoints, logs."""

_MAX_NAME = 64  # of a database, on MySQL and MariaDB
_LOCK_SECONDS = 30


class Beside:
    """The schema beside a live one: a database of its own on MySQL and MariaDB, a file of its own on SQLite."""

    def __init__(self, live_url: str) -> None:
        """Raises FatalError for a database that nothing can stand beside (SQLite in memory)."""
        self._live = make_url(live_url)
        self._place = _beside(self._live)
        self.url = self._place.render_as_string(hide_password=False)
        self.name = str(self._place.database)

    @property
    def _file(self) -> Path:
        return Path(str(self._place.database))

    @property
    def _is_sqlite(self) -> bool:
        return self._live.get_backend_name() == "sqlite"

    def exists(self) -> bool:
        """Whether it is there and ours."""
        if self._is_sqlite:
            return self._file.exists() and current(self.url) is not None
        with self._server() as connection:
            return bool(self._tables(connection))

    def create(self) -> None:
        """Create what is missing and bring it to the newest revision.

        Raises:
            FatalError: the account may not create a database, or one of that name is somebody else's.
        """
        if not self._is_sqlite:
            with self._server() as connection:
                if self._tables(connection) is None:
                    raise FatalError(f"the database {self.name} is there and holds no replay; it is left alone")
                statement = f"CREATE DATABASE IF NOT EXISTS `{self.name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
                try:
                    connection.exec_driver_sql(statement)
                except Exception as error:
                    raise FatalError(
                        f"the account may not create the database {self.name}; an administrator can: {statement}"
                    ) from error
        upgrade(self.url)

    def _tables(self, connection: Connection) -> set[str] | None:
        """What is in it; None if somebody else's tables are. One whose migration was killed half-way is ours."""
        query = text("SELECT table_name FROM information_schema.tables WHERE table_schema = :name")
        found = {str(name) for name in connection.execute(query, {"name": self.name}).scalars()}
        return found if found <= {*tables.metadata.tables, "alembic_version"} else None

    def drop(self) -> None:
        """Away with it; it must be ours."""
        if self._is_sqlite:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._file}{suffix}").unlink(missing_ok=True)
            return
        with self._server() as connection:
            connection.exec_driver_sql(f"DROP DATABASE `{self.name}`")

    def open(self) -> Truth:
        """Raises FatalError when it is at another revision than the code."""
        if (found := current(self.url)) != head():
            raise FatalError(
                f"the schema beside is at revision {found or 'none'}, this code needs {head()}: "
                "`memriver replay drop`, and start again"
            )
        return Truth(make_engine(self.url))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While this is held nobody else replays, switches or drops; a death lets go of it.

        Raises:
            FatalError: somebody else holds it.
        """
        busy = "another `memriver replay` is at work on this database; only one may be"
        if self._is_sqlite:
            # A file of its own: a transaction in either database would keep the workers waiting.
            lock = sqlite3.connect(f"{self._file}.lock", timeout=0, isolation_level=None)
            try:
                try:
                    lock.execute("BEGIN EXCLUSIVE")
                except sqlite3.OperationalError as error:
                    raise FatalError(busy) from error
                yield
            finally:
                lock.close()
            return
        with self._server() as connection:
            # Idle for as long as a replay runs, which may be longer than the server's patience.
            connection.exec_driver_sql("SET SESSION wait_timeout = 2147483")
            name = {"name": f"memriver_replay_{digest(str(self._live.database))}"}
            if connection.execute(text("SELECT GET_LOCK(:name, 0)"), name).scalar() != 1:
                raise FatalError(busy)
            yield

    def exchange(self, live: Truth) -> None:
        """Swap the derived tables of the two schemas, at once for every reader; doing it again swaps them back.

        MySQL and MariaDB: one RENAME TABLE, which either happens or does not. SQLite: one transaction over both files.

        Raises:
            TransientError: somebody reads or writes for too long; nothing has changed.
        """
        if self._is_sqlite:
            self._exchange_rows()
            return
        here, there = f"`{self._live.database}`", f"`{self.name}`"
        steps = [
            step
            for table in DERIVED
            for step in (
                f"{here}.`{table.name}` TO {there}.`{table.name}__live`",
                f"{there}.`{table.name}` TO {here}.`{table.name}`",
                f"{there}.`{table.name}__live` TO {there}.`{table.name}`",
            )
        ]
        with live.begin() as connection:
            # Better to give up than to have every query queue behind us.
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
            try:
                connection.exec_driver_sql(f"RENAME TABLE {', '.join(steps)}")
            finally:
                connection.exec_driver_sql("SET SESSION lock_wait_timeout = DEFAULT")

    def _exchange_rows(self) -> None:
        """Under WAL each file's part is atomic, the two together only while no power fails in the last instant."""
        live = sqlite3.connect(str(self._live.database), timeout=_LOCK_SECONDS, isolation_level=None)
        try:
            live.execute("ATTACH DATABASE ? AS beside", (str(self._file),))
            live.execute("BEGIN IMMEDIATE")
            for table in DERIVED:
                columns = ", ".join(f'"{column.name}"' for column in table.columns)
                live.execute(f'CREATE TEMP TABLE held AS SELECT {columns} FROM main."{table.name}"')
                live.execute(f'DELETE FROM main."{table.name}"')
                live.execute(f'INSERT INTO main."{table.name}" ({columns}) SELECT {columns} FROM beside."{table.name}"')
                live.execute(f'DELETE FROM beside."{table.name}"')
                live.execute(f'INSERT INTO beside."{table.name}" ({columns}) SELECT {columns} FROM temp.held')
                live.execute("DROP TABLE temp.held")
            live.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise TransientError(f"database away or busy ({error})") from error
        finally:
            live.close()  # what was not committed is rolled back

    @contextmanager
    def _server(self) -> Iterator[Connection]:
        truth = Truth(make_engine(self._live.render_as_string(hide_password=False), pool_size=1))
        try:
            with truth.reading() as connection:
                yield connection
        finally:
            truth.close()


def _beside(live: URL) -> URL:
    name = live.database or ""
    if live.get_backend_name() != "sqlite":
        if len(name) + len("_replay") > _MAX_NAME:
            raise FatalError(f"the name of the database is too long for one beside it ({_MAX_NAME} characters)")
        return live.set(database=f"{name}_replay")
    if name in ("", ":memory:"):
        raise FatalError("a database in memory cannot be replayed into; use a file")
    path = Path(name)
    return live.set(database=str(path.with_name(f"{path.stem}-replay{path.suffix}")))
