"""Unit tests: short ways to write units, and scales that make a cosine its own relevance."""

from __future__ import annotations

from typing import Any

from processors.recall import Kind, Question, Ranking, Scales, Unit, Weights, rank
from processors.recall.evidence import Spread

DAY = 86_400.0
NOW = 1_000 * DAY

RAW = Scales(lambda cosine, _question, _text: max(0.0, min(1.0, cosine)), Spread(0.1, 0.1))


def unit(name: str, text: str, **fields: Any) -> Unit:
    """A memory said now, unless told otherwise."""
    return Unit(**({"id": name, "text": text, "at": NOW} | fields))


def turn(name: str, text: str, position: int, **fields: Any) -> Unit:
    """A turn of one conversation."""
    return unit(name, text, kind=Kind.TURN, group="c", position=position, **fields)


def ranking(query: str, units: list[Unit], cosines: list[float | None] | None = None, **fields: Any) -> Ranking:
    """The ranking of the units; without cosines by keywords alone."""
    return rank(Question.of(query), units, cosines or [None] * len(units), RAW, now=NOW, **fields)


def ids(found: Ranking) -> list[str]:
    """In order."""
    return [item.unit.id for item in found.ranked]


__all__ = ["DAY", "NOW", "RAW", "Weights", "ids", "ranking", "turn", "unit"]
