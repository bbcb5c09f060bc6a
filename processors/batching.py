"""Judgement of batches: which waiting turns of a conversation go to the model together (SPEC W5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from schemas import digest


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Hard limits: no model's word moves them. `max_age` runs from the arrival of the first waiting turn."""

    max_turns: int = 5
    max_tokens: int = 4000
    max_age: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.max_turns < 1 or self.max_tokens < 1:
            raise ValueError("a batch holds at least one turn and one token")


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """A turn that waits for extraction. An edit before its batch closes replaces it under a higher revision."""

    turn_key: str
    revision: int
    tokens: int
    sent_at: datetime
    arrived_at: datetime


@dataclass(frozen=True, slots=True)
class ClosedBatch:
    """Turns that go to the model in one call; `closed_by` is turns, tokens, time or end."""

    batch_id: str
    turns: tuple[PendingTurn, ...]
    tokens: int
    closed_by: str


def batch_id(turns: Iterable[PendingTurn]) -> str:
    """Digest of the turn keys and revisions in order, so that two writers that close the same batch agree on it."""
    return digest(*(part for turn in turns for part in (turn.turn_key, str(turn.revision))))


def cut(
    pending: Sequence[PendingTurn], limits: BatchLimits, *, end: bool, now: datetime | None = None
) -> tuple[list[ClosedBatch], list[PendingTurn]]:
    """Close what is full, from the left and in the given order; returns the closed batches and the turns still waiting.

    A turn that alone is above `max_tokens` is a batch of its own. With `end` the rest closes too; with `now` it closes
    once its oldest turn is `max_age` old. Cutting as turns arrive and cutting them all at once give the same batches.
    """
    closed: list[ClosedBatch] = []
    waiting: list[PendingTurn] = []
    tokens = 0

    def close(reason: str) -> None:
        nonlocal tokens
        closed.append(ClosedBatch(batch_id(waiting), tuple(waiting), tokens, reason))
        waiting.clear()
        tokens = 0

    for turn in pending:
        if waiting and tokens + turn.tokens > limits.max_tokens:
            close("tokens")
        waiting.append(turn)
        tokens += turn.tokens
        if len(waiting) >= limits.max_turns:
            close("turns")
        elif tokens >= limits.max_tokens:
            close("tokens")
    due = due_at(waiting, limits)
    if due is not None and end:
        close("end")
    elif due is not None and now is not None and now >= due:
        close("time")
    return closed, waiting


def due_at(pending: Iterable[PendingTurn], limits: BatchLimits) -> datetime | None:
    """When the waiting turns must be closed whatever their number; None when nothing waits."""
    oldest = min((turn.arrived_at for turn in pending), default=None)
    return None if oldest is None else oldest + limits.max_age
