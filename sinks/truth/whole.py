"""Truth, whole: every table read in one snapshot, and written into an empty database; for backup and restore.

Rows are JSON arrays in the order of a table's columns: times as ISO 8601 in UTC, bytes as base64, everything else as it is.
So a backup of one backend can be restored into another.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, LargeBinary, Table, func, insert, inspect, select, update

from sinks.truth.portable import pages
from sinks.truth.tables import Utc, metadata

_BATCH = 500


def table_names() -> list[str]:
    """Every table of this code's schema."""
    return [str(table.name) for table in metadata.sorted_tables]


def columns_of(name: str) -> list[str]:
    """A table's columns, in order."""
    return [str(column.name) for column in metadata.tables[name].columns]


def sizes(connection: Connection) -> dict[str, int]:
    """Rows of each table."""
    return {
        str(table.name): int(connection.execute(select(func.count()).select_from(table)).scalar() or 0)
        for table in metadata.sorted_tables
    }


def filled(connection: Connection) -> list[str]:
    """Tables in the database that hold a row, also those that this code does not know; a schema's own revision is none."""
    found = []
    for name in sorted(inspect(connection).get_table_names()):
        table = metadata.tables.get(name)
        if table is None:
            if name != "alembic_version":
                found.append(name)
        elif connection.execute(select(*table.primary_key.columns).limit(1)).first() is not None:
            found.append(name)
    return found


def rows_of(connection: Connection, name: str) -> Iterator[list[Any]]:
    """A table's rows by primary key, a page at a time."""
    table = metadata.tables[name]
    columns = list(table.columns)
    for row in pages(connection, select(table), *table.primary_key.columns):
        yield [_out(value) for value in row[: len(columns)]]


def write_rows(connection: Connection, name: str, rows: Iterator[Sequence[Any]]) -> int:
    """Insert rows that `rows_of` gave; returns how many.

    Raises:
        ValueError: a row does not fit its table.
    """
    table = metadata.tables[name]
    columns = list(table.columns)
    written, batch = 0, list[dict[str, Any]]()
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row of {name} has {len(row)} values, the table {len(columns)} columns")
        batch.append({column.name: _in(column, value) for column, value in zip(columns, row, strict=True)})
        if len(batch) == _BATCH:
            written += _insert(connection, table, batch)
            batch = []
    return written + _insert(connection, table, batch)


def _insert(connection: Connection, table: Table, batch: list[dict[str, Any]]) -> int:
    if batch:
        connection.execute(insert(table), batch)
    return len(batch)


def _out(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _in(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, Utc):
        return datetime.fromisoformat(value)
    return base64.b64decode(value, validate=True) if isinstance(column.type, LargeBinary) else value


def vectors_are_gone(connection: Connection) -> list[str]:
    """What the restored rows say of collections is of another day: the live one is to be repaired by whoever owns the
    vectors, a half-built or former one to be dropped. Returns the names of those that are to be repaired.
    """
    table = metadata.tables["collections"]
    free: dict[str, Any] = {"holder": None, "held_until": None}
    beside = table.c.status.not_in(["live", "dropped"])
    connection.execute(update(table).where(beside).values(status="dropping", task="drop", **free))
    live = (table.c.status == "live") & table.c.built_at.is_not(None)
    connection.execute(update(table).where(live).values(task="repair", done=0, total=0, error=None, **free))
    return list(connection.execute(select(table.c.name).where(live)).scalars())
