"""Sinks, outages: the one table of what servers say while they cannot do their part. All of it is waited out.

Each of these becomes a `TransientError`: the group is tried again in place, nothing is acknowledged or dead-lettered
meanwhile, intake pauses, and `/readyz` says the word. Sources: MySQL and MariaDB error lists, SQLite result codes, Kafka's
protocol errors, Qdrant's and OpenAI's HTTP statuses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from processors.exceptions import Outage

MYSQL: Mapping[int, Outage] = {
    # lock wait, deadlock, the row changed meanwhile
    **dict.fromkeys((1020, 1205, 1213), Outage.BUSY),
    # disk full; the table is full; and the same from a file's point of view (see `database`)
    **dict.fromkeys((1021, 1114), Outage.FULL),
    # running with --read-only, in read-only mode
    **dict.fromkeys((1290, 1836), Outage.READ_ONLY),
    # of the server, of the account, of the account's resource limits
    **dict.fromkeys((1040, 1203, 1226), Outage.TOO_MANY_CONNECTIONS),
    # shutting down, killed, packets lost, refused, gone, lost, out of memory or threads
    **dict.fromkeys((1041, 1053, 1077, 1079, 1135, 1158, 1159, 1160, 1161, 1927), Outage.AWAY),
    **dict.fromkeys((2002, 2003, 2006, 2013, 2014, 2055, 4031), Outage.AWAY),
}

MYSQL_FILE_ERRORS = frozenset({3, 1026, 1030})
"""Writing a file failed; the text has the operating system's number, and 28 is a full disk."""
_NO_SPACE = ("error 28", "Errcode: 28", "errno: 28", "No space left")

SQLITE: Mapping[int, Outage] = {
    sqlite3.SQLITE_BUSY: Outage.BUSY,
    sqlite3.SQLITE_LOCKED: Outage.BUSY,
    sqlite3.SQLITE_PROTOCOL: Outage.BUSY,
    sqlite3.SQLITE_FULL: Outage.FULL,
    sqlite3.SQLITE_READONLY: Outage.READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: Outage.AWAY,
    sqlite3.SQLITE_IOERR: Outage.AWAY,
}

KAFKA: Mapping[str, Outage] = {
    "NotEnoughReplicasError": Outage.NOT_ENOUGH_REPLICAS,
    "NotEnoughReplicasAfterAppendError": Outage.NOT_ENOUGH_REPLICAS,
    # The log directory failed; a full disk is why it nearly always does.
    "KafkaStorageError": Outage.FULL,
    **dict.fromkeys(
        (
            "TopicAuthorizationFailedError",
            "ClusterAuthorizationFailedError",
            "SaslAuthenticationFailed",
            "AuthenticationFailedError",
            "PolicyViolationError",
            "MessageSizeTooLargeError",
            "RecordListTooLargeError",
        ),
        Outage.REFUSED,
    ),
}
"""By the name of the client's exception; every other one is a broker that is away."""


def database(code: object, text: str) -> Outage | None:
    """For an error of MySQL or MariaDB; None if it is no outage."""
    if not isinstance(code, int):
        return None
    if code in MYSQL_FILE_ERRORS:
        return Outage.FULL if any(word in text for word in _NO_SPACE) else None
    return MYSQL.get(code)


def sqlite(error: BaseException | None) -> Outage | None:
    """For an error of SQLite, by its primary result code; None if it is no outage."""
    code = getattr(error, "sqlite_errorcode", None)
    return SQLITE.get(code & 0xFF) if isinstance(code, int) else None


def broker(error: BaseException) -> Outage:
    """For an error of a Kafka client."""
    return KAFKA.get(type(error).__name__, Outage.AWAY)


def http(status: int, text: str = "") -> Outage | None:
    """For an answer of a vector store, a model or an embedder; None if waiting would change nothing."""
    said = text.casefold()
    if status == 507 or (status >= 500 and ("no space left" in said or "disk full" in said or "out of disk" in said)):
        return Outage.FULL
    if status == 429:
        return Outage.LIMITING
    if status in (408, 409, 425) or status >= 500:
        return Outage.AWAY
    return None


def file_system(text: str) -> Outage | None:
    """For an error of an embedded store, which has only its words."""
    said = text.casefold()
    if "no space left" in said or "os error 28" in said or "file too large" in said or "quota exceeded" in said:
        return Outage.FULL
    if "read-only file system" in said or "os error 30" in said:
        return Outage.READ_ONLY
    return None
