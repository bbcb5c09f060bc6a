"""Truth, the time: what cannot be undone is done only when the worker's clock and the database's agree that it is due."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, text

_SECONDS = {
    "sqlite": text("SELECT CAST(strftime('%s', 'now') AS INTEGER)"),
    "mysql": text("SELECT UNIX_TIMESTAMP()"),
    "mariadb": text("SELECT UNIX_TIMESTAMP()"),
}


def database_time(connection: Connection) -> datetime:
    """The server's clock, in whole seconds, UTC."""
    seconds = connection.execute(_SECONDS[connection.dialect.name]).scalar_one()
    return datetime.fromtimestamp(int(seconds), UTC)


def not_ahead(connection: Connection, now: datetime) -> datetime:
    """The earlier of `now` and the database's clock: a worker whose clock has jumped ahead ends nothing early."""
    return min(now, database_time(connection))
