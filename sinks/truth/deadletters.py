"""Truth, dead letters: messages that could not be processed, with their bytes and with what people did about them.

waiting ──redrive──▶ redriven ──processed──▶ resolved
   ▲ │                  │
   │ └──drop──▶ dropped │
   └────failed again────┘   the same letter, one attempt more
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from schemas import DeadLetter, new_id
from sinks.truth.sql import chunks, exactly, insert_rows
from sinks.truth.tables import dead_letter_log, dead_letters

_MAX_NAME = 255
_ORDER = (dead_letters.c.first_failed_at, dead_letters.c.dead_letter_id)


class LetterStatus(StrEnum):
    """Where a dead letter stands. Redriven is on its way through the pipeline; the last two are final."""

    WAITING = "waiting"
    REDRIVEN = "redriven"
    RESOLVED = "resolved"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a message that was sent again carries: whose letter it is, and which attempt this is (2 or more)."""

    dead_letter_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant; what is None is no restriction. Times are those of the latest failure."""

    status: LetterStatus | None = LetterStatus.WAITING
    stage: str | None = None
    topic: str | None = None
    reason: str | None = None
    tenant: str | None = None
    failed_before: datetime | None = None
    failed_after: datetime | None = None

    def where(self) -> ColumnElement[bool]:
        """The condition."""
        columns = dead_letters.c
        given: list[ColumnElement[bool]] = [
            exactly(column, value)
            for column, value in (
                (columns.status, self.status),
                (columns.stage, self.stage),
                (columns.topic, self.topic),
                (columns.reason, self.reason),
                (columns.tenant, self.tenant),
            )
            if value is not None
        ]
        if self.failed_before is not None:
            given.append(columns.failed_at < self.failed_before)
        if self.failed_after is not None:
            given.append(columns.failed_at >= self.failed_after)
        return and_(True, *given)


def bytes_digest(raw: bytes) -> str:
    """What stands for a message's bytes."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def letter_id(stage: str, place: str, raw: bytes) -> str:
    """The id of a first failure: a redelivery makes the same one.

    The bytes are part of it because a place is not for ever: a topic that is made anew counts from 0 again.
    """
    return new_id("dead", stage, place, bytes_digest(raw))


