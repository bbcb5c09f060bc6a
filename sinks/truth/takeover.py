"""Truth, take-over: what was there before the moment since which turns are judged anew goes into the schema beside as it is.

Turns, verdicts, batches and replies are copied. Claims and retractions are handed out, so that they are folded again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, Row, select

from schemas import Candidate, Channel, Outcome
from sinks.truth.carrying import Carried, taken_back
from sinks.truth.replays import pages
from sinks.truth.sql import chunks, insert_rows, replace_rows
from sinks.truth.tables import batches, claims, conversations, decisions, model_replies, retractions, turns


@dataclass(frozen=True, slots=True)
class _Page:
    """Turns that arrived before the moment, as live has them; `again` are those whose batch was cut after it."""

    rows: Sequence[Row[Any]]
    again: frozenset[str]

    @property
    def keys(self) -> list[str]:
        return [row.turn_key for row in self.rows]


def take_over(live: Connection, beside: Connection, before: datetime) -> Iterator[list[Carried]]:
    """Copy what arrived earlier than `before`; gives the claims and retractions of it, page by page."""
    query = select(turns).where(turns.c.arrived_at < before)
    touched: set[str] = set()
    for rows in pages(live, query, turns.c.turn_key):
        page = _Page(rows, _cut_since(live, rows, before))
        insert_rows(beside, turns, [_as_then(row, page) for row in rows])
        _copy_verdicts(live, beside, page.keys)
        touched |= {row.conversation_key for row in rows}
        yield [*_claims(live, page), *_retractions(live, page.keys)]
    for rows in pages(live, select(batches).where(batches.c.closed_at < before), batches.c.batch_id):
        insert_rows(beside, batches, [dict(row._mapping) for row in rows])
        replies = select(model_replies).where(model_replies.c.batch_id.in_([row.batch_id for row in rows]))
        found = [dict(row._mapping) for row in live.execute(replies.order_by(model_replies.c.id))]
        insert_rows(beside, model_replies, [{name: row[name] for name in row if name != "id"} for row in found])
    for chunk in chunks(sorted(touched)):
        _count(live, beside, chunk)


def _cut_since(live: Connection, rows: Sequence[Row[Any]], before: datetime) -> frozenset[str]:
    keys = {row.turn_key for row in rows}
    found: set[str] = set()
    for chunk in chunks(sorted({row.conversation_key for row in rows})):
        query = select(batches.c.turn_keys).where(batches.c.conversation_key.in_(chunk), batches.c.closed_at >= before)
        for held in live.execute(query).scalars():
            found |= keys.intersection(orjson.loads(held))
    return frozenset(found)


def _as_then(row: Row[Any], page: _Page) -> dict[str, Any]:
    values = dict(row._mapping)
    if row.turn_key in page.again:
        values["pending"] = True
        if row.outcome != Outcome.REMEMBERED.value:
            values |= {"outcome": Outcome.STORED.value, "reason": None}
    return values


def _copy_verdicts(live: Connection, beside: Connection, keys: Sequence[str]) -> None:
    for chunk in chunks(keys):
        rows = live.execute(select(decisions).where(decisions.c.turn_key.in_(chunk)))
        replace_rows(beside, decisions, [dict(row._mapping) for row in rows])


def _claims(live: Connection, page: _Page) -> Iterator[Carried]:
    for chunk in chunks(page.keys):
        for row in live.execute(select(claims.c.claim_id, claims.c.body).where(claims.c.turn_key.in_(chunk))):
            claim = Candidate.from_bytes(row.body.encode())
            # What the model said of a batch that was cut later is found again with that batch.
            if claim.channel is not Channel.MODEL or claim.turn_key not in page.again:
                yield Carried(row.claim_id, claim.stated_at, "claim", row.body)


def _retractions(live: Connection, keys: Sequence[str]) -> Iterator[Carried]:
    for chunk in chunks(sorted(keys)):
        query = select(retractions, claims.c.body).join(claims, claims.c.turn_key == retractions.c.target_turn_key)
        rows = live.execute(query.where(retractions.c.target_turn_key.in_(chunk)))
        for row in {row.retraction_key: row for row in rows}.values():
            yield taken_back(row)


def _count(live: Connection, beside: Connection, keys: Sequence[str]) -> None:
    """The conversations' counters, as far as turns are there."""
    held: defaultdict[str, list[Any]] = defaultdict(list)
    columns = (turns.c.conversation_key, turns.c.sent_at, turns.c.arrived_at, turns.c.tokens, turns.c.pending)
    for row in beside.execute(select(*columns).where(turns.c.conversation_key.in_(keys))):
        held[row.conversation_key].append(row)
    rows: list[dict[str, Any]] = []
    for row in live.execute(select(conversations).where(conversations.c.conversation_key.in_(keys))):
        there = held[row.conversation_key]
        waiting = [item for item in there if item.pending]
        whole = len(there) == row.turn_count
        rows.append(
            dict(row._mapping)
            | {
                "last_sent_at": max(item.sent_at for item in there),
                "turn_count": len(there),
                "pending_count": len(waiting),
                "pending_tokens": sum(item.tokens for item in waiting),
                "first_pending_at": min((item.arrived_at for item in waiting), default=None),
                "ended": row.ended and whole,
                "recent": row.recent if whole else "",
            }
        )
    replace_rows(beside, conversations, rows)
