"""Extraction: the distinct things a reply can turn out to be (FIELD_REPORTS 2, 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas import Category, MemoryType, Operation


class RawItem(BaseModel):
    """One claim as the model wrote it, types settled and nothing else judged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    turn: int
    value: str
    quote: str
    text: str = ""
    attribute: str = ""
    subject: str = "user"
    speaker: str | None = None
    type: MemoryType | None = None
    category: Category | None = None
    confidence: float = Field(default=0.5, ge=0, le=1)
    operation: Literal[Operation.ASSERT, Operation.END] = Operation.ASSERT
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """One claim that is kept out. `reason` is a short code for counters; `raw` is personal content, never logged."""

    reason: str
    raw: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Extracted:
    """A readable answer with at least one claim, good or bad."""

    items: tuple[RawItem, ...]
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """A readable answer that lists nothing: the only outcome without items that closes a batch as done."""


@dataclass(frozen=True, slots=True)
class Unparsable:
    """No answer could be read. `reason` is a short code."""

    reason: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """The answer stops in its middle; `items` are the claims that were whole."""

    items: tuple[RawItem, ...] = ()
    rejected: tuple[Rejected, ...] = ()


Outcome = Extracted | Nothing | Unparsable | Truncated
