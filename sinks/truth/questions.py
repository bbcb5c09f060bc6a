"""Truth, questions: what a person was asked to get acquainted, so that nobody is asked twice (SPEC R9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, select, update

from sinks.truth.sql import insert_rows
from sinks.truth.tables import questions_asked


def asked(connection: Connection, owner_key: str) -> dict[str, datetime]:
    """When the person was last asked for each attribute."""
    query = select(questions_asked.c.attribute, questions_asked.c.asked_at)
    rows = connection.execute(query.where(questions_asked.c.owner_key == owner_key))
    return {row.attribute: row.asked_at for row in rows}


def claim(
    connection: Connection, owner_key: str, attributes: Sequence[str], *, now: datetime, not_since: datetime
) -> list[str]:
    """Of these attributes, those that this caller may ask for now; they count as asked from here on.

    Of two agents that ask at once one gets the question; one asked after `not_since` is not given out again.

    Raises:
        ConflictError: another agent asked for the first time at the same moment; try again.
    """
    known = asked(connection, owner_key)
    mine: list[str] = []
    for attribute in attributes:
        if attribute not in known:
            insert_rows(
                connection, questions_asked, [{"owner_key": owner_key, "attribute": attribute, "asked_at": now}]
            )
            mine.append(attribute)
            continue
        statement = update(questions_asked).where(
            questions_asked.c.owner_key == owner_key,
            questions_asked.c.attribute == attribute,
            questions_asked.c.asked_at <= not_since,
        )
        if connection.execute(statement.values(asked_at=now)).rowcount == 1:
            mine.append(attribute)
    return mine


def erase(connection: Connection, owner_keys: Iterable[str]) -> int:
    """Forget that these people were ever asked."""
    keys = sorted(set(owner_keys))
    if not keys:
        return 0
    return connection.execute(delete(questions_asked).where(questions_asked.c.owner_key.in_(keys))).rowcount
