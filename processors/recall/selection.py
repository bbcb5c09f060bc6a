"""Recall, selection: the handful that is handed out — over the floor, each thing once, private before shared (SPEC R4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import regex

from processors.recall.lexical import keywords_of
from processors.recall.ranking import Ranked
from processors.slots import value_key
from schemas import Category

_FIGURES = regex.compile(r"\p{N}+(?:[.,:]\p{N}+)*")
_DUPLICATE = 0.9
"""Common keywords of two sentences, as a share of all theirs, from which one of them is enough."""


def _default_limits() -> Mapping[Category, int]:
    return {Category.PREFERENCE: 2, Category.EVENT: 3}


@dataclass(frozen=True, slots=True)
class Quotas:
    """At most so many of a category; of the others as many as fit."""

    limits: Mapping[Category, int] = field(default_factory=_default_limits)

    def without(self, categories: Iterable[Category]) -> Quotas:
        """For a request that asks for these categories by name."""
        asked = set(categories)
        return Quotas({category: limit for category, limit in self.limits.items() if category not in asked})


@dataclass(frozen=True, slots=True)
class Selection:
    """What is handed out, and how many fell away at which step."""

    chosen: tuple[Ranked, ...]
    left_out: Mapping[str, int]


def select(ranked: Sequence[Ranked], *, limit: int, floor: float, quotas: Quotas) -> Selection:
    """The first `limit` that pass; order is kept, except that private ones come before shared ones."""
    left_out: Counter[str] = Counter()
    kept: list[Ranked] = []
    for item in ranked:
        if item.parts.relevance < floor:
            left_out["below_floor"] += 1
        else:
            kept.append(item)
    kept = _one_per_slot(kept, left_out)
    # A stable sort: within each the order stays.
    kept.sort(key=lambda item: item.unit.shared)
    chosen: list[Ranked] = []
    saying: list[_Said] = []
    counts: Counter[Category] = Counter()
    for item in kept:
        category = item.unit.category
        said = _Said.of(item)
        if any(said.repeats(other) for other in saying):
            left_out["duplicate"] += 1
        elif category is not None and counts[category] >= quotas.limits.get(category, limit):
            left_out["quota"] += 1
        elif len(chosen) >= limit:
            left_out["limit"] += 1
        else:
            chosen.append(item)
            saying.append(said)
            if category is not None:
                counts[category] += 1
    return Selection(tuple(chosen), dict(left_out))


def _one_per_slot(items: list[Ranked], left_out: Counter[str]) -> list[Ranked]:
    """Of several that cannot all hold, the newest; it takes the best one's place."""
    newest: dict[str, Ranked] = {}
    for item in items:
        slot = item.unit.slot
        if slot and (slot not in newest or item.unit.at > newest[slot].unit.at):
            newest[slot] = item
    placed: set[str] = set()
    kept: list[Ranked] = []
    for item in items:
        slot = item.unit.slot
        if not slot:
            kept.append(item)
        elif slot not in placed:
            placed.add(slot)
            kept.append(newest[slot])
        else:
            left_out["contradicted"] += 1
    return kept


@dataclass(frozen=True, slots=True)
class _Said:
    """A sentence as it is compared with others."""

    key: str
    keywords: frozenset[int]
    figures: tuple[str, ...]

    @classmethod
    def of(cls, item: Ranked) -> _Said:
        text = item.unit.text
        return cls(value_key(text), keywords_of(text), tuple(_FIGURES.findall(text)))

    def repeats(self, other: _Said) -> bool:
        if self.key == other.key:
            return True
        either = len(self.keywords | other.keywords)
        if not self.keywords or len(self.keywords & other.keywords) < _DUPLICATE * either:
            return False
        # A figure that differs is another statement, however alike the rest is.
        return self.figures == other.figures
