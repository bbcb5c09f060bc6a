"""Recall, ranking: the one order of everything that may answer a question, memories and turns alike (SPEC R4).

    score = 0.6 similarity + 0.2 recency + 0.1 access frequency + 0.1 confidence, each in [0, 1]

`similarity` is evidence against the other candidates, which is what orders them; `relevance` is the absolute, per-model
calibrated score that the floor and the clarifying question look at: among unrelated sentences one is always the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from processors.keywords import normalise
from processors.recall.evidence import Mixing, Row, Spread, weigh
from processors.recall.lexical import keywords_against
from processors.recall.question import Question, Wish
from processors.recall.unit import Kind, Unit
from schemas import MemoryType

DAY = 86_400.0
_RECENT_EPISODE_DAYS = 31.0

# Evidence in standard deviations to [0, 1], with the marks of the calibration: 0 the usual unrelated sentence, 0.5 the
# top tenth of them, 0.7 the top twentieth, 0.85 the usual answer. Never flat, so that no two answers tie for nothing.
_SIMILARITY = ((-20.0, 0.0), (0.0, 0.02), (2.2, 0.5), (3.0, 0.7), (6.0, 0.85), (40.0, 1.0))
_COVERAGE = ((0.0, 0.0), (0.3, 0.5), (0.5, 0.7), (0.75, 0.85), (1.0, 1.0))
_SURER, _LESS_SURE = 0.85, 0.15
_NAMED_SLOT = 0.9
"""Relevance of a memory in the very slot that the question names."""
_NAMED_SINGLE, _NAMED_MULTI = 10.0, 4.0
"""Evidence for it: the only value of a slot is the answer, one of several may be."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Shares of the score, and the age in days at which recency has halved."""

    similarity: float = 0.6
    recency: float = 0.2
    access: float = 0.1
    confidence: float = 0.1
    half_life_days: float = 30.0
    # Kinds of memory that the question calls for; once more for an episode of the last month.
    routing: float = 0.05

    def __post_init__(self) -> None:
        shares = (self.similarity, self.recency, self.access, self.confidence, self.routing)
        if min(shares) < 0 or self.half_life_days <= 0 or self.similarity == 0:
            raise ValueError("weights are not negative, similarity counts, and the half-life is positive")


SIMILARITY_ONLY = Weights(similarity=1.0, recency=0.0, access=0.0, confidence=0.0, routing=0.0)
"""For questions about the past of a conversation, where no turn is better for being late."""


@dataclass(frozen=True, slots=True)
class Scales:
    """What an embedding model's cosines mean: `relevance(cosine, question language, text language)` in [0, 1]."""

    relevance: Callable[[float, str, str], float]
    spread: Spread = field(default_factory=Spread)


class Parts(NamedTuple):
    """Where a score comes from. All in [0, 1], except `evidence` (standard deviations) and `cosine`."""

    relevance: float
    similarity: float
    recency: float
    access: float
    confidence: float
    routing: float
    evidence: float
    cosine: float | None
    coverage: float


class Ranked(NamedTuple):
    """A unit in its place. `holds` are the question's keywords in it, `keyword` its BM25 sum."""

    unit: Unit
    score: float
    parts: Parts
    holds: frozenset[int]
    keyword: float
    stands_behind: str | None = None
    """Id of a newer unit about the same thing, which is shown first."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """All units, best first, and the weight of each of the question's keywords."""

    ranked: tuple[Ranked, ...]
    weights: dict[int, float]


def rank(
    question: Question,
    units: Sequence[Unit],
    cosines: Sequence[float | None],
    scales: Scales,
    *,
    now: float,
    weights: Weights | None = None,
    mixing: Mixing | None = None,
) -> Ranking:
    """Order the units; `cosines` go with them (None: no vector), `now` is in seconds since the epoch. Ties by id."""
    weights = weights or Weights()
    keywords = keywords_against(question.keywords, [unit.words for unit in units])
    evidence = weigh(question, units, cosines, keywords, mixing or Mixing(), scales.spread)
    near = np.array(
        [
            0.0 if cosine is None else scales.relevance(cosine, question.language, unit.language)
            for unit, cosine in zip(units, cosines, strict=True)
        ]
    )
    told = _along(_COVERAGE, keywords.coverage)
    # The surer of the two carries it; a borderline cosine without a single common word is not enough.
    relevance = _SURER * np.maximum(near, told) + _LESS_SURE * np.minimum(near, told)
    total = evidence.total.copy()
    # "Where does Anna live?" is not about the owner's own home, and "where do I live?" not about Anna's.
    asked_about = {unit.subject for unit in units if unit.subject and normalise(unit.subject) in question.plain}
    for index, unit in enumerate(units):
        meant = unit.subject in asked_about if asked_about else not unit.subject
        if meant and unit.attribute and unit.attribute in question.slots:
            relevance[index] = max(relevance[index], _NAMED_SLOT)
            total[index] += _NAMED_SINGLE if unit.slot else _NAMED_MULTI
    similarity = _along(_SIMILARITY, total)
    ages = np.maximum(0.0, now - np.array([unit.at for unit in units])) / DAY
    recency = 0.5 ** (ages / weights.half_life_days)
    access = np.clip([unit.heat for unit in units], 0.0, 1.0)
    confidence = np.clip([unit.confidence for unit in units], 0.0, 1.0)
    routing = np.array([_routing(question, unit, age) for unit, age in zip(units, ages, strict=True)])
    scores = (
        weights.similarity * similarity
        + weights.recency * recency
        + weights.access * access
        + weights.confidence * confidence
        + weights.routing * routing
    ).tolist()
    columns = (relevance, similarity, recency, access, confidence, routing, total)
    rows = zip(*(column.tolist() for column in columns), cosines, keywords.coverage.tolist(), strict=True)
    parts = [Parts(*row) for row in rows]
    of_words = keywords.scores.tolist()
    order = sorted(range(len(units)), key=lambda index: (-scores[index], units[index].id))
    ranked = [Ranked(units[i], scores[i], parts[i], keywords.holds[i], of_words[i]) for i in order]
    return Ranking(tuple(ranked), keywords.weights)


def _routing(question: Question, unit: Unit, age_days: float) -> float:
    if unit.kind is Kind.TURN:
        return 0.5 if Wish.PAST in question.wishes else 0.0
    if unit.type is None or unit.type not in question.types:
        return 0.0
    recent = unit.type is MemoryType.EPISODIC and age_days <= _RECENT_EPISODE_DAYS
    return 1.0 if recent or unit.type is not MemoryType.EPISODIC else 0.5


def _along(knots: tuple[tuple[float, float], ...], values: Row) -> Row:
    places, heights = zip(*knots, strict=True)
    found: Row = np.interp(values, places, heights)
    return found
