"""Closing batches: shared by the ingest stage (5 turns, token limit, end) and the batch clock (30 s)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection

from processors.batching import BatchLimits, PendingTurn, cut
from processors.language import of_conversation
from schemas import ExtractionBatch, Turn
from sinks.truth import batches, turns
from sinks.truth.outbox import Outgoing
from sinks.truth.turns import Conversation, Waiting


def close_batches(
    connection: Connection,
    conversations: Mapping[str, Conversation],
    limits: BatchLimits,
    now: datetime,
    *,
    flush: Collection[str] = (),
    flushed_by: str = "end",
    at_hand: Mapping[str, Turn] | None = None,
) -> list[ExtractionBatch]:
    """Cut what is due from these (locked) conversations; their counters are brought up to date in place.

    `flush` names conversations of which everything waiting goes, whatever its size; `at_hand` are
    turns by key that need not be read back.
    """
    due = [
        key
        for key, row in conversations.items()
        if key in flush or row.pending_count >= limits.max_turns or row.pending_tokens >= limits.max_tokens
    ]
    if not due:
        return []
    waiting = turns.waiting(connection, due, at_hand)
    closed: list[ExtractionBatch] = []
    for key in due:
        items = {item.turn_key: item for item in waiting.get(key, [])}
        pending = [
            PendingTurn(item.turn_key, item.revision, item.tokens, item.sent_at, item.arrived_at)
            for item in items.values()
        ]
        made, rest = cut(pending, limits, end=key in flush)
        for batch in made:
            held = [items[turn.turn_key] for turn in batch.turns]
            closed_by = flushed_by if batch.closed_by == "end" else batch.closed_by
            closed.append(_message(conversations[key], batch.batch_id, held, closed_by, now))
        row = conversations[key]
        row.pending_count, row.pending_tokens = len(rest), sum(turn.tokens for turn in rest)
        row.first_pending_at = min((turn.arrived_at for turn in rest), default=None)
    known = batches.existing(connection, [batch.batch_id for batch in closed])
    batches.insert(connection, [batch for batch in closed if batch.batch_id not in known])
    turns.mark_batched(connection, [turn.turn_key for batch in closed for turn in batch.turns])
    return closed


def _message(row: Conversation, batch_id: str, held: list[Waiting], closed_by: str, now: datetime) -> ExtractionBatch:
    return ExtractionBatch(
        batch_id=batch_id,
        tenant=row.tenant,
        conversation_id=row.conversation_id,
        conversation_key=row.conversation_key,
        turns=tuple(item.turn for item in held),
        language=of_conversation([item.turn.text for item in held]),
        token_estimate=sum(item.tokens for item in held),
        closed_by=closed_by,
        closed_at=now,
    )


def outgoing(batch: ExtractionBatch, source_partition: int = 0) -> Outgoing:
    """The batch as a message, keyed by conversation."""
    return Outgoing("batches", batch.conversation_key, batch.conversation_key, batch.to_bytes(), source_partition)
