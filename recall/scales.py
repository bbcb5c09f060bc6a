"""Recall, scales: from an embedding model's name to what its cosines mean to the ranker."""

from __future__ import annotations

from bisect import bisect_right

from processors.recall import Scales
from processors.recall.evidence import Spread
from sinks.embedders import calibration_for
from sinks.embedders.calibration import DEFAULT, Calibration, Knots

_TOP_TENTH = 1.2816
"""Standard deviations above the mean beyond which a tenth of a normal distribution lies."""

FLOOR = 0.7
FLOOR_OF_UNMEASURED = 0.35


def scales_for(model: str) -> Scales:
    """The built-in scales of a model; for one never measured, a wide spread and raw cosines."""
    return scales_of(calibration_for(model))


def scales_of(calibration: Calibration) -> Scales:
    """The scales of a collection, by its calibration."""
    return Scales(calibration.relevance, _spread(calibration.relevance_knots[DEFAULT]))


def floor_of(calibration: Calibration) -> float:
    """The relevance below which a memory is not handed out: SPEC R4's, lower where scores are raw cosines."""
    knots = calibration.relevance_knots[DEFAULT]
    return FLOOR if len(knots) > 2 else FLOOR_OF_UNMEASURED


def _spread(knots: Knots) -> Spread:
    # By construction a score of 0 is the median of unrelated pairs and 0.5 their top tenth (sinks.embedders.calibration).
    scores = [score for _, score in knots]
    right = min(max(bisect_right(scores, 0.5), 1), len(knots) - 1)
    (x0, y0), (x1, y1) = knots[right - 1], knots[right]
    half = x0 + (x1 - x0) * (0.5 - y0) / (y1 - y0)
    return Spread(knots[0][0], max((half - knots[0][0]) / _TOP_TENTH, 1e-3))
