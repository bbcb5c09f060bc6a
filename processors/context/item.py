"""Context, the things in it: layers, items and what a number in the text stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


class Layer(StrEnum):
    """The layers in the order in which an agent recovers (SPEC R5); the question comes after the last."""

    DECISIONS = "decisions"
    LOOPS = "loops"
    SUMMARY = "summary"
    FACTS = "facts"
    RETRIEVED = "retrieved"
    RECENT = "recent"


class RefKind(StrEnum):
    """What an item's id is the id of."""

    MEMORY = "memory"
    TURN = "turn"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to show. `text` is raw: assembly turns it into data.

    `type`, `source` and `label` are words for people, already in the language of the rendering. `short` replaces `text`
    when room is short. `until` is when it stops being so. `pinned` items (an allergy, an order that holds this week) go
    last. Items of a layer come most important first, except recent turns, which come oldest first.
    """

    layer: Layer
    ref_kind: RefKind
    ref_id: str
    version: int
    text: str
    type: str
    source: str
    date: datetime | None = None
    confidence: float | None = None
    label: str = ""
    short: str = ""
    until: datetime | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Citation:
    """What `[n]` in the text stands for."""

    kind: RefKind
    id: str
    version: int
    layer: Layer


@dataclass(frozen=True, slots=True)
class Context:
    """The text for a prompt, near its start.

    `tokens` is its estimate. `over_budget` says that the note and the question alone are more than the budget. `dropped`
    counts, by layer, what found no room, and `shortened` what is there in short form.
    """

    text: str
    language: Literal["zh", "en"]
    tokens: int
    budget: int
    over_budget: bool
    citations: Mapping[int, Citation]
    dropped: Mapping[Layer, int] = field(default_factory=dict)
    shortened: int = 0
