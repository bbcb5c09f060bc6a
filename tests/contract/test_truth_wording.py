"""Statements that are put into words without SQLAlchemy say, letter by letter, what it would have said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, Table, bindparam, insert, select, update

from processors.exceptions import ConflictError, FatalError
from sinks.truth import Truth, tables
from sinks.truth.sql import KEYS, insert_rows, replace_rows
from sinks.truth.together import Question, foresee, later, prepared, write

pytestmark = pytest.mark.services

NOW = datetime(2026, 12, 1, 8, 30, 15, 123456, tzinfo=UTC)
ODD = ("", "'", '"', "\\", "%s %(x)s %%", "a\nb\r\0\x1a", "日本語 🏙️", "x" * 200)


@contextmanager
def words_of(connection: Connection) -> Iterator[list[bytes]]:
    """What the driver is given to keep, statement by statement."""
    driver: Any = connection.connection.dbapi_connection
    kept: list[bytes] = []
    real = type(driver).keep

    def keep(self: Any, statement: bytes) -> None:
        kept.append(statement)
        real(self, statement)

    type(driver).keep = keep
    try:
        yield kept
    finally:
        type(driver).keep = real


def outbox_row(number: int, **changed: Any) -> dict[str, Any]:
    row = {
        "id": number,
        "stage": "ingest",
        "source_partition": number % 4,
        "topic": "candidates",
        "message_key": "k",
        "partition_key": "p",
        "payload": b"\x00'\\\xff",
        "version": None,
        "created_at": NOW,
    }
    return row | changed


ROWS: list[tuple[Table, dict[str, Any]]] = [
    *((tables.outbox, outbox_row(number, message_key=text[:50])) for number, text in enumerate(ODD)),
    (
        tables.outbox,
        outbox_row(99, payload=None, version=2**40, created_at=NOW.astimezone(timezone(timedelta(hours=8)))),
    ),
    (
        tables.subjects,
        {
            "subject_key": "s",
            "kind": "owner",
            "suppressed": True,
            "key_id": None,
            "erasure_id": None,
            "partial": False,
            "changed_at": NOW,
        },
    ),
    (tables.owners, {"owner_key": "o", "tenant": "t'", "owner_kind": "user", "owner": "李雷", "seq": 7}),
]


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_row_is_written_as_sqlalchemy_writes_it(mariadb_truth: Truth, table: Table, row: Mapping[str, Any]) -> None:
    with mariadb_truth.engine.connect() as connection:
        with words_of(connection) as kept:
            later(connection, insert(table), [row])
            write(connection, insert(table), table, [row])
        connection.rollback()
    theirs, ours = kept
    assert ours == theirs


def test_many_rows_are_one_statement_as_sqlalchemy_makes_it(mariadb_truth: Truth) -> None:
    rows = [outbox_row(number, message_key=text) for number, text in enumerate(ODD)]
    with mariadb_truth.engine.connect() as connection:
        with words_of(connection) as kept:
            later(connection, insert(tables.outbox), rows)
            write(connection, insert(tables.outbox), tables.outbox, rows)
        connection.rollback()
    theirs, ours = kept
    assert ours == theirs


_MOVED = update(tables.turns).where(tables.turns.c.turn_key.in_(KEYS)).values(pending=False, reason=bindparam("why"))


@pytest.mark.parametrize("why", [None, *ODD])
def test_a_statement_that_is_made_once_is_as_sqlalchemy_sends_it(mariadb_truth: Truth, why: str | None) -> None:
    values = {"keys": ["a", "b'"], "why": why}
    with mariadb_truth.engine.connect() as connection:
        with words_of(connection) as kept:
            later(connection, _MOVED, values)
            prepared(connection, _MOVED, values)
        connection.rollback()
    theirs, ours = kept
    assert ours == theirs


def test_what_is_foreseen_is_asked_in_the_words_of_the_question(mariadb_truth: Truth) -> None:
    query = (
        select(tables.outbox)
        .where(tables.outbox.c.partition_key.in_(KEYS), tables.outbox.c.created_at < bindparam("before"))
        .where(tables.outbox.c.stage == "50% 'off'")
        .limit(bindparam("most"))
    )
    for keys in (["a"], ["b'", "\\", "日本"]):
        question = Question(query, {"keys": keys, "before": NOW, "most": 3})
        with mariadb_truth.begin() as connection:
            foresee(connection, [question])
            driver: Any = connection.connection.dbapi_connection
            assert len(driver._answers) == 1
            assert connection.execute(*question).all() == []
            assert not driver._answers, "the answer was not there"


def test_a_question_about_nobody_is_not_put_into_words(mariadb_truth: Truth) -> None:
    query = select(tables.outbox).where(tables.outbox.c.partition_key.in_(KEYS))
    with mariadb_truth.begin() as connection, pytest.raises(ValueError, match="without values"):
        foresee(connection, [Question(query, {"keys": []})])


def test_more_rows_than_fit_into_one_message_are_all_written(mariadb_truth: Truth) -> None:
    """Scenario: each statement has at most a megabyte, and what waits is sent when it is that much."""
    rows = [outbox_row(number, payload=b"\xff" * 150_000) for number in range(40)]
    with mariadb_truth.begin() as connection:
        with words_of(connection) as kept:
            replace_rows(connection, tables.outbox, rows)
        assert 5 <= len(kept) <= 40
        found = connection.execute(select(tables.outbox.c.id, tables.outbox.c.payload)).all()
    assert {row.id: row.payload for row in found} == {row["id"]: row["payload"] for row in rows}


def test_what_is_refused_while_more_is_being_kept_has_the_same_name_as_ever(mariadb_truth: Truth) -> None:
    def twice(connection: Connection) -> None:
        for _ in range(2):
            insert_rows(connection, tables.outbox, [outbox_row(n, payload=b"\xff" * 150_000) for n in range(40)])

    with pytest.raises(ConflictError):
        mariadb_truth.run(twice, attempts=1)
    with mariadb_truth.reading() as connection:
        assert connection.execute(select(tables.outbox.c.id)).all() == []


def test_a_time_without_a_zone_is_refused(mariadb_truth: Truth) -> None:
    with pytest.raises(ValueError, match="naive"), mariadb_truth.begin() as connection:
        insert_rows(connection, tables.outbox, [outbox_row(1, created_at=NOW.replace(tzinfo=None))])


def test_a_row_that_is_not_like_the_first_is_refused(mariadb_truth: Truth) -> None:
    short = outbox_row(2)
    del short["payload"]
    with pytest.raises((KeyError, FatalError)), mariadb_truth.begin() as connection:
        insert_rows(connection, tables.outbox, [outbox_row(1), short])


def test_what_sqlalchemy_adds_by_itself_is_added(mariadb_truth: Truth) -> None:
    row = {"owner_key": "o", "tenant": "t", "owner_kind": "user", "owner": "ann"}
    with mariadb_truth.begin() as connection:
        insert_rows(connection, tables.owners, [row])
        assert connection.execute(select(tables.owners.c.seq)).scalar_one() == 0
