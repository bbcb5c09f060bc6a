"""HTTP API, shapes: what each route answers, for the description at /openapi.json; tests hold every answer against them.

The answers are built in `recall.views` and are not validated again on their way out: that would cost a recall more than its
ranking. A newer server may add fields; none of these goes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from processors.access import PrincipalKind, Scope
from schemas import Category, ChangeKind, CommandKind, MemoryType, OwnerKind, Role, Sensitivity, SourceKind, Status
from schemas import UtcDatetime as Time


class EvidenceShape(BaseModel):
    """What was said, and in which turn."""

    turn_id: str
    quote: str


class MemoryShape(BaseModel):
    """A memory at one version."""

    id: str
    version: int = Field(ge=1)
    status: Status
    owner_kind: OwnerKind
    owner: str
    namespace: str
    type: MemoryType
    category: Category
    subject: str
    attribute: str
    value: str
    text: str
    language: str
    confidence: float = Field(ge=0, le=1)
    sensitivity: Sensitivity
    source: SourceKind
    valid_from: Time | None = Field(description="null: it never held")
    valid_to: Time | None
    first_stated_at: Time
    last_stated_at: Time
    expires_at: Time | None
    superseded_by: str | None
    evidence: list[EvidenceShape]
    evidence_count: int = Field(ge=0)
    writer: str


class TurnShape(BaseModel):
    """A turn that nothing was extracted from yet, with numbers masked."""

    turn_id: str
    user_id: str
    role: Role
    text: str
    sent_at: Time
    timezone: str


class FoundShape(BaseModel):
    """One result: `memory` or `turn`, as `kind` says. `parts` are the score's terms when `explain` was asked for."""

    score: float = Field(ge=0, le=1)
    kind: Literal["memory", "turn"]
    memory: MemoryShape | None = None
    turn: TurnShape | None = None
    confirm: bool = Field(default=False, description="an approved hint: ask the person before relying on it")
    parts: dict[str, float | None] | None = None
    sources: list[str] | None = Field(default=None, description="what proposed it, when `explain` was asked for")


class ClarificationShape(BaseModel):
    """What to ask the user instead of guessing, and what is offered."""

    question: str
    candidates: list[str]


class RecallShape(BaseModel):
    """Best first. `note` is the honest sentence when nothing is relevant; `degraded` names what was away meanwhile."""

    results: list[FoundShape]
    note: str | None
    clarify: ClarificationShape | None
    degraded: list[str]


class CitationShape(BaseModel):
    """The memory behind a number in the text."""

    number: int = Field(ge=1)
    id: str
    version: int = Field(ge=1)


class ContextShape(BaseModel):
    """Text for a prompt."""

    text: str
    tokens: int = Field(ge=0)
    citations: list[CitationShape]


class SummaryShape(BaseModel):
    """The summary of a conversation. `method` says who made it, None: there is none yet; `turns` it covers."""

    conversation_id: str
    method: str | None
    turns: int = Field(ge=0)
    unsummarised: int = Field(ge=0, description="turns since")
    facts: list[str]
    decisions: list[str]
    open_loops: list[str]
    key_points: list[str]
    digests: list[str] = Field(description="the last turns as lines of 80 characters")


class CommandShape(BaseModel):
    """An order on its way to the resolver; `decision` is the policy gate's word, where something was judged."""

    command_id: str
    kind: CommandKind
    memory_id: str | None
    expected_version: int | None
    decision: str | None
    reasons: list[str]
    see: str


class AcceptedShape(BaseModel):
    """Sent; it takes effect in the stream a moment later."""

    status: Literal["accepted"]
    commands: list[CommandShape]


class FeedbackShape(BaseModel):
    """Sent."""

    status: Literal["accepted"]
    feedback_id: str


class TurnAcceptedShape(BaseModel):
    """On the log."""

    status: Literal["accepted"]
    conversation_id: str
    turn_id: str
    turn_key: str
    see: str


