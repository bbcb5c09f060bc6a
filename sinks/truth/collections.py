"""Truth, collections: which vector collections exist, which one is live, what is to be done with them (SPEC L5).

building → verified → live → previous → dropping → dropped; a rollback turns live → verified and previous → live. There is
one live collection and at most one other: a unique index on `place` says so, whoever asks at once. Every change of state
is one transaction over all rows, locked in the order of their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from processors.exceptions import PoisonError
from sinks.truth.engine import Truth
from sinks.truth.tables import collections
from sinks.truth.together import Question, answers


class State(StrEnum):
    """Where a collection stands."""

    BUILDING = "building"
    VERIFIED = "verified"
    LIVE = "live"
    PREVIOUS = "previous"
    DROPPING = "dropping"
    DROPPED = "dropped"


class Task(StrEnum):
    """What the owner of the vectors is asked to do with a collection."""

    BUILD = "build"
    VERIFY = "verify"
    REPAIR = "repair"
    DROP = "drop"


class Source(StrEnum):
    """What a collection is built from."""

    TRUTH = "truth"
    EVENTS = "events"


_LIVE, _OTHER = "live", "other"


@dataclass(frozen=True, slots=True)
class Listed:
    """Of a collection, what those who write to it or ask it need."""

    name: str
    status: State
    embedder: str
    model: str
    dimension: int
    calibration: str | None


@dataclass(frozen=True, slots=True)
class CollectionRow(Listed):
    """A collection as truth knows it. `rate` is memories a second, `done` and `total` are counts of the task at hand."""

    task: Task | None
    source: Source
    rate: int | None
    holder: str | None
    held_until: datetime | None
    reached: str
    done: int
    total: int
    missed: int
    repaired: int
    report: Mapping[str, Any] | None
    error: str | None
    started_at: datetime
    built_at: datetime | None
    verified_at: datetime | None
    switched_at: datetime | None
    dropped_at: datetime | None

    @property
    def owes(self) -> int:
        """Flushes that did not reach it and that no repair has made good yet."""
        return max(0, self.missed - self.repaired)

    def held(self, now: datetime) -> bool:
        """Whether somebody is at work on its task."""
        return self.holder is not None and self.held_until is not None and self.held_until > now


def refusal(words: str) -> PoisonError:
    """What an order that cannot be followed is answered with; nothing was changed."""
    return PoisonError("reindex_refused", words)


_EXISTING = select(collections).where(collections.c.status != State.DROPPED.value)
_LISTED = _EXISTING.with_only_columns(*(collections.c[field.name] for field in fields(Listed)))


def existing(connection: Connection) -> list[CollectionRow]:
    """Every collection that may still hold vectors, the live one first."""
    return sorted([_row(row) for row in connection.execute(_EXISTING).mappings()], key=_live_first)


def listed(truth: Truth) -> list[Listed]:
    """The same, in a transaction of its own, and no more of each than is asked for with every write."""
    with truth.reading() as connection:
        rows = answers(connection, [Question(_LISTED)])
    return sorted([Listed(name, State(status), *rest) for name, status, *rest in rows], key=_live_first)


def _live_first(row: Listed) -> tuple[bool, str]:
    return row.status is not State.LIVE, row.name


def listing(connection: Connection) -> list[CollectionRow]:
    """All of them, also the dropped ones, oldest first."""
    query = select(collections).order_by(collections.c.started_at, collections.c.name)
    return [_row(row) for row in connection.execute(query).mappings()]


def get(connection: Connection, name: str) -> CollectionRow | None:
    """One of them."""
    row = connection.execute(select(collections).where(collections.c.name == name)).mappings().one_or_none()
    return _row(row) if row is not None else None


def register_live(connection: Connection, name: str, embedder: str, model: str, dimension: int, now: datetime) -> None:
    """The first one. A second process that does it too gets a ConflictError, and reads who was faster."""
    connection.execute(delete(collections).where(_is(name), collections.c.status == State.DROPPED.value))
    row = _fresh(name, embedder, model, dimension, now)
    row |= {"status": State.LIVE.value, "place": _LIVE, "built_at": now, "verified_at": now, "switched_at": now}
    connection.execute(insert(collections), [row])


def request_build(
    connection: Connection,
    name: str,
    embedder: str,
    model: str,
    dimension: int,
    *,
    source: Source,
    rate: int | None,
    now: datetime,
) -> CollectionRow:
    """Begin a build, or take up one whose builder is gone.

    Raises:
        PoisonError: there is no live one, it is live already, or another one is there besides it.
    """
    rows = _locked(connection)
    live, other = _places(rows)
    if live is None:
        raise refusal("there is no live collection yet: start a worker once, it registers the configured embedder")
    if live.name == name:
        raise refusal(f"{name} is the live collection already; `memriver reindex repair` brings it up to truth")
    if other is not None:
        if other.name != name:
            raise refusal(_in_the_way(other))
        _refuse_built(other, now)
        # Taken up where it was; only source and pace may change.
        values: dict[str, Any] = {"rate": rate, "error": None, "task": Task.BUILD.value}
        if other.source is not source:
            values |= {"source": source.value, "reached": "", "done": 0}
        connection.execute(update(collections).where(_is(name)).values(values))
    else:
        connection.execute(delete(collections).where(_is(name)))
        row = _fresh(name, embedder, model, dimension, now)
        row |= {"place": _OTHER, "task": Task.BUILD.value, "source": source.value, "rate": rate}
        connection.execute(insert(collections), [row])
    found = get(connection, name)
    assert found is not None
    return found


def _refuse_built(other: CollectionRow, now: datetime) -> None:
    if other.status is not State.BUILDING or other.built_at is not None:
        raise refusal(_in_the_way(other))
    if other.held(now):
        raise refusal(f"{other.name} is being built already: memriver reindex status --watch")


def _in_the_way(other: CollectionRow) -> str:
    if other.status is State.DROPPING:
        return f"{other.name} is being dropped; try again when it is gone"
    next_step = {
        State.PREVIOUS: "`memriver reindex rollback` returns to it, `memriver reindex drop` makes room",
        State.VERIFIED: "`memriver reindex switch` makes it live, `memriver reindex drop` makes room",
    }.get(other.status, "`memriver reindex status` shows it, `memriver reindex drop` makes room")
    return f"there is another collection, {other.name} ({other.status.value}): {next_step}"


def request(connection: Connection, task: Task, name: str | None, now: datetime) -> CollectionRow:
    """Ask for a task on the collection beside the live one (or, for a repair, on any).

    Raises:
        PoisonError: it is not there, not ready for it, or something else is being done with it.
    """
    rows = _locked(connection)
    live, other = _places(rows)
    chosen = _chosen(rows, name, live if task is Task.REPAIR and other is None else other)
    if task is Task.DROP:
        return _request_drop(connection, chosen, now)
    if chosen.task is not None and chosen.task is not task:
        raise refusal(f"{chosen.name} is busy: {chosen.task.value}; see `memriver reindex status`")
    if chosen.status is State.DROPPING:
        raise refusal(f"{chosen.name} is being dropped")
    if chosen.built_at is None:
        raise refusal(f"{chosen.name} is not built yet: `memriver reindex start --embedder {chosen.embedder}`")
    if task is Task.VERIFY and chosen.status is State.LIVE:
        raise refusal(f"{chosen.name} is the live collection; verify compares one beside it")
    values = {"task": task.value, "done": 0, "total": 0, "error": None}
    connection.execute(update(collections).where(_is(chosen.name)).values(values))
    return _again(connection, chosen)


def _request_drop(connection: Connection, chosen: CollectionRow, now: datetime) -> CollectionRow:
    if chosen.status is State.LIVE:
        raise refusal(f"{chosen.name} is the live collection and stays; switch or roll back first")
    # Out of the writers' and the readers' list now; the vectors go when the owner of the store comes to it. Until then it
    # counts as existing, since an erasure must still reach it. Whoever is building it finds that it is no longer theirs.
    values = {
        "status": State.DROPPING.value,
        "task": Task.DROP.value,
        "holder": None,
        "held_until": None,
        "error": None,
        "switched_at": chosen.switched_at or now,
    }
    connection.execute(update(collections).where(_is(chosen.name)).values(values))
    return _again(connection, chosen)


def switch(connection: Connection, now: datetime) -> tuple[CollectionRow, CollectionRow]:
    """Make the verified one live; returns the new live one and the previous one.

    Raises:
        PoisonError: nothing is verified, or changes are missing in it.
    """
    live, other = _places(_locked(connection))
    if other is None:
        raise refusal("there is nothing to switch to: `memriver reindex start --embedder NAME` builds a collection")
    if other.status is State.PREVIOUS:
        raise refusal(f"{other.name} is the previous one: `memriver reindex rollback` returns to it")
    if other.status is not State.VERIFIED or other.task is not None:
        raise refusal(f"{other.name} is not verified: run `memriver reindex verify` first")
    return _swap(connection, live, other, was=State.PREVIOUS, now=now)


def rollback(connection: Connection, now: datetime) -> tuple[CollectionRow, CollectionRow]:
    """Return to the previous one; the other becomes verified again, and may be switched to again.

    Raises:
        PoisonError: there is no previous one, or changes are missing in it.
    """
    live, other = _places(_locked(connection))
    if other is None or other.status is not State.PREVIOUS:
        raise refusal("there is no previous collection to return to")
    return _swap(connection, live, other, was=State.VERIFIED, now=now)


def _swap(
    connection: Connection, live: CollectionRow | None, other: CollectionRow, *, was: State, now: datetime
) -> tuple[CollectionRow, CollectionRow]:
    if live is None:
        raise refusal("there is no live collection")
    for row in (live, other):
        if row.task is not None:
            raise refusal(f"{row.name} is busy: {row.task.value}; see `memriver reindex status`")
    if other.owes:
        raise refusal(
            f"{other.name} misses changes that could not be written to it: run `memriver reindex repair` first"
        )
    # One after the other, since no two rows may hold a place at any moment.
    for name, values in (
        (other.name, {"place": None}),
        (live.name, {"status": was.value, "place": _OTHER, "switched_at": now}),
        (other.name, {"status": State.LIVE.value, "place": _LIVE, "switched_at": now}),
    ):
        connection.execute(update(collections).where(_is(name)).values(values))
    return _again(connection, other), _again(connection, live)


def waiting(connection: Connection, now: datetime) -> list[CollectionRow]:
    """Collections with a task that nobody is at work on."""
    return [row for row in existing(connection) if row.task is not None and not row.held(now)]


def claim(connection: Connection, row: CollectionRow, holder: str, now: datetime, lease: timedelta) -> bool:
    """Take a task; False if somebody else was faster."""
    free = (collections.c.holder.is_(None)) | (collections.c.held_until <= now) | (collections.c.holder == holder)
    assert row.task is not None
    taken = connection.execute(
        update(collections)
        .where(_is(row.name), collections.c.task == row.task.value, free)
        .values(holder=holder, held_until=now + lease, error=None)
    )
    return taken.rowcount == 1


def keep(
    connection: Connection, name: str, holder: str, now: datetime, lease: timedelta, **progress: str | int | None
) -> bool:
    """Lengthen the lease and note progress (`reached`, `done`, `total`, `calibration`); False: it is no longer ours."""
    kept = connection.execute(
        update(collections).where(_is(name), collections.c.holder == holder).values(held_until=now + lease, **progress)
    )
    return kept.rowcount == 1


def finish(connection: Connection, name: str, holder: str, **outcome: Any) -> bool:
    """The task is over; `outcome` are columns (`status`, `report` as a mapping, `error`, times, `repaired`)."""
    values = dict(outcome)
    if values.get("report") is not None:
        values["report"] = orjson.dumps(values["report"], option=orjson.OPT_UTC_Z).decode()
    done = connection.execute(
        update(collections)
        .where(_is(name), collections.c.holder == holder)
        .values(task=None, holder=None, held_until=None, **values)
    )
    return done.rowcount == 1


def release(connection: Connection, name: str, holder: str) -> None:
    """Free the task of a holder that is known to be dead."""
    freed = update(collections).where(_is(name), collections.c.holder == holder)
    connection.execute(freed.values(holder=None, held_until=None))


def fail(connection: Connection, name: str, holder: str, error: str | None, *, again: bool) -> None:
    """The task broke off. `again` leaves it to be taken up by whoever comes next; otherwise somebody must ask anew."""
    values: dict[str, Any] = {"holder": None, "held_until": None, "error": error}
    if not again:
        values["task"] = None
    connection.execute(update(collections).where(_is(name), collections.c.holder == holder).values(values))


def dropped(connection: Connection, name: str, now: datetime) -> None:
    """Its vectors are gone; the row stays as a record."""
    connection.execute(
        update(collections)
        .where(_is(name), collections.c.status == State.DROPPING.value)
        .values(
            status=State.DROPPED.value, place=None, task=None, holder=None, held_until=None, dropped_at=now, error=None
        )
    )


def missed(connection: Connection, name: str) -> None:
    """A change could not be written to it: it is not verified any more, and no switch leads to it before a repair."""
    row = update(collections).where(_is(name))
    connection.execute(row.values(missed=collections.c.missed + 1))
    connection.execute(row.where(collections.c.status == State.VERIFIED.value).values(status=State.BUILDING.value))


def _fresh(name: str, embedder: str, model: str, dimension: int, now: datetime) -> dict[str, Any]:
    row: dict[str, Any] = {column.name: None for column in collections.columns}
    return row | {
        "name": name,
        "embedder": embedder,
        "model": model,
        "dimension": dimension,
        "status": State.BUILDING.value,
        "source": Source.TRUTH.value,
        "reached": "",
        "done": 0,
        "total": 0,
        "missed": 0,
        "repaired": 0,
        "started_at": now,
    }


def _is(name: str) -> Any:
    return collections.c.name == name


def _locked(connection: Connection) -> list[CollectionRow]:
    query = select(collections).order_by(collections.c.name).with_for_update()
    return [_row(row) for row in connection.execute(query).mappings()]


def _places(rows: Sequence[CollectionRow]) -> tuple[CollectionRow | None, CollectionRow | None]:
    live = [row for row in rows if row.status is State.LIVE]
    other = [row for row in rows if row.status not in (State.LIVE, State.DROPPED)]
    return next(iter(live), None), next(iter(other), None)


def _chosen(rows: Sequence[CollectionRow], name: str | None, otherwise: CollectionRow | None) -> CollectionRow:
    if name is None:
        if otherwise is None:
            raise refusal("there is no collection beside the live one")
        return otherwise
    for row in rows:
        if row.name == name and row.status is not State.DROPPED:
            return row
    raise refusal(f"there is no collection {name}")


def _again(connection: Connection, row: CollectionRow) -> CollectionRow:
    found = get(connection, row.name)
    assert found is not None
    return found


def _row(row: RowMapping) -> CollectionRow:
    values = {key: value for key, value in row.items() if key != "place"}
    values["status"] = State(values["status"])
    values["task"] = Task(values["task"]) if values["task"] is not None else None
    values["source"] = Source(values["source"])
    values["report"] = orjson.loads(values["report"]) if values["report"] is not None else None
    return CollectionRow(**values)
