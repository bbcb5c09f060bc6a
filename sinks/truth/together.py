"""Truth, together: on MySQL and MariaDB a transaction goes to the server as seldom as it can.

A group's transaction reads a little and then writes half a dozen tables. Each statement alone is a way to the server and
back, and two changes of thread on either side; among busy threads that takes ten times as long as the statement. What is
written with `later` waits in this process until something is read in the same transaction, or until the COMMIT, and then
goes as one message of several statements, in the order in which they were given. So a transaction sees its own
writes, and fails as it would have failed: at the first statement that the server refuses, and then all of it is rolled back.
What it will read first can be asked for at once with `foresee`; one that only reads is one message (`answers`). Nor is the
server told to roll back where it has been told nothing since the last COMMIT.

Values are escaped one statement at a time, exactly as the driver would for each alone; strings in a quarter of its time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import CLIENT
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_NO_BACKSLASH_ESCAPES
from pymysql.cursors import Cursor
from sqlalchemy import Connection, Delete, Engine, Executable, Insert, Select, Table, TextClause, Update, event

from sinks.truth import wording
from sinks.truth.columns import Answer

T = TypeVar("T")

_FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS
"""FOUND_ROWS is what SQLAlchemy sets, and what flags of our own would otherwise replace."""

_MOST_BYTES = 1_000_000
"""Of what waits, unless a single statement is larger; the smallest server default for a packet is 16 MB."""
_LATER, _FAILED = "memriver_later", "memriver_failed"


def escaped(text: str) -> str:
    """As `pymysql.converters.escape_string`, which looks each character up; a memory's JSON is mostly ordinary ones."""
    return (
        text.replace("\\", "\\\\")
        .replace("'", "\\'")
        .replace('"', '\\"')
        .replace("\0", "\\0")
        .replace("\n", "\\n")
        .replace("\r", "\\r")
        .replace("\032", "\\Z")
    )


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """The driver's, with statements that wait for the next one, and answers that wait for their question."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._waiting: list[bytes] = []
        self._size = 0
        self._answers: dict[bytes, MySQLResult] = {}
        self._told = False
        super().__init__(*args, **settings)

    @property
    def is_full(self) -> bool:
        """Whether what waits should go before more is kept."""
        return self._size >= _MOST_BYTES

    def keep(self, statement: bytes) -> None:
        """Have this statement, which returns nothing, go with the next one."""
        self._answers.clear()
        self._waiting.append(statement)
        self._size += len(statement)

    def send_waiting(self) -> None:
        """What waits goes now."""
        self.query(self._waiting.pop())

    def literal(self, value: Any) -> str:
        """As the driver writes a value into a statement."""
        if isinstance(value, str) and not self.server_status & SERVER_STATUS_NO_BACKSLASH_ESCAPES:
            return f"'{escaped(value)}'"
        word: str = self.escape(value)
        return word

    def foresee(self, questions: Sequence[bytes]) -> None:
        """Ask these now, in one message with what waits; they are answered when they are asked."""
        self._answers = dict(zip(questions, self._asked(questions), strict=True))

    def ask(self, questions: Sequence[bytes]) -> list[wording.Rows]:
        """The rows of each; the transaction, in which nothing was written, is over in the same message."""
        *answers, _rollback = self._asked([*questions, b"ROLLBACK"])
        self._told = False
        return [answer.rows for answer in answers]

    def _asked(self, statements: Sequence[bytes]) -> list[MySQLResult]:
        self.query(b";".join(statements))
        answers = [self._result]
        for _ in statements[1:]:
            self.next_result()
            answers.append(self._result)
        for answer in answers:
            answer.has_next = False
        return answers

    def query(self, sql: str | bytes | bytearray, unbuffered: bool = False) -> int:
        """As the driver's; what waits goes in front of it, in the same message."""
        raw = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else bytes(sql)
        answer = self._answers.pop(raw, None)
        if answer is not None:
            self._result = answer
            return int(answer.affected_rows)
        waiting = self._taken()
        self._told = True
        affected: int = super().query(b";".join([*waiting, raw]), unbuffered)
        # The server stops at the first statement that it refuses, and says so in that statement's place.
        for _ in waiting:
            affected = self.next_result(unbuffered)
        return affected

    def _read_query_result(self, unbuffered: bool = False) -> int:
        """As the driver's, with an `Answer`."""
        if unbuffered:
            return int(super()._read_query_result(unbuffered))
        self._result = None
        answer = Answer(self)
        answer.read()
        self._result = answer
        if answer.server_status is not None:
            self.server_status = answer.server_status
        return int(answer.affected_rows)

    def commit(self) -> None:
        """As the driver's; a transaction that cannot be committed is over as well.

        Not in one message with what waits: a server that is slow would carry out both for a client that is dead meanwhile,
        and whose successor has already looked for what it left.
        """
        try:
            if self._waiting:
                self.send_waiting()
            if self._told:
                super().commit()
        except BaseException:
            with contextlib.suppress(Exception):  # what is to be told is why
                self.rollback()
            raise
        self._told = False
        self._answers.clear()

    def rollback(self) -> None:
        """As the driver's, where the server has anything to forget."""
        self._taken()
        if self._told:
            super().rollback()
            self._told = False

    def _taken(self) -> list[bytes]:
        self._answers.clear()
        waiting, self._waiting, self._size = self._waiting, [], 0
        return waiting


