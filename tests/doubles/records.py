"""Tests, doubles: well-formed turns, claims, memories and letters; a test names only what it is about."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from processors.resolution import Cell, Change, Entry, advance
from schemas import (
    Audit,
    Candidate,
    ChangeKind,
    DeadLetter,
    ExtractionBatch,
    Interval,
    Memory,
    Outcome,
    Turn,
    digest,
    new_id,
)
from sinks.truth import turns

T0 = datetime(2026, 1, 5, 9, 0, 0, 123456, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """A moment, in minutes after the tests' morning."""
    return T0 + timedelta(minutes=minutes)


def turn(number: int = 1, **fields: Any) -> Turn:
    """Turn `number` of a conversation, said in minute `number`."""
    given: dict[str, Any] = {
        "tenant": "acme",
        "conversation_id": "c1",
        "turn_id": f"t{number}",
        "user_id": "ann",
        "role": "user",
        "text": f"turn {number}",
        "sent_at": at(number),
    }
    return Turn.model_validate(given | fields)


def turn_row(said: Turn, **fields: Any) -> dict[str, Any]:
    """The row of a turn that waits for a batch."""
    given: dict[str, Any] = {
        "arrived_at": said.sent_at,
        "content_hash": digest(said.text),
        "tokens": 3,
        "pending": True,
        "retracts": False,
        "outcome": Outcome.STORED,
        "reason": None,
    }
    return turns.turn_row(said, **(given | fields))


def batch(held: list[Turn], **fields: Any) -> ExtractionBatch:
    """A closed batch of these turns."""
    given: dict[str, Any] = {
        "batch_id": digest(*(item.turn_key for item in held)),
        "tenant": held[0].tenant,
        "conversation_id": held[0].conversation_id,
        "conversation_key": held[0].conversation_key,
        "turns": held,
        "language": "en",
        "token_estimate": 3 * len(held),
        "closed_by": "turns",
        "closed_at": held[-1].sent_at,
    }
    return ExtractionBatch.model_validate(given | fields)


def claim(number: int = 1, **fields: Any) -> Candidate:
    """A claim of the owner's residence, made in turn `number`."""
    given: dict[str, Any] = {
        "candidate_id": new_id("claim", str(number)),
        "tenant": "acme",
        "owner": "ann",
        "namespace": "user/ann/profile",
        "conversation_id": "c1",
        "source_turn_ids": (f"t{number}",),
        "turn_key": turn(number).turn_key,
        "channel": "rule",
        "writer": "rules:1",
        "type": "semantic",
        "category": "fact",
        "attribute": "residence",
        "value": "Leeds",
        "cardinality": "single",
        "text": "lives in Leeds",
        "language": "en",
        "evidence": ({"turn_id": f"t{number}", "turn_key": turn(number).turn_key, "quote": "Leeds"},),
        "source_kind": "user_statement",
        "event_time": at(number),
        "stated_at": at(number),
        "timezone": "UTC",
        "confidence": 0.95,
    }
    return Candidate.model_validate(given | fields)


def memory(name: str = "m", **fields: Any) -> Memory:
    """An active memory whose id comes from `name`."""
    given: dict[str, Any] = {
        "id": new_id("memory", name),
        "tenant": "acme",
        "owner": "ann",
        "namespace": "user/ann/profile",
        "type": "semantic",
        "category": "fact",
        "subject": "user",
        "attribute": "residence",
        "value": "Leeds",
        "cardinality": "single",
        "text": "lives in Leeds",
        "language": "en",
        "status": "active",
        "version": 1,
        "confidence": 0.95,
        "sensitivity": "personal",
        "source_kind": "user_statement",
        "intervals": (Interval(start=at(1)),),
        "first_stated_at": at(1),
        "last_stated_at": at(1),
        "audit": Audit(writer="rules:1", decision="accept", policy_version="1"),
    }
    return Memory.model_validate(given | fields)


def change(state: Memory, kind: ChangeKind = ChangeKind.CREATED, cause: str = "test") -> Change:
    """One version to write."""
    return Change(state, kind, cause)


def cell_of(*claims: Candidate) -> Cell:
    """The folded state of these claims."""
    folded = advance(Cell(), [Entry.of(item) for item in claims])
    assert folded is not None
    return folded[0]


def letter(name: str = "1", **fields: Any) -> DeadLetter:
    """A dead letter whose id comes from `name`."""
    given: dict[str, Any] = {
        "dead_letter_id": new_id("dead", name),
        "stage": "ingest",
        "reason": "not_json",
        "detail": "the message is not valid UTF-8 JSON",
        "where": f"turns:0:{name}",
        "topic": "turns",
        "raw": base64.b64encode(b"\xff\x00 raw").decode(),
        "failed_at": at(1),
    }
    return DeadLetter.model_validate(given | fields)
