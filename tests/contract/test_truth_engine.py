"""Truth, the door: a transaction is whole or nothing, what a retry can cure is retried, and errors tell no secrets."""

from __future__ import annotations

import sqlite3
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, event

from ops.dev.services import MariaDb
from processors.exceptions import ConflictError, FatalError, TransientError
from schemas import digest
from sinks.truth import Truth, make_engine
from sinks.truth.sql import chunks, insert_rows, replace_rows
from sinks.truth.tables import conversations, memories, owners, turns
from tests.doubles.records import at, turn, turn_row

SECRET = "ann's diary 🌸 4111-1111"


def owner(name: str, seq: int = 0) -> dict[str, Any]:
    return {"owner_key": digest(name), "tenant": "acme", "owner_kind": "user", "owner": name, "seq": seq}


def names(connection: Connection) -> set[str]:
    return set(connection.execute(sa.select(owners.c.owner)).scalars())


def seq_of(connection: Connection, name: str) -> int:
    return int(connection.execute(sa.select(owners.c.seq).where(owners.c.owner_key == digest(name))).scalar_one())


def told(error: BaseException) -> str:
    """All that a log with a traceback would say, less the lines of source code."""
    shown: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    words = repr(error)
    while shown is not None:
        words += "".join(shown.format_exception_only())
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return words


def test_a_transaction_that_fails_leaves_nothing(truth: Truth) -> None:
    with pytest.raises(RuntimeError, match="on the way"), truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
        replace_rows(connection, owners, [owner("bob")])
        raise RuntimeError("on the way")
    with truth.reading() as connection:
        assert names(connection) == set()


def test_a_group_with_one_bad_row_leaves_none_of_it(truth: Truth) -> None:
    with pytest.raises(ConflictError), truth.begin() as connection:
        insert_rows(connection, owners, [owner(f"o{number}") for number in range(1200)])
        insert_rows(connection, owners, [owner("last"), owner("o7")])
    with truth.reading() as connection:
        assert names(connection) == set()


def test_a_taken_key_is_a_conflict(truth: Truth) -> None:
    with truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
    with pytest.raises(ConflictError), truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann", 9)])
    with truth.reading() as connection:
        assert seq_of(connection, "ann") == 0


def test_work_that_met_a_conflict_runs_again_from_the_start(truth: Truth) -> None:
    attempts: list[bool] = []

    def work(connection: Connection) -> str:
        insert_rows(connection, owners, [owner(f"attempt {len(attempts)}")])
        attempts.append(True)
        if len(attempts) == 1:
            insert_rows(connection, owners, [owner("ann"), owner("ann")])
        return "done"

    assert truth.run(work) == "done"
    with truth.reading() as connection:
        assert names(connection) == {"attempt 1"}


def test_the_last_error_is_raised_when_the_attempts_are_used_up(truth: Truth) -> None:
    attempts: list[bool] = []

    def work(connection: Connection) -> None:
        attempts.append(True)
        insert_rows(connection, owners, [owner("ann"), owner("ann")])

    with pytest.raises(ConflictError):
        truth.run(work, attempts=3)
    assert len(attempts) == 3


def test_an_error_of_the_work_itself_is_not_retried(truth: Truth) -> None:
    attempts: list[bool] = []

    def work(_connection: Connection) -> None:
        attempts.append(True)
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        truth.run(work)
    assert len(attempts) == 1


@pytest.mark.services
def test_two_writers_that_insert_one_key_both_finish(mariadb_truth: Truth) -> None:
    both_looked = threading.Barrier(2, timeout=30)

    def count_up(_writer: int) -> None:
        looked: list[bool] = []

        def work(connection: Connection) -> None:
            query = sa.select(owners.c.seq).where(owners.c.owner_key == digest("ann")).with_for_update()
            seq = connection.execute(query).scalar()
            if not looked:
                looked.append(True)
                both_looked.wait()
            if seq is None:
                insert_rows(connection, owners, [owner("ann", 1)])
            else:
                replace_rows(connection, owners, [owner("ann", seq + 1)])

        mariadb_truth.run(work)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count_up, range(2)))
    with mariadb_truth.reading() as connection:
        assert seq_of(connection, "ann") == 2


@pytest.mark.services
def test_of_two_writers_in_a_deadlock_both_finish(mariadb_truth: Truth) -> None:
    with mariadb_truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann"), owner("bob")])
    both_hold_one = threading.Barrier(2, timeout=30)
    attempts: list[str] = []

    def add(first: str, second: str) -> None:
        mine: list[bool] = []

        def work(connection: Connection) -> None:
            attempts.append(first)
            for name in (first, second):
                row = owners.c.owner_key == digest(name)
                connection.execute(sa.update(owners).where(row).values(seq=owners.c.seq + 1))
                if not mine:
                    mine.append(True)
                    both_hold_one.wait()

        mariadb_truth.run(work)

    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(add, "ann", "bob"), pool.submit(add, "bob", "ann")]:
            run.result()
    assert len(attempts) == 3
    with mariadb_truth.reading() as connection:
        assert (seq_of(connection, "ann"), seq_of(connection, "bob")) == (2, 2)


