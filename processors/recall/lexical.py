"""Recall, keywords: BM25 over the sentences at hand, and how much of the question each of them covers.

BM25 as in Robertson & Zaragoza (2009). Among short sentences a longer one is usually the more telling one; among long
messages, with code and lists in them, length is talk. So the constants go from those that do best on turns of some ten
keywords (LoCoMo) to the usual ones of documents (`processors.keywords`) as the sentences at hand grow longer.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from processors.keywords import token_index, tokens
from schemas import digest

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
    `weights` are the question's keywords (`token_index`) with their rarity; `holds[i]` are those that sentence i contains.
    """

    scores: Row
    coverage: Row
    weights: dict[int, float]
    holds: tuple[frozenset[int], ...]


def keywords_against(question: Sequence[str], texts: Sequence[str]) -> Keywords:
    """Score the sentences. A keyword that none of them contains weighs as much as the rarest one could."""
    counted = [_counted().of(text) for text in texts]
    total = len(texts)
    mean = sum(length for _, length in counted) / total if total else 0.0
    k1, b = _constants(mean)
    wanted = [token_index(word) for word in dict.fromkeys(question)]
    weights: dict[int, float] = {}
    scores = np.zeros(total)
    covered = np.zeros(total)
    holds: list[set[int]] = [set() for _ in texts]
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


class _Counted:
    """Keyword counts of the sentences seen last, since segmenting one takes as long as scoring a hundred.

    Keys are digests and keywords are numbers (`processors.keywords.token_index`): no text outlives its erasure in here,
    and nothing is found but what the caller has read from truth this moment (FIELD_REPORTS 36).
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: OrderedDict[str, tuple[Mapping[int, int], int]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, text: str) -> tuple[Mapping[int, int], int]:
        """Counts by keyword, and their sum."""
        key = digest(text)
        with self._lock:
            known = self._held.get(key)
            if known is not None:
                self._held.move_to_end(key)
                return known
        counts = Counter(token_index(token) for token in tokens(text))
        result = (dict(counts), counts.total())
        with self._lock:
            self._held[key] = result
            if len(self._held) > self._capacity:
                self._held.popitem(last=False)
        return result


@lru_cache(maxsize=1)
def _counted() -> _Counted:
    return _Counted(100_000)


def keywords_of(text: str) -> frozenset[int]:
    """The distinct keywords of a text, as numbers."""
    return frozenset(_counted().of(text)[0])
