"""Truth, together: writes that wait for company change nothing but the number of round trips."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from ops.dev.services import MariaDb
from processors.exceptions import ConflictError, FatalError, TransientError
from schemas import digest
from sinks.truth import Truth, outbox
from sinks.truth.outbox import Outgoing
from sinks.truth.sql import insert_rows, replace_rows
from sinks.truth.tables import outbox as outbox_table
from sinks.truth.tables import owners
from sinks.truth.together import Question, answers, escaped, foresee, later
from tests.doubles.records import at

pytestmark = pytest.mark.services

AWKWARD = "50% off; it's \"ann\\'s\" \\ 花生 🌸 -- ; DROP TABLE owners; /* %(x)s %s"


def owner(name: str, seq: int = 0) -> dict[str, Any]:
    return {"owner_key": digest(name), "tenant": "acme", "owner_kind": "user", "owner": name, "seq": seq}


def held(truth: Truth) -> dict[str, int]:
    with truth.reading() as connection:
        return {row.owner: row.seq for row in connection.execute(sa.select(owners))}


def test_the_writes_of_a_transaction_are_one_message(mariadb_truth: Truth, sent: list[str]) -> None:
    def work(connection: Connection) -> None:
        insert_rows(connection, owners, [owner("ann"), owner("bob")])
        replace_rows(connection, owners, [owner("ann", 1)])
        later(connection, sa.update(owners).where(owners.c.owner == "bob").values(seq=2))
        outbox.put(connection, "resolve", [Outgoing("candidates", "k", "k", b"x")], at(1))

    mariadb_truth.ping()
    sent.clear()
    mariadb_truth.run(work)
    assert sent == ["INSERT INTO owners (", "COMMIT"]
    assert held(mariadb_truth) == {"ann": 1, "bob": 2}


def test_a_server_that_was_told_nothing_is_not_told_to_roll_back(mariadb_truth: Truth, sent: list[str]) -> None:
    mariadb_truth.ping()
    sent.clear()
    with mariadb_truth.begin():
        pass
    assert sent == []
    assert held(mariadb_truth) == {}
    assert sent[-1] == "ROLLBACK"


def test_what_is_foreseen_is_one_message_and_the_same_answers(mariadb_truth: Truth, sent: list[str]) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann", 7), owner("bob")]))
    named = sa.select(owners.c.seq).where(owners.c.owner == "ann")
    sizes = sa.select(sa.func.count()).select_from(owners)
    sent.clear()
    with mariadb_truth.begin() as connection:
        later(connection, sa.update(owners).where(owners.c.owner == "ann").values(seq=8))
        foresee(connection, [Question(named), Question(sizes)])
        assert connection.execute(named).scalars().all() == [8]
        assert connection.execute(sizes).scalar() == 2
    assert sent == ["UPDATE owners SET se", "COMMIT"]


def test_a_question_alone_is_one_message(mariadb_truth: Truth, sent: list[str]) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann", 7)]))
    named = sa.select(owners.c.seq).where(owners.c.owner == "ann")
    sent.clear()
    with mariadb_truth.reading() as connection:
        assert answers(connection, [Question(named), Question(named.with_for_update())]) == [(7,), (7,)]
        assert len(sent) == 1
        # Its lock is gone as well.
        with mariadb_truth.begin() as other:
            other.execute(sa.text("SET SESSION innodb_lock_wait_timeout = 1"))
            later(other, sa.update(owners).values(seq=8))
        sent.clear()
        assert connection.execute(named).scalar() == 8
    assert [words.split()[0] for words in sent] == ["SELECT", "ROLLBACK"]


@pytest.mark.parametrize("between", ["a write", "a read", "a failure"])
def test_what_happens_in_between_makes_it_be_asked_again(mariadb_truth: Truth, between: str) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann", 7)]))
    named = sa.select(owners.c.seq).where(owners.c.owner == "ann")
    with mariadb_truth.begin() as connection:
        foresee(connection, [Question(named)])
        if between == "a write":
            later(connection, sa.update(owners).values(seq=8))
        elif between == "a read":
            # It may wait for a lock, and what was read before it would be older than what it waited for.
            with mariadb_truth.begin() as other:
                other.execute(sa.update(owners).values(seq=8))
            connection.execute(sa.select(owners.c.owner).with_for_update()).all()
        else:
            with pytest.raises(sa.exc.ProgrammingError):
                connection.execute(sa.text("SELECT nothing FROM nowhere"))
            with mariadb_truth.begin() as other:
                other.execute(sa.update(owners).values(seq=8))
        assert connection.execute(named).scalar() == 8


def test_what_was_foreseen_in_one_transaction_answers_nothing_in_the_next(mariadb_truth: Truth) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann", 7)]))
    named = sa.select(owners.c.seq).where(owners.c.owner == "ann")
    for seq, ends in ((8, "commit"), (9, "rollback")):
        with mariadb_truth.engine.connect() as connection:
            transaction = connection.begin()
            foresee(connection, [Question(named)])
            transaction.commit() if ends == "commit" else transaction.rollback()
            with mariadb_truth.begin() as other:
                other.execute(sa.update(owners).values(seq=seq))
            with connection.begin():
                assert connection.execute(named).scalar() == seq


def test_a_lock_that_is_foreseen_is_taken(mariadb_truth: Truth) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("ann")]))
    with mariadb_truth.begin() as connection:
        foresee(connection, [Question(sa.select(owners).where(owners.c.owner_key == digest("ann")).with_for_update())])
        with pytest.raises(TransientError), mariadb_truth.begin() as other:
            other.execute(sa.text("SET SESSION innodb_lock_wait_timeout = 1"))
            other.execute(sa.update(owners).values(seq=8))
    assert held(mariadb_truth) == {"ann": 0}


def test_a_question_that_is_refused_is_told_where_it_is_foreseen(mariadb_truth: Truth) -> None:
    lost: sa.Select[Any] = sa.select(sa.column("nothing")).select_from(sa.table("nowhere"))
    with pytest.raises(FatalError, match="ProgrammingError 1146"), mariadb_truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
        foresee(connection, [Question(sa.select(owners.c.seq)), Question(lost)])
    assert held(mariadb_truth) == {}


def test_what_is_read_in_the_transaction_has_its_writes_in_it(mariadb_truth: Truth) -> None:
    with mariadb_truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
        later(connection, sa.update(owners).values(seq=owners.c.seq + 1))
        assert connection.execute(sa.select(owners.c.seq)).scalar() == 1
        later(connection, sa.update(owners).values(seq=owners.c.seq * 10))
        done = connection.execute(sa.update(owners).where(owners.c.seq == 10).values(seq=11))
        assert done.rowcount == 1
    assert held(mariadb_truth) == {"ann": 11}


@pytest.mark.parametrize("at_once", [True, False], ids=["at the commit", "at a read"])
def test_a_refused_statement_among_others_undoes_them_all(mariadb_truth: Truth, at_once: bool) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("bob")]))
    with pytest.raises(ConflictError), mariadb_truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
        insert_rows(connection, owners, [owner("bob")])
        insert_rows(connection, owners, [owner("cleo")])
        if not at_once:
            connection.execute(sa.select(owners.c.seq))
    assert held(mariadb_truth) == {"bob": 0}


def test_a_transaction_that_could_not_be_committed_holds_nothing_back(mariadb_truth: Truth) -> None:
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("bob")]))
    with mariadb_truth.engine.connect() as connection:
        transaction = connection.begin()
        insert_rows(connection, owners, [owner("ann"), owner("bob")])
        with pytest.raises(sa.exc.IntegrityError):
            transaction.commit()
        # The connection is still in hand, and yet:
        with mariadb_truth.begin() as other:
            other.execute(sa.text("SET SESSION innodb_lock_wait_timeout = 1"))
            insert_rows(other, owners, [owner("ann", 5)])
    assert held(mariadb_truth) == {"ann": 5, "bob": 0}


def test_a_statement_without_sense_is_told_by_its_code_only(mariadb_truth: Truth) -> None:
    with pytest.raises(FatalError, match=r"refused a statement \(ProgrammingError 1146\)") as told:
        mariadb_truth.run(lambda connection: later(connection, sa.text("DELETE FROM nowhere WHERE name = 'ann'")))
    assert "ann" not in str(told.value)


def test_what_was_given_up_is_not_sent_with_the_next_transaction(mariadb_truth: Truth) -> None:
    with pytest.raises(ZeroDivisionError), mariadb_truth.begin() as connection:
        insert_rows(connection, owners, [owner("ann")])
        raise ZeroDivisionError
    mariadb_truth.run(lambda connection: insert_rows(connection, owners, [owner("bob")]))
    assert held(mariadb_truth) == {"bob": 0}


def test_values_are_what_they_were(mariadb_truth: Truth) -> None:
    payload = bytes(range(256)) + AWKWARD.encode()

    def work(connection: Connection) -> None:
        insert_rows(connection, owners, [owner(AWKWARD)])
        outbox.put(connection, "resolve", [Outgoing("candidates", AWKWARD[:32], "k", payload)], at(1))
        later(connection, sa.update(owners).values(tenant=AWKWARD[:40]))

    mariadb_truth.run(work)
    with mariadb_truth.reading() as connection:
        assert connection.execute(sa.select(owners.c.owner, owners.c.tenant)).one() == (AWKWARD, AWKWARD[:40])
        [row] = outbox.leftover(connection, "resolve", 10)
    assert (row.payload, row.key) == (payload, AWKWARD[:32])


@given(st.text(alphabet=st.one_of(st.sampled_from("\\'\"\0\n\r\x1a\x1b%;_`"), st.characters())))
@settings(max_examples=500)
def test_strings_are_escaped_as_the_driver_escapes_them(text: str) -> None:
    assert escaped(text) == pymysql.converters.escape_string(text)


def test_where_backslashes_are_ordinary_characters_they_stay_so(mariadb_truth: Truth) -> None:
    with mariadb_truth.begin() as connection:
        connection.execute(sa.text("SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')"))
        insert_rows(connection, owners, [owner(AWKWARD), owner("ann")])
        connection.execute(sa.select(owners.c.owner)).all()
        connection.execute(sa.text("SET SESSION sql_mode = REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', '')"))
    assert held(mariadb_truth) == {AWKWARD: 0, "ann": 0}


def test_more_than_one_message_holds_goes_in_several(mariadb_truth: Truth, sent: list[str]) -> None:
    big = [Outgoing("deadletters", str(number), "k", b"x" * 300_000) for number in range(6)]

    def work(connection: Connection) -> None:
        for message in big:
            outbox.put(connection, "bury", [message], at(1))

    mariadb_truth.run(work)
    assert len([words for words in sent if words.startswith("INSERT INTO outbox")]) == 3
    with mariadb_truth.reading() as connection:
        assert [len(row.payload or b"") for row in outbox.leftover(connection, "bury", 10)] == [300_000] * 6


def test_a_connection_that_breaks_before_they_are_sent_costs_one_attempt(
    mariadb_truth: Truth, mariadb: MariaDb
) -> None:
    attempts: list[bool] = []

    def work(connection: Connection) -> None:
        attempts.append(True)
        mine = connection.execute(sa.text("SELECT CONNECTION_ID()")).scalar()
        insert_rows(connection, owners, [owner("ann")])
        if len(attempts) == 1:
            mariadb.execute(f"KILL {mine}")

    with pytest.raises(TransientError), mariadb_truth.begin() as connection:
        work(connection)
    attempts.clear()
    mariadb_truth.run(work)
    assert len(attempts) == 2
    assert held(mariadb_truth) == {"ann": 0}


def test_answers_are_what_sqlalchemy_would_give(mariadb_truth: Truth, sqlite_truth: Truth) -> None:
    """Times are aware, bytes are bytes, nothing is None."""
    rows = [Outgoing("turns", AWKWARD[:32], "k", bytes(range(256))), Outgoing("turns", "m", "k", None, version=3)]
    questions = [Question(sa.select(outbox_table)), Question(sa.select(sa.func.count()).select_from(owners))]
    for truth in (mariadb_truth, sqlite_truth):
        truth.run(lambda connection: outbox.put(connection, "ingest", rows, at(1)))
        with truth.reading() as connection:
            found = answers(connection, questions)
            assert answers(connection, []) == []
        with truth.reading() as connection:
            assert found == [tuple(row) for question in questions for row in connection.execute(*question)]
