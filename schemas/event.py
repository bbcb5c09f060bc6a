"""Contracts: `memory_updated`, the event every cooperating agent consumes (SPEC W11)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from schemas.base import Contract, UtcDatetime
from schemas.memory import Memory


class ChangeKind(StrEnum):
    """What happened to the memory."""

    CREATED = "created"
    UPDATED = "updated"
    CONFIRMED = "confirmed"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    DELETED = "deleted"
    RESTORED = "restored"
    QUARANTINED = "quarantined"


class MemoryUpdated(Contract):
    """The whole new state. (`memory.id`, `memory.version`) identifies the event; a consumer applies it once.

    `owner_seq` counts the events of one owner without gaps, so a consumer can tell that it missed one.
    `replaces` names the memories that this change retired.
    """

    # What was accepted as a memory fits into its event.
    MAX_NESTING: ClassVar[int] = Contract.MAX_NESTING + 1

    event_id: str
    change: ChangeKind
    memory: Memory
    owner_seq: int
    cause: str
    cause_turn_ids: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    occurred_at: UtcDatetime
