"""Truth, merging: what a schema beside takes over from the live one before the two are exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, delete, select, update

from sinks.truth.replays import pages
from sinks.truth.sql import chunks, insert_rows, replace_rows
from sinks.truth.tables import batches, memories, memory_versions, outbox, owners, reviews

_WAITING = "waiting"
_OF_PEOPLE = ("stale_write", "forgotten", "policy_hint", "two_contents")
"""Reviews that no turn leads to: a replay cannot make them anew."""


def empty_outbox(beside: Connection) -> None:
    """What an earlier attempt prepared."""
    beside.execute(delete(outbox))


def copy_outbox(live: Connection, beside: Connection) -> None:
    """What the live workers committed and did not send yet goes first; its ids are lower."""
    for rows in pages(live, select(outbox), outbox.c.id):
        insert_rows(beside, outbox, [dict(row._mapping) for row in rows])


def take_history(live: Connection, beside: Connection, memory_ids: Sequence[str]) -> None:
    """The versions of these memories as they were published, instead of those that the replay counted."""
    for chunk in chunks(memory_ids):
        beside.execute(delete(memory_versions).where(memory_versions.c.memory_id.in_(chunk)))
        query = select(memory_versions).where(memory_versions.c.memory_id.in_(chunk))
        insert_rows(beside, memory_versions, [dict(row._mapping) for row in live.execute(query)])


def sequences(live: Connection, owner_keys: Iterable[str]) -> dict[str, int]:
    """How many events each owner has had; one without any is not in it."""
    found: dict[str, int] = {}
    for chunk in chunks(sorted(owner_keys)):
        rows = live.execute(select(owners.c.owner_key, owners.c.seq).where(owners.c.owner_key.in_(chunk)))
        found |= {row.owner_key: row.seq for row in rows}
    return found


def take_sequences(live: Connection, beside: Connection, counted: Mapping[str, int]) -> None:
    """Every owner goes on at its live count, or behind the events that are to leave."""
    beside.execute(update(owners).values(seq=0))
    for rows in pages(live, select(owners), owners.c.owner_key):
        replace_rows(beside, owners, [dict(row._mapping) for row in rows])
    for owner_key, seq in counted.items():
        beside.execute(update(owners).where(owners.c.owner_key == owner_key).values(seq=seq))


def take_answers(live: Connection, beside: Connection) -> None:
    """What people answered to questions that are there again, and the questions that only people's orders raised."""
    answer = ("status", "decided_by", "decided_at", "decision_id")
    for rows in pages(live, select(reviews), reviews.c.review_id):
        found = {row.review_id: dict(row._mapping) for row in rows}
        known = set(beside.execute(select(reviews.c.review_id).where(reviews.c.review_id.in_(found))).scalars())
        for review_id in known:
            row = found[review_id]
            if row["status"] != "open":
                values = {name: row[name] for name in answer}
                beside.execute(update(reviews).where(reviews.c.review_id == review_id).values(**values))
        others = [row for key, row in found.items() if key not in known]
        about = {row["memory_id"] for row in others if row["memory_id"] is not None}
        there = set(beside.execute(select(memories.c.id).where(memories.c.id.in_(about))).scalars())
        kept = [row for row in others if row["body"] is not None or row["kind"] in _OF_PEOPLE]
        insert_rows(beside, reviews, [row for row in kept if row["memory_id"] is None or row["memory_id"] in there])


def let_wait(live: Connection, beside: Connection) -> None:
    """Batches that nobody is asking about: `memriver replay batches` finds those that wait."""
    query = select(batches.c.batch_id).where(batches.c.status == "closed")
    for rows in pages(beside, query, batches.c.batch_id):
        ids = [row.batch_id for row in rows]
        asked = select(batches.c.batch_id).where(batches.c.batch_id.in_(ids), batches.c.status == "closed")
        flying = set(live.execute(asked).scalars())
        left = [batch_id for batch_id in ids if batch_id not in flying]
        beside.execute(update(batches).where(batches.c.batch_id.in_(left)).values(status=_WAITING))