@pytest.mark.services
def test_a_connection_that_is_killed_costs_a_retry_and_nothing_else(mariadb_truth: Truth, mariadb: MariaDb) -> None:
    attempts: list[bool] = []

    def work(connection: Connection) -> None:
        attempts.append(True)
        insert_rows(connection, owners, [owner("ann")])
        if len(attempts) == 1:
            mariadb.execute(f"KILL {connection.execute(sa.text('SELECT CONNECTION_ID()')).scalar()}")
        insert_rows(connection, owners, [owner("bob")])

    mariadb_truth.run(work)
    with mariadb_truth.reading() as connection:
        assert names(connection) == {"ann", "bob"}
    assert len(attempts) == 2


@pytest.mark.services
@pytest.mark.parametrize("rested", [0.0, 60.0], ids=["rested", "busy"])
def test_a_connection_that_broke_in_the_pool_is_replaced(
    mariadb_truth: Truth, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, rested: float
) -> None:
    """One that rested is asked first, so that not even a read outside of `run` fails; a busy one costs one attempt."""
    monkeypatch.setattr("sinks.truth.engine._RESTED_SECONDS", rested)
    with mariadb_truth.reading() as connection:
        broken = connection.execute(sa.text("SELECT CONNECTION_ID()")).scalar()
    mariadb.execute(f"KILL {broken}")
    if rested:
        with pytest.raises(TransientError):
            mariadb_truth.ping()
    with mariadb_truth.reading() as connection:
        assert connection.execute(sa.text("SELECT CONNECTION_ID()")).scalar() != broken


@pytest.mark.services
def test_a_lock_that_is_not_given_up_is_transient(mariadb_truth: Truth) -> None:
    with mariadb_truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
    row = sa.update(owners).values(seq=1)
    with mariadb_truth.begin() as holder:
        holder.execute(row)
        with pytest.raises(TransientError), mariadb_truth.begin() as waiter:
            waiter.execute(sa.text("SET SESSION innodb_lock_wait_timeout = 1"))
            waiter.execute(row)


def test_a_busy_sqlite_file_is_tried_again(sqlite_url: str) -> None:
    engine = make_engine(sqlite_url)
    # Without its half minute of patience, so that the test need not wait.
    event.listen(engine, "connect", lambda raw, _record: raw.execute("PRAGMA busy_timeout=1"))
    truth = Truth(engine)
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransientError), truth.begin():
        pass
    attempts: list[bool] = []

    def release_at_the_third(*_checkout: object) -> None:
        attempts.append(True)
        if len(attempts) == 3:
            holder.execute("ROLLBACK")

    event.listen(engine, "checkout", release_at_the_third)
    truth.run(lambda connection: insert_rows(connection, owners, [owner("ann")]))
    holder.close()
    assert len(attempts) == 3
    with truth.reading() as connection:
        assert names(connection) == {"ann"}
    truth.close()


def test_two_sqlite_writers_wait_for_each_other_and_lose_nothing(sqlite_truth: Truth) -> None:
    sqlite_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann")]))

    def count_up(connection: Connection) -> None:
        replace_rows(connection, owners, [owner("ann", seq_of(connection, "ann") + 1)])

    with ThreadPoolExecutor(4) as pool:
        for run in [pool.submit(sqlite_truth.run, count_up) for _ in range(40)]:
            run.result()
    with sqlite_truth.reading() as connection:
        assert seq_of(connection, "ann") == 40


def test_a_reader_holds_no_writer_up(truth: Truth) -> None:
    with truth.reading() as reader:
        assert names(reader) == set()
        with truth.begin() as writer:
            insert_rows(writer, owners, [owner("ann")])
    with truth.reading() as reader:
        assert names(reader) == {"ann"}


def test_a_writer_holds_no_reader_up_and_shows_it_nothing_unfinished(truth: Truth) -> None:
    with truth.begin() as writer:
        insert_rows(writer, owners, [owner("ann")])
        with truth.reading() as reader:
            assert names(reader) == set()


def test_a_sqlite_reader_sees_one_state_throughout(sqlite_truth: Truth) -> None:
    with sqlite_truth.reading() as reader:
        assert names(reader) == set()
        sqlite_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann")]))
        assert names(reader) == set()


def test_a_connection_that_was_used_for_reading_writes_again(truth: Truth) -> None:
    for number in range(20):
        with truth.reading() as connection:
            names(connection)
        with truth.begin() as connection:
            insert_rows(connection, owners, [owner(f"o{number}")])
    with truth.reading() as connection:
        assert len(names(connection)) == 20


