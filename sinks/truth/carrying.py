"""Truth, carrying: what a replay takes over from the live ledger, because no turn says it: orders of people, agents, clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, delete, func, select

from schemas import Candidate, Command, CommandKind, new_id
from sinks.truth import ledger
from sinks.truth.replays import PAGE, pages
from sinks.truth.sql import chunks, insert_rows, replace_rows
from sinks.truth.tables import claims, decisions, memories, replay_carried, retractions, turns


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