def put(connection: Connection, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Write those that are not there yet; returns all of them as they are filed.

    A letter with more than one attempt says that it was redriven. It goes back to the letter it came from, if that one is
    on its way with the very same bytes. Anything else that claims so is filed as a letter of its own: a foreign header must
    not bring a letter to disappear in another one.
    """
    unique = {(letter.dead_letter_id, letter.attempts): letter for letter in letters}
    rows = _rows(connection, (letter.dead_letter_id for letter in unique.values()))
    filed: dict[tuple[str, int], DeadLetter] = {}
    new: dict[str, DeadLetter] = {}
    for key, letter in unique.items():
        row = rows.get(letter.dead_letter_id)
        if letter.attempts > 1 and not _is_of(letter, row):
            own = letter_id(letter.stage, letter.where, letter.raw_bytes)
            letter = letter.model_copy(update={"dead_letter_id": own, "attempts": 1})
            row = _rows(connection, [own]).get(own)
        filed[key] = letter
        if row is None:
            new.setdefault(letter.dead_letter_id, letter)
        elif row["status"] == LetterStatus.REDRIVEN and letter.attempts == row["attempts"] + 1:
            _fail_again(connection, letter)
    insert_rows(connection, dead_letters, [_row(letter) for letter in new.values()])
    _log(
        connection, [_entry(letter, "failed", letter.stage, letter.reason, letter.failed_at) for letter in new.values()]
    )
    return [filed[letter.dead_letter_id, letter.attempts] for letter in letters]


def _is_of(letter: DeadLetter, row: dict[str, Any] | None) -> bool:
    # An importer's letter goes to a stage, which may refuse it in its turn.
    if row is None or row["stage"] not in (letter.stage, "import"):
        return False
    sent = bytes_digest(letter.raw_bytes)
    return letter.attempts <= row["attempts"] + 1 and sent in (row["sent_digest"], bytes_digest(row["raw"]))


def _fail_again(connection: Connection, letter: DeadLetter) -> None:
    values = {
        "status": LetterStatus.WAITING.value,
        # An importer's letter is the stage's from now on: it was read, and refused further on.
        "stage": letter.stage,
        "reason": letter.reason,
        "detail": letter.detail,
        "place": letter.where[:512],
        "attempts": letter.attempts,
        "failed_at": letter.failed_at,
        "sent_digest": None,
        "sent_at": None,
    }
    failed = connection.execute(
        update(dead_letters)
        .where(
            dead_letters.c.dead_letter_id == letter.dead_letter_id,
            dead_letters.c.status == LetterStatus.REDRIVEN.value,
            dead_letters.c.attempts == letter.attempts - 1,
        )
        .values(**values)
    )
    if failed.rowcount:
        _log(connection, [_entry(letter, "failed", letter.stage, letter.reason, letter.failed_at)])


def _row(letter: DeadLetter) -> dict[str, Any]:
    raw = letter.raw_bytes
    return {
        "dead_letter_id": letter.dead_letter_id,
        "stage": letter.stage,
        "reason": letter.reason,
        "detail": letter.detail,
        "place": letter.where[:512],
        "topic": letter.topic,
        "message_key": letter.key[:64] if letter.key else None,
        "tenant": _tenant_of(raw),
        "attempts": letter.attempts,
        "raw": raw,
        "original_bytes": letter.original_bytes,
        "mended": None,
        "first_failed_at": letter.failed_at,
        "failed_at": letter.failed_at,
        "status": LetterStatus.WAITING.value,
        "sent_digest": None,
        "sent_at": None,
    }


def _tenant_of(raw: bytes) -> str | None:
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    tenant = data.get("tenant") if isinstance(data, dict) else None
    return tenant if isinstance(tenant, str) and 0 < len(tenant) <= _MAX_NAME else None


def _rows(connection: Connection, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for chunk in chunks(dict.fromkeys(ids)):
        query = select(dead_letters).where(dead_letters.c.dead_letter_id.in_(chunk))
        found.update((row.dead_letter_id, dict(row._mapping)) for row in connection.execute(query))
    return found


def _entry(letter: DeadLetter, action: str, by: str, note: str, at: datetime) -> dict[str, Any]:
    return {
        "dead_letter_id": letter.dead_letter_id,
        "action": action,
        "attempt": letter.attempts,
        "actor": by,
        "note": note,
        "at": at,
    }


def _log(connection: Connection, entries: Sequence[dict[str, Any]]) -> None:
    insert_rows(connection, dead_letter_log, entries)


def listing(
    connection: Connection, chosen: LetterFilter | None = None, *, after: str | None = None, limit: int = 200
) -> list[dict[str, Any]]:
    """Dead letters with their bytes, those that failed first first; `after` is the last id of the page before."""
    first, one = _ORDER
    query = select(dead_letters).where((chosen or LetterFilter()).where())
    if after is not None:
        # By the first failure, which never moves: a letter that fails again between two pages is on neither twice.
        at = connection.execute(select(first).where(one == after)).scalar()
        query = query.where(or_(first > at, and_(first == at, one > after)))
    return [dict(row._mapping) for row in connection.execute(query.order_by(*_ORDER).limit(limit))]


def ids(connection: Connection, chosen: LetterFilter, *, limit: int, unsent: bool = False) -> list[str]:
    """As `listing`, the ids alone. `unsent` adds those that a command took and the broker never confirmed."""
    where = chosen.where()
    if unsent:
        taken = replace(chosen, status=LetterStatus.REDRIVEN).where()
        where = or_(where, and_(taken, dead_letters.c.sent_at.is_(None)))
    query = select(dead_letters.c.dead_letter_id).where(where)
    return list(connection.execute(query.order_by(*_ORDER).limit(limit)).scalars())


def get(connection: Connection, dead_letter_id: str) -> dict[str, Any] | None:
    """One dead letter."""
    return _rows(connection, [dead_letter_id]).get(dead_letter_id)


def fetch(connection: Connection, dead_letter_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Those of them that there are, in the order asked for."""
    wanted = list(dict.fromkeys(dead_letter_ids))
    rows = _rows(connection, wanted)
    return [rows[item] for item in wanted if item in rows]


def log(connection: Connection, dead_letter_id: str) -> list[dict[str, Any]]:
    """What happened to a letter, oldest first: action, attempt, actor, note, at."""
    names = ("action", "attempt", "actor", "note", "at")
    query = select(*(dead_letter_log.c[name] for name in names)).where(
        dead_letter_log.c.dead_letter_id == dead_letter_id
    )
    return [dict(zip(names, row, strict=True)) for row in connection.execute(query.order_by(dead_letter_log.c.id))]


def redrive(
    connection: Connection, dead_letter_id: str, sent: bytes, *, mended: bool, by: str, now: datetime
) -> int | None:
    """Take a letter for sending; returns the number of the attempt, None if it is not waiting (any more).

    One that another command took and whose message the broker never confirmed may be taken again, with the same bytes.
    """
    row = connection.execute(
        select(dead_letters.c.status, dead_letters.c.attempts, dead_letters.c.sent_digest, dead_letters.c.sent_at)
        .where(dead_letters.c.dead_letter_id == dead_letter_id)
        .with_for_update()
    ).one_or_none()
    if row is None:
        return None
    attempt = int(row.attempts) + 1
    if row.status == LetterStatus.REDRIVEN and row.sent_at is None and row.sent_digest == bytes_digest(sent):
        return attempt
    if row.status != LetterStatus.WAITING:
        return None
    values: dict[str, Any] = {"status": LetterStatus.REDRIVEN.value, "sent_digest": bytes_digest(sent), "sent_at": None}
    entries = [("redriven", attempt)]
    if mended:
        values["mended"] = sent
        entries.insert(0, ("mended", attempt))
    connection.execute(update(dead_letters).where(dead_letters.c.dead_letter_id == dead_letter_id).values(**values))
    _log(
        connection,
        [
            {"dead_letter_id": dead_letter_id, "action": action, "attempt": number, "actor": by, "note": "", "at": now}
            for action, number in entries
        ],
    )
    return attempt


def sent(connection: Connection, attempts: Iterable[Redriven], now: datetime) -> None:
    """The broker has them."""
    for item in attempts:
        # Whatever became of it meanwhile: a letter that failed once more is at the next attempt, and is left alone.
        connection.execute(
            update(dead_letters)
            .where(dead_letters.c.dead_letter_id == item.dead_letter_id, dead_letters.c.attempts == item.attempt - 1)
            .values(sent_at=now)
        )


def resolve(connection: Connection, stage: str, processed: Iterable[tuple[Redriven, bytes]], now: datetime) -> None:
    """These messages went through. A letter that the same transaction has found wanting again is waiting, and stays so."""
    for item, raw in processed:
        done = connection.execute(
            update(dead_letters)
            .where(
                dead_letters.c.dead_letter_id == item.dead_letter_id,
                dead_letters.c.status == LetterStatus.REDRIVEN.value,
                dead_letters.c.attempts == item.attempt - 1,
                dead_letters.c.sent_digest == bytes_digest(raw),
            )
            .values(status=LetterStatus.RESOLVED.value)
        )
        if done.rowcount:
            entry = {"action": "resolved", "attempt": item.attempt, "actor": stage, "note": "", "at": now}
            _log(connection, [{"dead_letter_id": item.dead_letter_id, **entry}])


def drop(connection: Connection, dead_letter_ids: Iterable[str], *, why: str, by: str, now: datetime) -> list[str]:
    """Give up on waiting letters; the bytes and the reason stay. Returns the ids of those that were waiting."""
    dropped: list[str] = []
    for chunk in chunks(dict.fromkeys(dead_letter_ids)):
        columns = (dead_letters.c.dead_letter_id, dead_letters.c.attempts)
        query = select(*columns).where(
            dead_letters.c.dead_letter_id.in_(chunk), dead_letters.c.status == LetterStatus.WAITING.value
        )
        rows = connection.execute(query.with_for_update()).all()
        found = [row.dead_letter_id for row in rows]
        if not found:
            continue
        statement = update(dead_letters).where(dead_letters.c.dead_letter_id.in_(found))
        connection.execute(statement.values(status=LetterStatus.DROPPED.value))
        _log(
            connection,
            [
                {"dead_letter_id": row.dead_letter_id, "action": "dropped", "attempt": row.attempts, "actor": by}
                | {"note": why, "at": now}
                for row in rows
            ],
        )
        dropped += found
    return dropped


def count(connection: Connection) -> int:
    """Waiting dead letters."""
    return sum(kinds(connection).values())


def kinds(connection: Connection, chosen: LetterFilter | None = None) -> dict[tuple[str, str], int]:
    """How many there are by stage and reason; waiting ones unless asked otherwise."""
    columns = (dead_letters.c.stage, dead_letters.c.reason)
    query = select(*columns, func.count()).where((chosen or LetterFilter()).where()).group_by(*columns)
    return {(str(stage), str(reason)): int(number) for stage, reason, number in connection.execute(query)}
