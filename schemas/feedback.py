"""Contracts: what happened to a memory after it was recalled (SPEC A4, R10)."""

from __future__ import annotations

from enum import StrEnum

from schemas.base import Contract, MessageId, UtcDatetime
from schemas.turn import Id, OwnerKind


class FeedbackKind(StrEnum):
    """The recalled memory was used, ignored or corrected, or something was forgotten."""

    USED = "used"
    IGNORED = "ignored"
    CORRECTED = "corrected"
    FORGOTTEN = "forgotten"


class Feedback(Contract):
    """One observation by an agent or a person."""

    feedback_id: MessageId
    kind: FeedbackKind
    tenant: Id
    owner_kind: OwnerKind = OwnerKind.USER
    owner: Id
    agent_id: str | None = None
    memory_ids: tuple[str, ...] = ()
    query: str | None = None
    correction: str | None = None
    given_at: UtcDatetime
