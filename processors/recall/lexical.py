"""Recall, keywords: BM25 over the sentences at hand, and how much of the question each of them covers.

BM25 as in Robertson & Zaragoza (2009). Among short sentences a longer one is usually the more telling one; among long
messages, with code and lists in them, length is talk. So the constants go from those that do best on turns of some ten
keywords (LoCoMo) to the usual ones of documents (`processors.keywords`) as the sentences at hand grow longer.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from processors.keywords import token_index, tokens

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
    counted = _counted().of_all(texts)
    total = len(texts)
    mean = sum(length for _, length in counted) / total if total else 0.0
    k1, b = _constants(mean)
    wanted = [token_index(word) for word in dict.fromkeys(question)]
    weights: dict[int, float] = {}
    scores = np.zeros(total)
    covered = np.zeros(total)
    holds: dict[int, set[int]] = {}
    for word in wanted:
        among = [(place, counts[word]) for place, (counts, _) in enumerate(counted) if word in counts]
        weight = math.log(1.0 + (total - len(among) + 0.5) / (len(among) + 0.5))
        weights[word] = weight
        for place, count in among:
            norm = k1 * (1.0 - b + b * counted[place][1] / mean) if mean else k1
            scores[place] += weight * count * (k1 + 1.0) / (count + norm)
            covered[place] += weight
            holds.setdefault(place, set()).add(word)
    mass = sum(weights.values())
    held = tuple(frozenset(holds.get(place, ())) for place in range(total))
    return Keywords(scores, covered / mass if mass else covered, weights, held)


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
        self._held: OrderedDict[bytes, tuple[Mapping[int, int], int]] = OrderedDict()
        self._lock = threading.Lock()

    def of_all(self, texts: Sequence[str]) -> list[tuple[Mapping[int, int], int]]:
        """Counts by keyword, and their sum, of each text."""
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        with self._lock:
            known = {key: self._held[key] for key in keys if key in self._held}
            for key in known:
                self._held.move_to_end(key)
        new = {key: _count(text) for key, text in zip(keys, texts, strict=True) if key not in known}
        if new:
            with self._lock:
                self._held.update(new)
                while len(self._held) > self._capacity:
                    self._held.popitem(last=False)
        known |= new
        return [known[key] for key in keys]


def _count(text: str) -> tuple[Mapping[int, int], int]:
    counts = Counter(map(token_index, tokens(text)))
    return dict(counts), counts.total()


@lru_cache(maxsize=1)
def _counted() -> _Counted:
    return _Counted(100_000)


def keywords_of(text: str) -> frozenset[int]:
    """The distinct keywords of a text, as numbers."""
    return frozenset(_counted().of_all([text])[0][0])
