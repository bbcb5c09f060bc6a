"""Tests, extraction: short ways to write a batch, a claim and a time that the turn names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from processors.extraction.outcome import RawItem
from schemas import ExtractionBatch, Role, Turn, digest

SENT = datetime(2026, 3, 4, 2, 30, tzinfo=UTC)
"""A Wednesday, 10:30 in Shanghai."""


def turn(text: str, *, turn_id: str = "t1", role: Role = Role.USER, user_id: str = "u1", **more: Any) -> Turn:
    fields: dict[str, Any] = {"conversation_id": "c1", "sent_at": SENT, "timezone": "Asia/Shanghai"} | more
    return Turn(turn_id=turn_id, user_id=user_id, role=role, text=text, **fields)


def batch(*turns: Turn, language: str = "zh") -> ExtractionBatch:
    return ExtractionBatch(
        batch_id=digest(*(each.turn_key for each in turns)),
        tenant="default",
        conversation_id="c1",
        conversation_key=turns[0].conversation_key,
        turns=turns,
        language=language,
        token_estimate=10,
        closed_by="turns",
        closed_at=SENT,
    )


def said(*texts: str, language: str = "zh") -> ExtractionBatch:
    """User turns t1, t2, … with these texts."""
    return batch(*(turn(text, turn_id=f"t{number}") for number, text in enumerate(texts, 1)), language=language)


def claim(value: str, quote: str, **more: Any) -> RawItem:
    fields: dict[str, Any] = {"turn": 1, "attribute": "residence", "confidence": 0.9, "value": value, "quote": quote}
    return RawItem.model_validate(fields | more)


def everything_is_own(text: str) -> str:
    return text


@dataclass(frozen=True)
class Named:
    """A time that stands in a text, as `processors.times` would give it."""

    quote: str
    start: datetime
    end: datetime | None = None
    kind: str = "day"
    offset: int = 0


@dataclass(frozen=True)
class Calendar:
    """Resolves just the words it knows."""

    known: tuple[Named, ...] = ()

    def __call__(self, text: str, _sent_at: datetime, _timezone: str, _language: str) -> list[Named]:
        return [
            Named(named.quote, named.start, named.end, named.kind, text.index(named.quote))
            for named in self.known
            if named.quote in text
        ]
