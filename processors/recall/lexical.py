"""Recall, keywords: BM25 over the sentences at hand, and how much of the question each of them covers.

BM25 as in Robertson & Zaragoza (2009). Among short sentences a longer one is usually the more telling one; among long
messages, with code and lists in them, length is talk. So the constants go from those that do best on turns of some ten
keywords (LoCoMo) to the usual ones of documents (`processors.keywords`) as the sentences at hand grow longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from processors.keywords import tokens

_SHORT, _LONG = 15.0, 30.0
"""Mean number of keywords in the texts at hand at which they count as sentences, and as documents."""
_OF_SENTENCES = (0.9, 0.4)
_OF_DOCUMENTS = (1.2, 0.75)
"""(k1, b)."""

Row = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Keywords:
    """Keyword side of a question against n sentences.

    `scores` (n) are BM25 sums; `coverage` (n) is the share in [0, 1] of the question's weight that a sentence contains;
    `weights` are the question's keywords with their rarity; `holds[i]` are those that sentence i contains.
    """

    scores: Row
    coverage: Row
    weights: dict[str, float]
    holds: tuple[frozenset[str], ...]


def keywords_against(question: Sequence[str], texts: Sequence[str]) -> Keywords:
    """Score the sentences. A keyword that none of them contains weighs as much as the rarest one could."""
    counted = [_counts(text) for text in texts]
    total = len(texts)
    mean = sum(length for _, length in counted) / total if total else 0.0
    k1, b = _constants(mean)
    wanted = list(dict.fromkeys(question))
    weights: dict[str, float] = {}
    scores = np.zeros(total)
    covered = np.zeros(total)
    holds: list[set[str]] = [set() for _ in texts]
    for word in wanted:
        among = [(place, counts[word]) for place, (counts, _) in enumerate(counted) if word in counts]
        weight = math.log(1.0 + (total - len(among) + 0.5) / (len(among) + 0.5))
        weights[word] = weight
        for place, count in among:
            norm = k1 * (1.0 - b + b * counted[place][1] / mean) if mean else k1
            scores[place] += weight * count * (k1 + 1.0) / (count + norm)
            covered[place] += weight
            holds[place].add(word)
    mass = sum(weights.values())
    return Keywords(scores, covered / mass if mass else covered, weights, tuple(frozenset(words) for words in holds))


def _constants(mean: float) -> tuple[float, float]:
    share = min(max((mean - _SHORT) / (_LONG - _SHORT), 0.0), 1.0)
    pairs = zip(_OF_SENTENCES, _OF_DOCUMENTS, strict=True)
    k1, b = (short + share * (long - short) for short, long in pairs)
    return k1, b


def _counts(text: str) -> tuple[Counter[str], int]:
    counts = Counter(tokens(text))
    return counts, counts.total()
