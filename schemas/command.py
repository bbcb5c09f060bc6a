"""Contracts: an order to the resolver from a person, an agent, the ingest stage or the life cycle (SPEC A2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from schemas.base import Contract, Digest, MessageId, UtcDatetime, digest
from schemas.turn import Id, OwnerKind


class CommandKind(StrEnum):
    """What is ordered."""

    RETRACT_TURN = "retract_turn"
    ASSERT = "assert"
    EDIT = "edit"
    CONFIRM = "confirm"
    DELETE = "delete"
    FORGET = "forget"
    RESTORE = "restore"
    EXPIRE = "expire"
    DEMOTE = "demote"
    DECIDE_REVIEW = "decide_review"
    ADOPT = "adopt"
    REPUBLISH = "republish"
    REPORT_CONFLICT = "report_conflict"
    ERASE = "erase"


class Command(Contract):
    """One order about one owner's memories.

    `expected_version` is what the writer last saw; a stale one goes to review and never wins. For `retract_turn`,
    `retraction_turn_key` is the turn that takes something back and `target_turn_key` the turn it takes back (None: nothing).
    For `report_conflict`, `payload["version"]` is the version of which two contents were seen.
    """

    command_id: MessageId
    kind: CommandKind
    tenant: Id
    owner_kind: OwnerKind = OwnerKind.USER
    owner: Id
    issued_by: str
    issued_at: UtcDatetime
    reason: str = ""
    memory_id: str | None = None
    expected_version: int | None = None
    target_turn_key: Digest | None = None
    retraction_turn_key: Digest | None = None
    # Revisions of the target below this one are void; None voids all of them.
    below_revision: int | None = None
    payload: dict[str, Any] = Field(default_factory=dict)

    @property
    def owner_key(self) -> str:
        """Digest of the owner: the Kafka key."""
        return digest(self.tenant, self.owner_kind, self.owner)
