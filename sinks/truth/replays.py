"""Truth, replays: how far a replay is, what it takes over from the live schema, and what it finds recorded there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import orjson
from sqlalchemy import Connection, Row, Select, delete, func, select

from schemas import Candidate, Command, CommandKind, ExtractionBatch, new_id
from sinks.truth import ledger
from sinks.truth import turns as turn_store
from sinks.truth.sql import chunks, insert_rows, replace_rows
from sinks.truth.tables import (
    batches,
    claims,
    decisions,
    memories,
    model_replies,
    replay_carried,
    replay_mark,
    replay_positions,
    replays,
    retractions,
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


@dataclass(frozen=True, slots=True)
class Carried:
    """A claim or a retraction that no turn caused, with the moment when it was ordered."""

    carried_id: str
    at: datetime
    kind: Literal["claim", "retraction"]
    body: str

    @property
    def item(self) -> Candidate | Command:
        """What the resolver is given."""
        raw = self.body.encode()
        return Candidate.from_bytes(raw) if self.kind == "claim" else Command.from_bytes(raw)


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


def orders(live: Connection) -> Iterator[list[Carried]]:
    """What was ordered and not said: every claim without a turn, every retraction that aims at such a claim (an undo)."""
    said = turns.c.turn_key == claims.c.turn_key
    query = select(claims.c.claim_id, claims.c.body).outerjoin(turns, said).where(turns.c.turn_key.is_(None))
    for rows in pages(live, query, claims.c.claim_id):
        found = [(row, Candidate.from_bytes(row.body.encode())) for row in rows]
        yield [Carried(row.claim_id, claim.stated_at, "claim", row.body) for row, claim in found]
    ordered = claims.c.turn_key == retractions.c.target_turn_key
    said = turns.c.turn_key == claims.c.turn_key
    query = select(retractions, claims.c.body).join(claims, ordered).outerjoin(turns, said)
    for rows in pages(live, query.where(turns.c.turn_key.is_(None)), retractions.c.retraction_key):
        # A command that made two claims is here twice.
        yield [taken_back(row) for row in {row.retraction_key: row for row in rows}.values()]


def taken_back(row: Row[Any]) -> Carried:
    """A retraction, from its row and the body of a claim that it voids."""
    claim = Candidate.from_bytes(row.body.encode())
    command = Command(
        command_id=new_id("carried", row.retraction_key),
        kind=CommandKind.RETRACT_TURN,
        tenant=claim.tenant,
        owner_kind=claim.owner_kind,
        owner=claim.owner,
        issued_by="replay",
        issued_at=claim.stated_at,
        target_turn_key=row.target_turn_key,
        retraction_turn_key=row.retraction_key,
        below_revision=row.below_revision,
        payload={"order_key": row.order_key},
    )
    return Carried(command.command_id, claim.stated_at, "retraction", command.to_bytes().decode())


def stage(connection: Connection, found: Sequence[Carried]) -> int:
    """Keep what is not done yet until its moment comes; returns how many are new."""
    known = ledger.known_claims(connection, [item.carried_id for item in found])
    for chunk in chunks([item.carried_id for item in found]):
        query = select(replay_carried.c.carried_id).where(replay_carried.c.carried_id.in_(chunk))
        known |= set(connection.execute(query).scalars())
    new = [item for item in found if item.carried_id not in known]
    insert_rows(connection, replay_carried, [asdict(item) for item in new])
    return len(new)


def due(connection: Connection, until: datetime, limit: int = PAGE) -> list[Carried]:
    """The next ones, those of the first moment among them only."""
    first = connection.execute(select(func.min(replay_carried.c.at))).scalar()
    if first is None or first > until:
        return []
    query = (
        select(replay_carried).where(replay_carried.c.at == first).order_by(replay_carried.c.carried_id).limit(limit)
    )
    return [Carried(row.carried_id, row.at, row.kind, row.body) for row in connection.execute(query)]


def done(connection: Connection, carried: Iterable[Carried]) -> None:
    """They are in the ledger now."""
    for chunk in chunks([item.carried_id for item in carried]):
        connection.execute(delete(replay_carried).where(replay_carried.c.carried_id.in_(chunk)))


def other_decisions(live: Connection) -> Iterator[list[dict[str, Any]]]:
    """The gate's verdicts on what was ordered and not said."""
    said = turns.c.turn_key == decisions.c.turn_key
    query = select(decisions).outerjoin(turns, said).where(turns.c.turn_key.is_(None))
    for rows in pages(live, query, decisions.c.candidate_id):
        yield [dict(row._mapping) for row in rows]


def keep_decisions(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Take them over."""
    replace_rows(connection, decisions, rows)


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


def expires(connection: Connection, claim: Candidate | Command) -> bool:
    """Whether a memory runs out at the moment for which this expiry was ordered; under other rules it may not."""
    if not isinstance(claim, Candidate):
        return False
    query = select(memories.c.id).where(
        memories.c.owner_key == claim.owner_key,
        memories.c.attribute == claim.attribute,
        memories.c.expires_at == claim.event_time,
    )
    return connection.execute(query.limit(1)).first() is not None


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
