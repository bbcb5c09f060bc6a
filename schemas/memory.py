"""Contracts: a memory as truth holds it, one row per owner, slot and value (SPEC W9, W10)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from schemas.base import Contract, UtcDatetime, digest
from schemas.candidate import Cardinality, Category, Evidence, MemoryType, Provenance, Sensitivity, SourceKind
from schemas.turn import OwnerKind


class Status(StrEnum):
    """Where a memory stands. Only `active` is recalled by default."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    PENDING = "pending"
    QUARANTINED = "quarantined"
    RETRACTED = "retracted"
    EXPIRED = "expired"
    DEMOTED = "demoted"
    ARCHIVED = "archived"
    DELETED = "deleted"


class Interval(Contract):
    """A time during which the value held; `end` is open while it still does."""

    start: UtcDatetime
    end: UtcDatetime | None = None


class Audit(Contract):
    """Who wrote the present version, and under which policy."""

    writer: str
    decision: str
    policy_version: str
    reasons: tuple[str, ...] = ()


class Memory(Contract):
    """The whole state of a memory at one version.

    `id` is derived from owner, slot and value; a value that returns after a gap is the same memory with one more
    interval. `version` starts at 1, grows by one with each change and never falls.
    """

    id: str
    tenant: str
    owner_kind: OwnerKind = OwnerKind.USER
    owner: str
    namespace: str
    type: MemoryType
    category: Category
    subject: str
    attribute: str
    value: str
    cardinality: Cardinality
    text: str
    language: str
    status: Status
    version: int = Field(ge=1)
    confidence: float = Field(ge=0, le=1)
    sensitivity: Sensitivity
    source_kind: SourceKind
    explicit: bool = False
    evidence: tuple[Evidence, ...] = ()
    evidence_count: int = 0
    provenance: dict[str, Provenance] = Field(default_factory=dict)
    intervals: tuple[Interval, ...] = ()
    first_stated_at: UtcDatetime
    last_stated_at: UtcDatetime
    timezone: str = "UTC"
    ttl_days: int | None = None
    expires_at: UtcDatetime | None = None
    superseded_by: str | None = None
    promotion_rule: str | None = None
    agent_id: str | None = None
    audit: Audit

    @property
    def owner_key(self) -> str:
        """Digest of the owner."""
        return digest(self.tenant, self.owner_kind, self.owner)

    @property
    def valid_from(self) -> UtcDatetime | None:
        """Start of the latest interval, or None when the value never held."""
        return self.intervals[-1].start if self.intervals else None

    @property
    def valid_to(self) -> UtcDatetime | None:
        """End of the latest interval; None while it is open."""
        return self.intervals[-1].end if self.intervals else None
