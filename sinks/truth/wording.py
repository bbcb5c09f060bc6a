"""Truth, wording: what runs with every message group is put into words without SQLAlchemy's machinery for one execution.

SQLAlchemy compiles a statement once. What it then does each time to run it (find the compiled form, sort its parameters
into it, make a context, a cursor and a result) takes several times as long as writing the few values down; a resolve
group has twenty statements. The words are the same, letter by letter: compiled by SQLAlchemy, each value through its
column's type and then through the driver's escaping.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ClauseElement, Dialect, Insert, Select, Table
from sqlalchemy.types import TypeEngine

Literal = Callable[[Any], str]
"""The driver's word for a value, quotes included."""
Rows = Sequence[tuple[Any, ...]]
"""As the driver gives them."""
_Bind = Callable[[Any], Any] | None

_EXPANDING = re.compile(r"\(__\[POSTCOMPILE_(\w+)\]\)")


@dataclass(frozen=True, slots=True)
class _Wording:
    """`text` has `%(name)s` for each value and, for a list, for all of it; `fixed` are values that the statement itself has."""

    text: str
    binds: Mapping[str, _Bind]
    lists: frozenset[str]
    fixed: Mapping[str, Any]


def statement(made: ClauseElement, values: Mapping[str, Any], dialect: Dialect, literal: Literal) -> str:
    """A statement that is made once, as `Connection.execute` would send it with these values.

    Raises:
        KeyError: a value is missing.
        ValueError: a list has no values; `sql.by_keys` asks nothing then.
    """
    wording = _worded(made, dialect)
    given = {**wording.fixed, **values}
    known: dict[str, str] = {}
    for name, bind in wording.binds.items():
        value = given[name]
        if name in wording.lists:
            if not value:
                raise ValueError("a list without values cannot be put into words")
            known[name] = ", ".join([literal(item if bind is None else bind(item)) for item in value])
        else:
            known[name] = literal(value if bind is None else bind(value))
    return wording.text % known


def answer(select: Select[Any], found: Rows, dialect: Dialect) -> Rows:
    """The rows of this select with each value as `Connection.execute` would give it."""
    processors = _reading(select, dialect)
    if not any(processors):
        return found
    return [
        tuple([value if read is None else read(value) for read, value in zip(processors, row, strict=True)])
        for row in found
    ]


def rows(
    insert: Insert, table: Table, given: Sequence[Mapping[str, Any]], dialect: Dialect, literal: Literal, *, most: int
) -> Iterator[str]:
    """Statements that write these rows, which all have the keys of the first, in order; each of some `most` characters.

    Raises:
        KeyError: a row lacks a column that the first one has.
    """
    head, columns = _writing(insert, table, tuple(given[0]), dialect)
    parts: list[str] = []
    size = 0
    for row in given:
        words = [literal(row[name] if bind is None else bind(row[name])) for name, bind in columns]
        part = f"({', '.join(words)})"
        if parts and size + len(part) > most:
            yield head + ",".join(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    yield head + ",".join(parts)


@lru_cache(maxsize=256)
def _worded(made: ClauseElement, dialect: Dialect) -> _Wording:
    # Statements are compared by identity: those of a module are made once, any other falls out of the cache again.
    compiled: Any = made.compile(dialect=dialect)
    names = {name: parameter for parameter, name in compiled.bind_names.items()}
    lists = frozenset(name for name, parameter in names.items() if parameter.expanding)
    return _Wording(
        text=_EXPANDING.sub(r"(%(\1)s)", compiled.string),
        binds={name: _bind(parameter.type, dialect) for name, parameter in names.items()},
        lists=lists,
        fixed={name: parameter.value for name, parameter in names.items() if not parameter.required},
    )


@lru_cache(maxsize=256)
def _reading(select: Select[Any], dialect: Dialect) -> tuple[_Bind, ...]:
    kinds = [column.type.dialect_impl(dialect) for column in select.selected_columns]
    return tuple(kind.result_processor(dialect, None) for kind in kinds)


@lru_cache(maxsize=256)
def _writing(
    insert: Insert, table: Table, keys: tuple[str, ...], dialect: Dialect
) -> tuple[str, tuple[tuple[str, _Bind], ...]]:
    compiled: Any = insert.compile(dialect=dialect, column_keys=list(keys))
    head, values = compiled.string.split(" VALUES ", 1)
    names = re.findall(r"%\((\w+)\)s", values)
    columns = tuple((name, _bind(table.c[name].type, dialect)) for name in names)
    return f"{head} VALUES ", columns


def _bind(kind: TypeEngine[Any], dialect: Dialect) -> _Bind:
    processor: _Bind = kind.dialect_impl(dialect).bind_processor(dialect)
    return processor


@lru_cache(maxsize=256)
def whole(keys: tuple[str, ...], table: Table) -> bool:
    """Whether these are all that an INSERT of them writes: what SQLAlchemy would add by itself is not missing."""
    return all(column.key in keys for column in table.c if column.default is not None)
