"""Recall, evidence: what speaks for each sentence, in standard deviations, so that unlike scores can be added.

Dense and keyword scores fail on different questions, so their sum beats both. In a conversation the answer stands next
to the words it answers: a turn gets a share of its neighbours' evidence, most from the turn just before it, and the
turns of a fitting session gain together. What the question names of the form counts as well: the speaker, a time.

The weights were set on two LoCoMo conversations (Maharana et al., 2024) and checked on three others; on sentences
without conversation around them only the first two apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from processors.keywords import normalise
from processors.recall.lexical import Keywords
from processors.recall.question import Question, Wish
from processors.recall.unit import Unit
from processors.recall.wording import wording

Row = NDArray[np.float64]

_PRIOR_COUNT = 10.0
"""How many usual, unrelated sentences are imagined beside those at hand: three sentences have no deviation of their own."""

_KEYWORD_PRIOR_MEAN = 0.03
_KEYWORD_PRIOR_SPREAD = 0.12
"""BM25 of an unrelated sentence, as a share of the question's whole weight."""

_BEST_OF_GROUP = 3
_SHORT_TURN = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """Weights of the kinds of evidence, in standard deviations."""

    dense: float = 1.2
    keyword: float = 1.0
    before: tuple[float, ...] = (0.5, 0.2)
    after: tuple[float, ...] = (0.35, 0.1)
    group: float = 0.6
    speaker: float = 1.0
    asking: float = -1.2
    dated: float = 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Cosines of unrelated pairs for the model at hand: their usual value and their standard deviation."""

    mean: float = 0.0
    deviation: float = 0.2


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence per sentence, each an array of n; `total` is what they come to."""

    dense: Row
    keyword: Row
    context: Row
    form: Row
    total: Row


SpreadOf = Callable[[str], Spread]
"""From the language of a sentence to the spread of cosines between it and the question."""


def weigh(
    question: Question,
    units: Sequence[Unit],
    cosines: Sequence[float | None],
    keywords: Keywords,
    mixing: Mixing,
    spread: Spread,
) -> Evidence:
    """Evidence for each unit; a cosine that is not known speaks neither for nor against."""
    known = np.array([cosine is not None for cosine in cosines], dtype=bool)
    values = np.array([0.0 if cosine is None else cosine for cosine in cosines], dtype=np.float64)
    dense = np.zeros(len(units))
    if known.any():
        dense[known] = mixing.dense * _deviations(values[known], spread.mean, spread.deviation)
    mass = sum(keywords.weights.values())
    keyword = np.zeros(len(units))
    if mass:
        prior = (_KEYWORD_PRIOR_MEAN * mass, _KEYWORD_PRIOR_SPREAD * mass)
        keyword = mixing.keyword * _deviations(keywords.scores, *prior)
    content = dense + keyword
    context = _context(units, content, mixing)
    form = _form(question, units, mixing)
    return Evidence(dense, keyword, context, form, content + context + form)


def _deviations(values: Row, prior_mean: float, prior_spread: float) -> Row:
    count = len(values)
    mean = (values.sum() + _PRIOR_COUNT * prior_mean) / (count + _PRIOR_COUNT)
    squares = ((values - mean) ** 2).sum() + _PRIOR_COUNT * (prior_spread**2 + (prior_mean - mean) ** 2)
    deviation = float(np.sqrt(squares / (count + _PRIOR_COUNT)))
    scaled: Row = (values - mean) / max(deviation, 1e-9)
    return scaled


def _context(units: Sequence[Unit], content: Row, mixing: Mixing) -> Row:
    found = np.zeros(len(units))
    place = {(unit.group, unit.position): index for index, unit in enumerate(units) if unit.group}
    if not place:
        return found
    for index, unit in enumerate(units):
        if not unit.group:
            continue
        for away, share in enumerate(mixing.before, start=1):
            other = place.get((unit.group, unit.position - away))
            found[index] += share * content[other] if other is not None else 0.0
        for away, share in enumerate(mixing.after, start=1):
            other = place.get((unit.group, unit.position + away))
            found[index] += share * content[other] if other is not None else 0.0
    members: dict[str, list[int]] = {}
    for (group, _), index in place.items():
        members.setdefault(group, []).append(index)
    if len(members) > 1:
        best = np.array([np.sort(content[among])[-_BEST_OF_GROUP:].mean() for among in members.values()])
        gains = mixing.group * (best - best.mean()) / max(float(best.std()), 1e-9)
        for among, gain in zip(members.values(), gains, strict=True):
            found[among] += gain
    return found


def _form(question: Question, units: Sequence[Unit], mixing: Mixing) -> Row:
    found = np.zeros(len(units))
    asked = normalise(question.text)
    named = {unit.speaker for unit in units if unit.speaker and normalise(unit.speaker) in asked}
    # Two names: either may speak of it.
    speaker = next(iter(named)) if len(named) == 1 else None
    dated = wording().text["dated"] if Wish.WHEN in question.wishes else None
    for index, unit in enumerate(units):
        if speaker is not None and unit.speaker == speaker:
            found[index] += mixing.speaker
        if unit.group and len(unit.text) <= _SHORT_TURN and unit.text.rstrip().endswith(("?", "？")):
            # A question is rarely the answer to one; it gives its evidence to the turn after it. A long message that
            # ends in one has told something before.
            found[index] += mixing.asking
        if dated is not None and unit.group and dated.within(unit.text):
            found[index] += mixing.dated
    return found