class _Writer(Cursor):  # type: ignore[misc]
    """Makes statements out of parameters as the driver does, and keeps them instead of sending them."""

    def _mogrify(self, query: Any, args: Any) -> str:
        if isinstance(args, dict):
            literal = self.connection.literal
            text: str = query % {key: literal(it) for key, it in args.items()}
            return text
        made: str = super()._mogrify(query, args)
        return made

    def _query(self, q: Any) -> int:
        if self.connection.is_full:
            self.connection.send_waiting()
        raw = q.encode(self.connection.encoding, "surrogateescape") if isinstance(q, str) else bytes(q)
        self.connection.keep(raw)
        return 0


def later(
    connection: Connection,
    statement: Executable,
    rows: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
) -> None:
    """Carry out a statement that returns nothing, whenever its transaction gets to it, and before anything is read in it.

    What it raises may be raised by a later statement of the transaction, or by its COMMIT.
    """
    connection.execute(statement, rows, execution_options={_LATER: True})


def prepared(connection: Connection, statement: Update | Delete | TextClause, values: Mapping[str, Any]) -> None:
    """`later`, for a statement that is made once and given its values."""
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, _Connection):
        connection.execute(statement, values)
        return
    _keep_words(connection, driver, [wording.statement(statement, values, connection.dialect, driver.literal)])


def write(connection: Connection, insert: Insert, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """`later`, for whole rows that all have the same keys, and that a group writes again and again."""
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, _Connection) or not wording.whole(tuple(rows[0]), table):
        later(connection, insert, rows)
        return
    _keep_words(
        connection,
        driver,
        wording.rows(insert, table, rows, connection.dialect, driver.literal, most=_MOST_BYTES),
    )


def _keep_words(connection: Connection, driver: _Connection, statements: Iterable[str]) -> None:
    for words in statements:
        if driver.is_full:
            _by_the_driver(connection, driver.send_waiting)
        driver.keep(words.encode(driver.encoding, "surrogateescape"))


class Question(NamedTuple):
    """A select and the values of its parameters, as `Connection.execute` takes them."""

    select: Select[Any]
    values: Mapping[str, Any] | None = None


Questions = Iterator[Question]
"""What a function asks, by a function of its own, so that whoever calls it can foresee it."""


def foresee(connection: Connection, questions: Iterable[Question]) -> None:
    """Ask in one round trip what the transaction is about to ask.

    Each of these that is then asked, in the same words and before anything else is asked or written, is answered from
    there; so what is foreseen wrongly costs time and nothing else. Locks are taken in the order given. Does nothing on
    SQLite.
    """
    driver = connection.connection.dbapi_connection
    if isinstance(driver, _Connection):
        words = _words(connection, driver, questions)
        if words:
            _by_the_driver(connection, partial(driver.foresee, words))


def answers(connection: Connection, questions: Iterable[Question]) -> list[tuple[Any, ...]]:
    """The rows of one question after the other, in a transaction that asks nothing else and writes nothing.

    Where there is a server, it is over in the same round trip, and holds no lock any more.
    """
    asked = [*questions]
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, _Connection):
        return [tuple(row) for question in asked for row in connection.execute(*question)]
    words = _words(connection, driver, asked)
    found = _by_the_driver(connection, partial(driver.ask, words)) if words else []
    return [
        row
        for question, rows in zip(asked, found, strict=True)
        for row in wording.answer(question.select, rows, connection.dialect)
    ]


def _words(connection: Connection, driver: _Connection, questions: Iterable[Question]) -> list[bytes]:
    return [
        wording.statement(select, values or {}, connection.dialect, driver.literal).encode(driver.encoding)
        for select, values in questions
    ]


def _by_the_driver(connection: Connection, work: Callable[[], T]) -> T:
    """An error is raised by way of SQLAlchemy, which knows what a driver's error means for its connection."""
    try:
        return work()
    except BaseException as error:
        connection.exec_driver_sql("", execution_options={_FAILED: error, "no_parameters": True})
        raise


def listen(engine: Engine) -> None:
    """Have the connections of this engine send `later` statements, and what is foreseen, together."""
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "do_execute", _keep)
    event.listen(engine, "do_executemany", _keep_many)
    event.listen(engine, "do_execute_no_params", _fail)


def _connect(_dialect: Any, _record: Any, args: list[Any], settings: dict[str, Any]) -> _Connection:
    return _Connection(*args, **settings | {"client_flag": _FLAGS})


def _keep(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    if not context.execution_options.get(_LATER):
        return False
    _Writer(cursor.connection).execute(statement, parameters)
    # SQLAlchemy asks for it after one row; the driver sets it with an answer only.
    cursor.lastrowid = None
    return True


def _keep_many(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    if not context.execution_options.get(_LATER):
        return False
    _Writer(cursor.connection).executemany(statement, parameters)
    return True


def _fail(_cursor: Any, _statement: str, context: Any) -> bool:
    error = context.execution_options.get(_FAILED)
    if error is not None:
        raise error
    return False
