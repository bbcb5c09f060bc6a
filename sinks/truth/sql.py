"""Truth, what its modules share: rows written whether or not they are there, and rows found by many keys.

A statement that runs with every message group is made once, when its module is loaded: what SQLAlchemy does to make one
anew, and to find out that it has compiled it before, is more than what it does to run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ColumnElement, Connection, Insert, Select, Table, and_, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from sinks.truth.together import Question, Questions, write

T = TypeVar("T")

KEYS: BindParameter[Any] = bindparam("keys", expanding=True)
"""Stands in a statement for the keys of `by_keys`."""

IN_LIMIT = 900
"""Values in one IN list: SQLite's default bound is 999 variables in older builds."""


class Replace(Insert):
    """A whole row, put in place of the one with the same primary key."""

    inherit_cache = True


def _insert(compiler: Any, element: Replace, kw: dict[str, Any]) -> str:
    return str(compiler.visit_insert(element, **kw))


@compiles(Replace, "sqlite")
def _sqlite(element: Replace, compiler: SQLCompiler, **kw: Any) -> str:
    return _insert(compiler, element, kw).replace("INSERT INTO", "INSERT OR REPLACE INTO", 1)


@compiles(Replace, "mysql", "mariadb")
def _mysql(element: Replace, compiler: SQLCompiler, **kw: Any) -> str:
    # Not ON DUPLICATE KEY UPDATE: the driver sends many rows in one statement for REPLACE, on MySQL and MariaDB alike.
    return _insert(compiler, element, kw).replace("INSERT INTO", "REPLACE INTO", 1)


@cache
def _insert_into(table: Table) -> Insert:
    return table.insert()


@cache
def _replace_in(table: Table) -> Replace:
    return Replace(table)


def insert_rows(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """All rows or an IntegrityError, here or where they are sent (`together`); nothing for an empty list."""
    if rows:
        write(connection, _insert_into(table), table, rows)


def replace_rows(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Each row must be whole: what it leaves out is lost."""
    if rows:
        write(connection, _replace_in(table), table, rows)


def exactly(column: ColumnElement[str], value: str) -> ColumnElement[bool]:
    """Equality of an id that somebody else chose. `=` ignores trailing spaces on MySQL, LIKE ignores case on SQLite."""
    pattern = value.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return and_(column == value, column.like(pattern, escape="!"))


def chunks(values: Iterable[T], size: int = IN_LIMIT) -> Iterator[list[T]]:
    """Lists of at most `size`, in order."""
    chunk: list[T] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def by_keys(select: Select[Any], keys: Iterable[str]) -> Questions:
    """`select`, which has `KEYS` in it, for each chunk of these keys, in their order and each once."""
    for chunk in chunks(sorted(set(keys))):
        yield Question(select, {"keys": chunk})
