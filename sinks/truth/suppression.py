"""Truth, suppression: whom and what intake lets in; keyed hashes only, so the list itself betrays nobody.

An owner and a tenant have a row from their first turn on. That row is what makes an erasure's cut exact: intake holds it
shared until its transaction ends, an erasure takes it alone, so each turn is committed either before the cut or refused.
A conversation has such a row of its own already (`conversations`), and gets one here only when it is erased; its tenant's
row then says that there are such rows, so that nobody looks for them where there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, select, update

from sinks.truth.sql import KEYS, by_keys, insert_rows
from sinks.truth.tables import subjects
from sinks.truth.together import Questions

Kind = Literal["tenant", "owner", "conversation", "memory", "turn"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One row. `key_id` is the data key that an owner's turns are sealed with now; None when suppressed.

    `partial` is a tenant's: some conversations or turns of it are suppressed.
    """

    subject_key: str
    kind: Kind
    suppressed: bool = False
    key_id: str | None = None
    erasure_id: str | None = None
    partial: bool = False


_LOOKING = (
    select(
        subjects.c.subject_key,
        subjects.c.kind,
        subjects.c.suppressed,
        subjects.c.key_id,
        subjects.c.erasure_id,
        subjects.c.partial,
    )
    .where(subjects.c.subject_key.in_(KEYS))
    .order_by(subjects.c.subject_key)
)
_HOLDING = _LOOKING.with_for_update(read=True)


def held(connection: Connection, subject_keys: Iterable[str]) -> dict[str, Subject]:
    """Those that have a row, which stays as it is until this transaction ends."""
    return _read(connection, holding(subject_keys))


def take(connection: Connection, subject_keys: Iterable[str]) -> dict[str, Subject]:
    """Those that have a row, for this transaction alone."""
    return _read(connection, by_keys(_LOOKING.with_for_update(), subject_keys))


def look(connection: Connection, subject_keys: Iterable[str]) -> dict[str, Subject]:
    """Those that have a row, without a lock."""
    return _read(connection, by_keys(_LOOKING, subject_keys))


def suppressed(connection: Connection, subject_keys: Iterable[str]) -> set[str]:
    """Which of these must not come back."""
    return {key for key, subject in look(connection, subject_keys).items() if subject.suppressed}


def add(connection: Connection, rows: Sequence[Subject], now: datetime) -> None:
    """First rows; a subject that somebody else added meanwhile raises a conflict, and the work is done again."""
    insert_rows(connection, subjects, [_row(row, now) for row in sorted(rows, key=lambda row: row.subject_key)])


def change(connection: Connection, row: Subject, now: datetime) -> None:
    """Another state of a row that the caller has taken. Updated in place: who waits for its lock must find it there."""
    values = _row(row, now)
    statement = update(subjects).where(subjects.c.subject_key == values.pop("subject_key"))
    connection.execute(statement.values(**values))


def _row(subject: Subject, now: datetime) -> dict[str, Any]:
    return {
        "subject_key": subject.subject_key,
        "kind": subject.kind,
        "suppressed": subject.suppressed,
        "key_id": subject.key_id,
        "erasure_id": subject.erasure_id,
        "partial": subject.partial,
        "changed_at": now,
    }


def holding(subject_keys: Iterable[str]) -> Questions:
    """What `held` asks; see `together.foresee`."""
    return by_keys(_HOLDING, subject_keys)


def _read(connection: Connection, questions: Questions) -> dict[str, Subject]:
    found: dict[str, Subject] = {}
    for question in questions:
        for row in connection.execute(*question):
            values: tuple[Any, ...] = tuple(row)
            found[row.subject_key] = Subject(*values)
    return found
