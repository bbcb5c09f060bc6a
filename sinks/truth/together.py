"""Truth, together: on MySQL and MariaDB the rows that a transaction writes are sent in one round trip, not one by one.

A group's transaction reads a little and then writes half a dozen tables. Each statement alone is a way to the server and
back, and two changes of thread on either side; among busy threads that takes ten times as long as the statement. What is
written with `later` waits in this process until something is read in the same transaction, or until the COMMIT, and then
goes as one message of several statements, in the order in which they were given. So a transaction sees its own writes, and
fails as it would have failed: at the first statement that the server refuses, and then all of it is rolled back.

Values are escaped one statement at a time, exactly as the driver would for each alone; strings in a quarter of its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymysql.constants import CLIENT
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_NO_BACKSLASH_ESCAPES
from pymysql.cursors import Cursor
from sqlalchemy import Connection, Engine, Executable, event

CLIENT_FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS
"""Of a connection that can; FOUND_ROWS is what SQLAlchemy sets, and what flags of our own would otherwise replace."""

_MOST_BYTES = 1_000_000
"""Of one message, unless a single statement is larger; the smallest server default for a packet is 16 MB."""
_LATER, _ALL, _UNSENT = "memriver_later", "memriver_all", "memriver_unsent"


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


@dataclass(slots=True)
class _Unsent:
    statements: list[bytes] = field(default_factory=list)
    size: int = 0


class _Writer(Cursor):  # type: ignore[misc]
    """Makes statements out of parameters as the driver does, and keeps them instead of sending them."""

    def __init__(self, connection: Any, unsent: _Unsent) -> None:
        super().__init__(connection)
        self._unsent = unsent

    def _mogrify(self, query: Any, args: Any) -> str:
        if isinstance(args, dict) and not self.connection.server_status & SERVER_STATUS_NO_BACKSLASH_ESCAPES:
            escape = self.connection.escape
            known = {key: f"'{escaped(it)}'" if isinstance(it, str) else escape(it) for key, it in args.items()}
            text: str = query % known
            return text
        made: str = super()._mogrify(query, args)
        return made

    def _query(self, q: Any) -> int:
        raw = q.encode(self.connection.encoding, "surrogateescape") if isinstance(q, str) else bytes(q)
        self._unsent.statements.append(raw)
        self._unsent.size += len(raw)
        return 0


def later(connection: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Carry out a statement that returns nothing, whenever its transaction gets to it, and before anything is read in it.

    What it raises may be raised by a later statement of the transaction, or by its COMMIT.
    """
    connection.execute(statement, rows, execution_options={_LATER: True})


def listen(engine: Engine) -> None:
    """Have the connections of this engine, which were made with `CLIENT_FLAGS`, send `later` statements together."""
    event.listen(engine, "do_execute", _keep)
    event.listen(engine, "do_executemany", _keep_many)
    event.listen(engine, "do_execute_no_params", _send_all)
    event.listen(engine, "before_cursor_execute", _before)
    event.listen(engine, "commit", _send)
    event.listen(engine, "rollback", _forget)


def _keep(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    if not context.execution_options.get(_LATER):
        return False
    _Writer(cursor.connection, _unsent_of(context.root_connection)).execute(statement, parameters)
    # SQLAlchemy asks for it after one row; the driver sets it with an answer only.
    cursor.lastrowid = None
    return True


def _keep_many(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    if not context.execution_options.get(_LATER):
        return False
    _Writer(cursor.connection, _unsent_of(context.root_connection)).executemany(statement, parameters)
    return True


def _send_all(cursor: Any, statement: str, context: Any) -> bool:
    if not context.execution_options.get(_ALL):
        return False
    cursor.execute(statement)
    # The server stops at the first statement that it refuses, and says so in that statement's place.
    while cursor.nextset():
        pass
    return True


def _before(connection: Connection, _cursor: Any, _statement: str, _parameters: Any, context: Any, _many: bool) -> None:
    options = context.execution_options
    if options.get(_ALL):
        return
    unsent: _Unsent | None = connection.info.get(_UNSENT)
    if unsent is not None and (not options.get(_LATER) or unsent.size >= _MOST_BYTES):
        _send(connection)


def _unsent_of(connection: Connection) -> _Unsent:
    unsent: _Unsent = connection.info.setdefault(_UNSENT, _Unsent())
    return unsent


def _send(connection: Connection) -> None:
    unsent: _Unsent | None = connection.info.pop(_UNSENT, None)
    if unsent is not None:
        text = b";".join(unsent.statements).decode("utf-8", "surrogateescape")
        connection.exec_driver_sql(text, execution_options={_ALL: True, "no_parameters": True})


def _forget(connection: Connection) -> None:
    # What a broken connection had is gone with it, and asking it would make a new one.
    if not connection.invalidated:
        connection.info.pop(_UNSENT, None)
