"""Recall, request and result: who asks what of whose memories, and what comes back with which grounds (SPEC R2, R4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import regex

from processors.access import Denied, Reach
from processors.recall import Clarification, Parts
from recall.exceptions import BadRequest
from schemas import Category, Memory, MemoryType, Status, Turn

MAX_LIMIT = 20
MAX_QUERY = 4_000
"""Characters of a question."""

_NO_TEXT = regex.compile(r"[\p{Cc}\p{Cs}--[\t\n\r]]", regex.V1)
_NEVER = frozenset({Status.PENDING, Status.QUARANTINED, Status.RETRACTED, Status.DELETED})
"""What no recall hands out, whoever asks: nobody has let it in, or it was taken back."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A question to the memory.

    `reaches` are whose memories may be looked at, all of one tenant, made by `processors.access.authorise`. `now` is an
    aware instant. `agent` is who will read it, as far as policy hints speak of it. `floor` replaces the embedding model's.
    `as_of` asks what held at that instant, history included.

    Raises:
        Denied: no owner is named.
        BadRequest: a field cannot be meant.
    """

    reaches: tuple[Reach, ...]
    query: str
    now: datetime
    agent: str | None = None
    conversation_id: str | None = None
    types: tuple[MemoryType, ...] = ()
    categories: tuple[Category, ...] = ()
    limit: int = 5
    floor: float | None = None
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    as_of: datetime | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        if not self.reaches or not all(reach.segments for reach in self.reaches):
            raise Denied("owner_missing", "name an owner; a request that names none is never answered with everything")
        if len({reach.tenant for reach in self.reaches}) != 1:
            raise Denied("owner_not_granted", "the owners belong to different tenants")
        if not self.query.strip():
            raise BadRequest("the question is blank")
        if len(self.query) > MAX_QUERY:
            raise BadRequest(f"the question is longer than {MAX_QUERY} characters")
        if _NO_TEXT.search(self.query):
            raise BadRequest("the question holds control characters or lone surrogates")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise BadRequest(f"limit is a number from 1 to {MAX_LIMIT}")
        if self.floor is not None and not 0.0 <= self.floor <= 1.0:
            raise BadRequest("floor is a number from 0 to 1")
        if not self.statuses or _NEVER & set(self.statuses):
            raise BadRequest("statuses name at least one, and only such as may be recalled")
        if self.now.tzinfo is None or (self.as_of is not None and self.as_of.tzinfo is None):
            raise BadRequest("a time needs an offset")

    @property
    def tenant(self) -> str:
        """The one tenant."""
        return self.reaches[0].tenant


class EmptyReason(StrEnum):
    """Why nothing came back."""

    NOTHING_STORED = "nothing_stored"
    NOTHING_RELEVANT = "nothing_relevant"


@dataclass(frozen=True, slots=True)
class RecallItem:
    """One result: a memory, or a turn that nothing was made of yet. `parts` and `sources` are there when asked for.

    `stands_behind` is the id of a newer item about the same thing. `confirm`: what is kept of this kind is corrected so often
    that the person should be asked before it is relied on.
    """

    id: str
    score: float
    relevance: float
    memory: Memory | None = None
    turn: Turn | None = None
    shared: bool = False
    stands_behind: str | None = None
    parts: Parts | None = None
    sources: tuple[str, ...] = ()
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Best first. `fallback` is the honest sentence to say when `items` is empty; `degraded` names what was away."""

    items: tuple[RecallItem, ...]
    empty_reason: EmptyReason | None = None
    fallback: str | None = None
    clarification: Clarification | None = None
    triggers: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
