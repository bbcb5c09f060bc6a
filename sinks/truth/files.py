"""Truth, files: an erasure means the bytes, and SQLite's files are ours to look after."""

from __future__ import annotations

import sqlite3

from processors.exceptions import FatalError, TransientError
from sinks import outages
from sinks.truth.engine import Truth, translated


def forget_bytes(truth: Truth) -> None:
    """Write the database anew, so that nothing of what was deleted is left in its files; on a server, nothing happens.

    `secure_delete` alone does not do it: it zeroes rows where they lay when they were deleted, but a page from which rows had
    moved to another one before keeps copies in its gaps. The write-ahead log is emptied afterwards; while somebody reads, it
    is only begun anew, and the next writes go over what it holds. Writers wait meanwhile, and the disk needs room for a second
    copy (https://www.sqlite.org/lang_vacuum.html).

    Raises:
        TransientError: somebody else writes for longer than a writer waits, or the disk is full.
    """
    if truth.engine.dialect.name != "sqlite":
        return
    # Below SQLAlchemy, which would begin a transaction, and neither of the two can be inside one.
    with translated():
        raw = truth.engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    except sqlite3.Error as error:
        outage = outages.sqlite(error)
        if outage is None:
            raise FatalError(f"the database cannot be written anew ({type(error).__name__})") from None
        raise TransientError(
            f"the database cannot be written anew: {outage.replace('_', ' ')}", part="database", outage=outage
        ) from None
    finally:
        raw.close()
