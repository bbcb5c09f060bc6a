"""Contracts: the lines of an export of one owner's memories, from header to trailer (SPEC G2)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Contract, Digest, UtcDatetime
from schemas.candidate import Candidate
from schemas.event import ChangeKind
from schemas.memory import Memory
from schemas.turn import Id, Outcome, OwnerKind, Turn

COUNTED = ("review", "retraction", "claim", "memory", "version", "turn")
"""Kinds of lines between header and trailer, in the order in which they come (claim, memory, version: cell by cell)."""


class Line(Contract):
    """What every line has."""

    # What was accepted as a memory or a claim fits into its line.
    MAX_NESTING: ClassVar[int] = Contract.MAX_NESTING + 1
    kind: str
    crc32: str | None = Field(
        default=None,
        exclude=True,
        pattern=r"^[0-9a-f]{8}$",
        description="CRC-32 of the line's bytes without this field, so that a damaged line can be named",
    )


class ExportHeader(Line):
    """The first line: whose memories these are, and how many lines of each kind follow."""

    kind: Literal["header"] = "header"
    format: Literal["memriver-export"] = "memriver-export"
    tenant: Id
    owner_kind: OwnerKind
    owner: Id
    exported_at: UtcDatetime
    with_turns: bool
    counts: dict[str, int]


class ExportedReview(Line):
    """A question for a person, and its answer if there was one. `body` is the held command, as JSON."""

    kind: Literal["review"] = "review"
    review_id: str = Field(max_length=36)
    review_kind: str = Field(max_length=16)
    memory_id: str | None = Field(default=None, max_length=36)
    other_memory_id: str | None = Field(default=None, max_length=36)
    candidate_id: str | None = Field(default=None, max_length=36)
    detail: str = Field(max_length=16_000)
    status: str = Field(max_length=16)
    opened_at: UtcDatetime
    body: str | None = None
    decided_by: str | None = Field(default=None, max_length=255)
    decided_at: UtcDatetime | None = None
    decision_id: str | None = Field(default=None, max_length=36)


class ExportedRetraction(Line):
    """A turn that takes back another one; `order_key` is its place in the order of what was said."""

    kind: Literal["retraction"] = "retraction"
    retraction_key: Digest
    target_turn_key: Digest | None = None
    below_revision: int | None = None
    order_key: str = Field(max_length=255)


class ExportedClaim(Line):
    """An entry of the ledger. Its evidence names the turns; memories are the fold of these."""

    kind: Literal["claim"] = "claim"
    cell_key: Digest
    claim: Candidate


class ExportedMemory(Line):
    """A memory as it stands."""

    kind: Literal["memory"] = "memory"
    cell_key: Digest
    memory: Memory


class ExportedVersion(Line):
    """One version of a memory: what changed, why and when, and the whole state that it made."""

    kind: Literal["version"] = "version"
    cell_key: Digest
    change: ChangeKind
    cause: str = Field(max_length=128)
    recorded_at: UtcDatetime
    memory: Memory


class ExportedTurn(Line):
    """A turn that belongs to the owner, and what became of it."""

    kind: Literal["turn"] = "turn"
    arrived_at: UtcDatetime
    content_hash: str = Field(max_length=64)
    tokens: int
    retracts: bool
    outcome: Outcome
    reason: str | None = Field(default=None, max_length=64)
    turn: Turn


class ExportTrailer(Line):
    """The last line: the counts once more, SHA-256 over every byte before it, and who vouches for them.

    `signature` is HMAC-SHA256 of `sha256` under a key derived from the deployment's; `key_id` tells which key that was.
    """

    kind: Literal["trailer"] = "trailer"
    counts: dict[str, int]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    key_id: str | None = None
    signature: str | None = None


class Bundle(Contract):
    """A cell on its way into another deployment: what its memories are the fold of, and the history that they had."""

    MAX_NESTING: ClassVar[int] = Contract.MAX_NESTING + 3

    cell_key: Digest
    claims: tuple[Candidate, ...]
    memories: tuple[Memory, ...]
    versions: tuple[ExportedVersion, ...]


class Portion(Contract):
    """The payload of an `adopt` command: a part of an export that fits into a message."""

    MAX_NESTING: ClassVar[int] = Bundle.MAX_NESTING + 2

    reviews: tuple[ExportedReview, ...] = ()
    retractions: tuple[ExportedRetraction, ...] = ()
    cells: tuple[Bundle, ...] = ()
    turns: tuple[ExportedTurn, ...] = ()


ExportLine = Annotated[
    ExportHeader
    | ExportedReview
    | ExportedRetraction
    | ExportedClaim
    | ExportedMemory
    | ExportedVersion
    | ExportedTurn
    | ExportTrailer,
    Field(discriminator="kind"),
]
"""Any line of an export."""

LINES: dict[str, type[Line]] = {
    "header": ExportHeader,
    "review": ExportedReview,
    "retraction": ExportedRetraction,
    "claim": ExportedClaim,
    "memory": ExportedMemory,
    "version": ExportedVersion,
    "turn": ExportedTurn,
    "trailer": ExportTrailer,
}
"""Contract by `kind`."""


def export_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one line of an export."""
    schema = TypeAdapter(ExportLine).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "ExportLine", **schema}