class TurnOutcomeShape(BaseModel):
    """What became of a turn."""

    conversation_id: str
    turn_id: str
    turn_key: str
    revision: int = Field(ge=0)
    outcome: str
    reason: str | None
    arrived_at: Time


class SpokenShape(BaseModel):
    """A turn of a session; `text` is null where it is withheld."""

    turn_id: str
    user_id: str
    role: Role
    text: str | None
    withheld: bool
    sent_at: Time
    timezone: str


class SessionShape(BaseModel):
    """The last turns of a conversation, oldest first."""

    conversation_id: str
    turns: list[SpokenShape]


class PageShape(BaseModel):
    """Some memories, and where the next page starts (null: this was the last)."""

    memories: list[MemoryShape]
    next_cursor: str | None


class VersionShape(BaseModel):
    """One version; of a deleted memory without what it said."""

    version: int = Field(ge=1)
    change: ChangeKind
    status: Status
    cause: str
    writer: str
    recorded_at: Time
    value: str | None = None
    text: str | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None


class HistoryShape(BaseModel):
    """Every version, oldest first."""

    id: str
    versions: list[VersionShape]


class PolicyShape(BaseModel):
    """The verdict that let a memory in."""

    decision: str
    reasons: list[str]
    version: str


class DecisionShape(BaseModel):
    """A verdict of the policy gate on a claim that went into the memory."""

    candidate_id: str
    decision: str
    reasons: str
    policy_version: str
    channel: str
    decided_at: Time


class ReadShape(BaseModel):
    """Who read which version, by which verb."""

    reader: str
    verb: str
    version: int
    read_at: Time


class ProvenanceShape(BaseModel):
    """Where one field comes from."""

    source: SourceKind
    turn_id: str | None
    method: str
    confidence: float = Field(ge=0, le=1)


class ExplanationShape(BaseModel):
    """Where a memory comes from."""

    memory: MemoryShape
    provenance: dict[str, ProvenanceShape]
    policy: PolicyShape
    decisions: list[DecisionShape]
    versions: list[VersionShape]
    reads: list[ReadShape]


class HeldShape(BaseModel):
    """The command that waits for the answer."""

    kind: str | None
    issued_by: str | None
    issued_at: Time | None
    expected_version: int | None
    text: str | None
    value: str | None


class ReviewShape(BaseModel):
    """A question for a person, with the memories it is about."""

    id: str
    kind: str
    owner_kind: OwnerKind
    owner: str
    detail: str
    status: str
    opened_at: Time
    decided_by: str | None
    decided_at: Time | None
    memory: MemoryShape | None
    other: MemoryShape | None
    held_command: HeldShape | None


class ReviewsShape(BaseModel):
    """Some questions, oldest first."""

    reviews: list[ReviewShape]
    next_cursor: str | None


class WrittenShape(BaseModel):
    """A memory and the version that a command gave it."""

    id: str
    version: int


class CommandStateShape(BaseModel):
    """What became of a command."""

    command_id: str
    state: Literal["pending", "applied", "review", "refused"]
    memories: list[WrittenShape]
    review_id: str | None


class GrantShape(BaseModel):
    """A standing grant."""

    id: str
    principal_kind: PrincipalKind
    principal: str
    namespace: str
    scopes: list[Scope]
    sensitivity: Sensitivity
    expires_at: Time | None
    granted_at: Time
    granted_by: str


class GrantsShape(BaseModel):
    """Every standing grant of the tenant."""

    grants: list[GrantShape]


class ReachedShape(BaseModel):
    """A namespace that a principal reaches."""

    namespace: str
    scopes: list[Scope]


class PrincipalShape(BaseModel):
    """Who holds the key."""

    tenant: str
    kind: PrincipalKind
    id: str
    scopes: list[Scope]
    grants: list[ReachedShape]


class ChangeShape(BaseModel):
    """One event of the feed."""

    event_id: str
    change: ChangeKind
    owner_seq: int = Field(ge=1)
    occurred_at: Time
    replaces: list[str]
    memory: MemoryShape


def answer(body: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """The response."""
    return Response(orjson.dumps(body), status, media_type="application/json", headers=headers)
