"""Contracts: something that may become a memory, with the evidence for it (SPEC W6)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from schemas.base import Contract, Digest, MessageId, UtcDatetime, digest
from schemas.turn import Id, OwnerKind


class MemoryType(StrEnum):
    """The three kinds of long-term memory; working memory never leaves the session."""

    SEMANTIC = "semantic"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"


class Category(StrEnum):
    """What a memory is about; recall quotas count by it (SPEC R4)."""

    FACT = "fact"
    PREFERENCE = "preference"
    INSTRUCTION = "instruction"
    EVENT = "event"
    GOAL = "goal"
    TASK = "task"
    LESSON = "lesson"
    NOTE = "note"


class Cardinality(StrEnum):
    """Whether a slot holds one value at a time (residence) or a set (allergies)."""

    SINGLE = "single"
    MULTI = "multi"


class Operation(StrEnum):
    """What a claim says of its slot.

    A value holds (assert), no longer holds (end), is still true (confirm), ran out (expire), fades (demote), is to be
    deleted (delete); or everything in the slot is to be forgotten (clear).
    """

    ASSERT = "assert"
    END = "end"
    CLEAR = "clear"
    CONFIRM = "confirm"
    EXPIRE = "expire"
    DEMOTE = "demote"
    DELETE = "delete"


class SourceKind(StrEnum):
    """Where a claim comes from; credibility is ordered by it (SPEC W7, W9)."""

    USER_STATEMENT = "user_statement"
    TOOL_RESULT = "tool_result"
    ASSISTANT = "assistant"
    THIRD_PARTY = "third_party"
    EXTERNAL_DOCUMENT = "external_document"


class Channel(StrEnum):
    """Which writer made the candidate."""

    RULE = "rule"
    MODEL = "model"
    COMMAND = "command"


class Sensitivity(StrEnum):
    """How far a memory may travel."""

    NORMAL = "normal"
    PERSONAL = "personal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"


class Evidence(Contract):
    """A quote and the turn it stands in; `quote` occurs in that turn's text (after masking)."""

    turn_id: str
    turn_key: str
    quote: str


class Provenance(Contract):
    """Where one field's value comes from (SPEC W6: provenance is per field, not per memory)."""

    source: SourceKind
    turn_id: str | None = None
    method: str
    confidence: float = Field(ge=0, le=1)


class Candidate(Contract):
    """A claim about one slot of one owner.

    The slot is `namespace` + `subject` + `attribute`. `value` is in the speaker's own language; `text` is the short
    sentence that recall shows. `event_time` is when the claim holds from, in UTC; `timezone` is the speaker's zone. Lengths
    are what truth can hold: a longer one is refused here and never reaches a transaction that it would break.
    """

    candidate_id: MessageId
    tenant: Id
    owner_kind: OwnerKind = OwnerKind.USER
    owner: Id
    namespace: str = Field(max_length=1024)
    conversation_id: str
    source_turn_ids: tuple[str, ...]
    turn_key: Digest
    turn_revision: int = 0
    # Place among the claims of one turn, so that "not in Beijing any more, moved to Shanghai" keeps its order.
    position: int = 0
    agent_id: str | None = None
    trace_id: str | None = None

    channel: Channel
    writer: str
    operation: Operation = Operation.ASSERT
    type: MemoryType
    category: Category
    subject: str = Field(default="user", max_length=255)
    attribute: str = Field(max_length=64)
    value: str
    cardinality: Cardinality = Cardinality.MULTI
    text: str
    language: str = Field(max_length=8)
    evidence: tuple[Evidence, ...]
    source_kind: SourceKind
    explicit: bool = False

    event_time: UtcDatetime
    stated_at: UtcDatetime
    timezone: str = Field(max_length=64)
    valid_to: UtcDatetime | None = None
    ttl_days: int | None = None

    confidence: float = Field(ge=0, le=1)
    sensitivity: Sensitivity = Sensitivity.NORMAL
    promotion_rule: str | None = None
    consent: bool | None = None
    provenance: dict[str, Provenance] = Field(default_factory=dict)

    # The policy gate's verdict travels with the candidate, so that the resolver stays the only writer of memories.
    decision: str = Field(default="accept", max_length=16)
    decision_reasons: tuple[str, ...] = ()
    policy_version: str = ""

    @property
    def owner_key(self) -> str:
        """Digest of the owner: the Kafka key of `candidates` and `commands`."""
        return digest(self.tenant, self.owner_kind, self.owner)
