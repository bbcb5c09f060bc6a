"""Truth, replays: how far a replay is, what it finds recorded in the live schema, and both of them side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, delete, func, select

from schemas import ExtractionBatch
from sinks.truth import turns as turn_store
from sinks.truth.sql import insert_rows, replace_rows
from sinks.truth.tables import (
    batches,
    memories,
    model_replies,
    replay_mark,
    replay_positions,
    replays,
    turns,
)

PAGE = 500


@dataclass(frozen=True, slots=True)
class Judging:
    """What judges the turns: the texts of the rule files by language, the digest of them, the prompt."""

    rules: Mapping[str, str]
    rules_version: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is replayed, and how; it never changes.

    `since` None: from the beginning of the log. `judging` is the replay's own, `before` that of the schema that was live when
    it began.
    """

    topic: str
    since: datetime | None
    judging: Judging
    before: Judging


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is.

    `clock` is the event clock: all that happened up to it has been done. `caught_up_at` is when a run last reached the
    end of the log, None before the first did. Batches by where their answers came from.
    """

    clock: datetime
    turns: int = 0
    commands: int = 0
    batches: Mapping[str, int] = field(default_factory=dict)
    caught_up_at: datetime | None = None

    def counted(self, name: str, count: int) -> Progress:
        """`count` more batches of this kind."""
        return replace(self, batches={**self.batches, name: self.batches.get(name, 0) + count})


def plan(connection: Connection) -> Plan | None:
    """None where nothing was begun."""
    body = _body(connection, "plan")
    if body is None:
        return None
    since = body["since"]
    return Plan(
        body["topic"],
        datetime.fromisoformat(since) if since else None,
        Judging(**body["judging"]),
        Judging(**body["before"]),
    )


def progress(connection: Connection) -> Progress:
    """Raises LookupError where nothing was begun."""
    body = _body(connection, "progress")
    if body is None:
        raise LookupError("there is no replay")
    times = {name: datetime.fromisoformat(body[name]) for name in ("clock", "caught_up_at") if body[name]}
    return Progress(**(body | times))


def begin(connection: Connection, new: Plan, at: Progress, positions: Mapping[int, int]) -> None:
    """The first rows of a replay."""
    insert_rows(connection, replays, [{"name": "plan", "body": orjson.dumps(asdict(new)).decode()}])
    insert_rows(connection, replay_mark, [{"name": "replayed"}])
    save(connection, at, positions)


def save(connection: Connection, at: Progress, positions: Mapping[int, int]) -> None:
    """In the transaction of the effects: after a death a replay goes on exactly where they end."""
    replace_rows(connection, replays, [{"name": "progress", "body": orjson.dumps(asdict(at)).decode()}])
    rows = [{"partition": partition, "next_offset": offset} for partition, offset in sorted(positions.items())]
    replace_rows(connection, replay_positions, rows)


def positions(connection: Connection) -> dict[int, int]:
    """The next offset of each partition."""
    return {row.partition: row.next_offset for row in connection.execute(select(replay_positions))}


def switched(live: Connection) -> bool:
    """Whether the live tables are those that a replay made."""
    return live.execute(select(func.count()).select_from(replay_mark)).scalar_one() > 0


def unmark(live: Connection) -> None:
    """They are the live tables for good."""
    live.execute(delete(replay_mark))


def _body(connection: Connection, name: str) -> dict[str, Any] | None:
    body = connection.execute(select(replays.c.body).where(replays.c.name == name)).scalar()
    return orjson.loads(body) if body is not None else None


def pages(connection: Connection, query: Select[Any], key: Any, size: int = PAGE) -> Iterator[Sequence[Row[Any]]]:
    """The rows of `query` in the order of the unique column `key`, which it selects, `size` at a time."""
    after: Any = None
    while True:
        page = query if after is None else query.where(key > after)
        rows = connection.execute(page.order_by(key).limit(size)).all()
        if rows:
            yield rows
        if len(rows) < size:
            return
        after = getattr(rows[-1], key.name)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the live schema knows of a batch: its status (None: it never closed this one), and the model's replies in order."""

    status: str | None
    replies: tuple[dict[str, Any], ...] = ()


def recorded(live: Connection, batch_id: str) -> Recorded:
    """Of one batch."""
    status = live.execute(select(batches.c.status).where(batches.c.batch_id == batch_id)).scalar()
    if status is None:
        return Recorded(None)
    query = select(model_replies).where(model_replies.c.batch_id == batch_id).order_by(model_replies.c.id)
    rows = [dict(row._mapping) for row in live.execute(query)]
    return Recorded(status, tuple({name: row[name] for name in row if name != "id"} for row in rows))


def cut_later(live: Connection, conversation_key: str, turn_key: str) -> bool:
    """Whether the live schema closed this turn into some batch."""
    holds = batches.c.turn_keys.like(f'%"{turn_key}"%')
    query = select(batches.c.batch_id).where(batches.c.conversation_key == conversation_key, holds).limit(1)
    return live.execute(query).first() is not None


def unanswered(connection: Connection, statuses: Sequence[str], after: str, limit: int) -> list[ExtractionBatch]:
    """Batches that have no answer, by id, with their turns as they are now; deleted ones left out."""
    query = select(batches).where(batches.c.status.in_(statuses), batches.c.batch_id > after)
    found: list[ExtractionBatch] = []
    for row in connection.execute(query.order_by(batches.c.batch_id).limit(limit)):
        bodies = turn_store.bodies(connection, keys := orjson.loads(row.turn_keys))
        held = tuple(bodies[key] for key in keys if key in bodies and not bodies[key].deleted)
        names = ("batch_id", "tenant", "conversation_id", "conversation_key", "language", "token_estimate")
        given = {name: getattr(row, name) for name in (*names, "closed_by", "closed_at")}
        found.append(ExtractionBatch(turns=held, **given))
    return found


def missing_turns(live: Connection, beside: Connection) -> int:
    """Turns that the live schema has and the one beside has not."""
    missing = 0
    for rows in pages(live, select(turns.c.turn_key), turns.c.turn_key):
        keys = [row.turn_key for row in rows]
        missing += len(set(keys) - set(turn_store.known(beside, keys)))
    return missing


@dataclass(frozen=True, slots=True)
class Held:
    """A memory's row, as far as a comparison needs it."""

    id: str
    owner_key: str
    slot_key: str
    cell_key: str
    version: int
    body: str


def side_by_side(live: Connection, beside: Connection) -> Iterator[tuple[Held | None, Held | None]]:
    """Every memory that either schema has, in the order of the ids: (live, beside)."""
    here, there = _held(live), _held(beside)
    one, other = next(here, None), next(there, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.id < other.id):
            yield one, None
            one = next(here, None)
        elif one is None or other.id < one.id:
            yield None, other
            other = next(there, None)
        else:
            yield one, other
            one, other = next(here, None), next(there, None)


def _held(connection: Connection) -> Iterator[Held]:
    columns = (memories.c.id, memories.c.owner_key, memories.c.slot_key, memories.c.cell_key)
    query = select(*columns, memories.c.version, memories.c.body)
    for rows in pages(connection, query, memories.c.id):
        yield from (Held(row.id, row.owner_key, row.slot_key, row.cell_key, row.version, row.body) for row in rows)
