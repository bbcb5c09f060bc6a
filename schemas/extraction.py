"""Contracts: a closed micro-batch of turns on its way to the model (SPEC W5)."""

from __future__ import annotations

from typing import ClassVar

from schemas.base import Contract, UtcDatetime
from schemas.turn import Turn


class ExtractionBatch(Contract):
    """Turns of one conversation that are extracted by one model call.

    `batch_id` is a digest of the turn keys and revisions it holds, so two writers that close
    the same batch agree on it.
    `closed_by` is one of turns, tokens, time, end.
    """

    # What was accepted as a turn fits into a batch.
    MAX_NESTING: ClassVar[int] = Contract.MAX_NESTING + 2

    batch_id: str
    tenant: str
    conversation_id: str
    conversation_key: str
    turns: tuple[Turn, ...]
    language: str
    token_estimate: int
    closed_by: str
    closed_at: UtcDatetime