@pytest.mark.parametrize("url", ["mysql+pymysql://nobody:SESAME@127.0.0.1:1/none", "sqlite:////nowhere/at/all.db"])
def test_a_database_that_is_away_is_transient(url: str) -> None:
    truth = Truth(make_engine(url))
    with pytest.raises(TransientError) as caught:
        truth.ping()
    assert "SESAME" not in told(caught.value)
    truth.close()


def test_a_database_that_is_there_answers(truth: Truth) -> None:
    truth.ping()


def _duplicate(connection: Connection) -> None:
    insert_rows(connection, owners, [owner(SECRET), owner(SECRET)])


def _null(connection: Connection) -> None:
    insert_rows(connection, owners, [owner(SECRET) | {"seq": None}])


def _missing_column(connection: Connection) -> None:
    connection.execute(sa.text("INSERT INTO owners (nothing_like_it) VALUES (:value)"), {"value": SECRET})


def _syntax(connection: Connection) -> None:
    connection.execute(sa.text("UPDATE owners SET owner = :value WHERE"), {"value": SECRET})


def _naive(connection: Connection) -> None:
    insert_rows(connection, turns, [turn_row(turn(text=SECRET)) | {"arrived_at": datetime(2026, 1, 1)}])


def _too_long(connection: Connection) -> None:
    insert_rows(connection, owners, [owner(SECRET) | {"owner": SECRET * 20}])


def _bad_number(connection: Connection) -> None:
    insert_rows(connection, owners, [owner(SECRET) | {"seq": SECRET}])


@pytest.mark.parametrize("work", [_duplicate, _null, _missing_column, _syntax, _naive])
def test_no_error_repeats_a_statement_or_a_value(truth: Truth, work: Any) -> None:
    with pytest.raises((ConflictError, FatalError, ValueError)) as caught:
        truth.run(work, attempts=2)
    words = told(caught.value)
    for piece in ("diary", "4111", "INSERT", "UPDATE", "VALUES", "SQL:", "sqlalche.me", "parameters"):
        assert piece not in words


@pytest.mark.services
@pytest.mark.parametrize("work", [_too_long, _bad_number])
def test_what_mariadb_refuses_is_said_without_the_value(mariadb_truth: Truth, work: Any) -> None:
    with pytest.raises(FatalError, match=r"\(\w+ \d+\)") as caught:
        mariadb_truth.run(work)
    assert "diary" not in told(caught.value)


def test_a_time_without_a_zone_is_refused_by_name(truth: Truth) -> None:
    with pytest.raises(ValueError, match="naive time"):
        truth.run(_naive)
    with pytest.raises(ValueError, match="naive time"), truth.reading() as connection:
        connection.execute(sa.select(conversations).where(conversations.c.first_pending_at <= datetime(2026, 1, 1)))


def test_a_replaced_row_is_the_new_row_and_nothing_of_the_old(truth: Truth) -> None:
    key = turn().conversation_key
    row = {"conversation_key": key, "tenant": "acme", "conversation_id": "c1", "last_sent_at": at(1), "turn_count": 1}
    row |= {"pending_count": 1, "pending_tokens": 5, "first_pending_at": at(1), "ended": True, "recent": "a b"}
    truth.run(lambda connection: replace_rows(connection, conversations, [row]))
    second = row | {"first_pending_at": None, "ended": False, "recent": "", "last_sent_at": at(2)}
    truth.run(lambda connection: replace_rows(connection, conversations, [second]))
    with truth.reading() as connection:
        assert [dict(found._mapping) for found in connection.execute(sa.select(conversations))] == [second]


def test_a_replaced_row_that_leaves_a_needed_column_out_is_refused(truth: Truth) -> None:
    truth.run(lambda connection: replace_rows(connection, owners, [owner("ann", 3)]))
    short = {key: value for key, value in owner("ann").items() if key != "tenant"}
    with pytest.raises((ConflictError, TransientError, FatalError)):
        truth.run(lambda connection: replace_rows(connection, owners, [short]), attempts=1)
    with truth.reading() as connection:
        assert seq_of(connection, "ann") == 3


def test_thousands_of_rows_are_replaced_in_one_call(truth: Truth) -> None:
    truth.run(lambda connection: replace_rows(connection, owners, [owner(f"o{n}", 1) for n in range(2500)]))
    truth.run(lambda connection: replace_rows(connection, owners, [owner(f"o{n}", 2) for n in range(1000, 3500)]))
    with truth.reading() as connection:
        rows = connection.execute(sa.select(owners.c.seq, sa.func.count()).group_by(owners.c.seq))
        assert {seq: count for seq, count in rows} == {1: 1000, 2: 2500}


def test_no_rows_are_no_statement(truth: Truth) -> None:
    with truth.begin() as connection:
        insert_rows(connection, owners, [])
        replace_rows(connection, memories, [])


def test_chunks_keep_order_and_lose_nothing() -> None:
    assert [len(chunk) for chunk in chunks(range(2500))] == [900, 900, 700]
    assert [value for chunk in chunks(iter(range(2500))) for value in chunk] == list(range(2500))
    assert list(chunks([])) == []
