"""Sinks, embedders: what every adapter does to texts and vectors around its model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def clean(text: str) -> str:
    """The text as a model's tokenizer can take it: no NUL, which ends a C string, and no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()


def blank_vector(dimension: int) -> list[float]:
    """The vector of a text without content: a fixed axis.

    Models give blank texts a vector that resembles everything a little, and endpoints refuse them; an axis is a unit
    vector like any other, equal among blanks and nearly orthogonal to the rest.
    """
    return [1.0] + [0.0] * (dimension - 1)


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row scaled to length 1; a row without direction (zeros, not finite) becomes the blank vector."""
    rows = np.ascontiguousarray(rows)  # in another order the sums would be others
    norms = _norms(rows)
    if not all(0.0 < norm < math.inf for norm in norms[:, 0].tolist()):
        rows = np.where(np.isfinite(rows), rows, 0.0)
        norms = _norms(rows)
        empty = norms[:, 0] == 0.0
        rows[empty, 0] = 1.0
        norms[empty] = 1.0
    scaled: NDArray[np.float64] = rows / norms
    return scaled


def _norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    # What `np.linalg.norm` does, to the bit; its questions about its arguments take longer than a row.
    lengths: NDArray[np.float64] = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
    return lengths


def mean_of_pieces(vectors: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """One unit vector for a text that was embedded in pieces: the mean, weighted by the pieces' lengths.

    https://cookbook.openai.com/examples/embedding_long_inputs
    """
    pooled = np.average(np.asarray(vectors, dtype=np.float64), axis=0, weights=weights)
    return [float(x) for x in unit_rows(pooled[np.newaxis, :])[0]]
