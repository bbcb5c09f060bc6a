"""Sinks, embedders: a deterministic embedder without a model: hashed words and character n-grams.

It knows spelling and not meaning: "peanut" and "peanuts" are near, "peanut" and "nut allergy" are not. It is the honest
default for trying memriver, and fast enough to be free. Feature hashing with signs: Weinberger et al., "Feature Hashing
for Large Scale Multitask Learning", ICML 2009; character n-grams as in fastText (Bojanowski et al., 2017).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import snowballstemmer

from processors.keywords import CHINESE_FUNCTION_CHARACTERS, ENGLISH_STOP_WORDS, runs
from sinks.embedders.text import unit_rows

# Part of the name, since other features would make another vector space.
MODEL = "hashing-1"
DEFAULT_DIMENSION = 384

_WORD = 1.0
_STOP_WORD = 0.15
# Several n-grams make up a word, so each weighs a share of it.
_WORD_GRAM = 0.3
_CHARACTER = 0.4
_PAIR = 1.0
_TRIPLE = 0.5
# Weight of an n-gram with one glue character (我, 的, 对), and with more: they are in every sentence.
_GLUED = (1.0, 0.35, 0.1)


class HashingEmbedder:
    """An `Embedder` for Chinese and English. Stateless, safe for threads; questions and documents are treated alike."""

    def __init__(self, dimension: int = DEFAULT_DIMENSION) -> None:
        if dimension < 8:
            raise ValueError("a hashing embedder needs at least 8 dimensions")
        self._dimension = dimension

    @property
    def model(self) -> str:
        return MODEL

    @property
    def dimension(self) -> int:
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        cells: list[int] = []
        weights: list[float] = []
        for row, text in enumerate(texts):
            offset = row * self._dimension
            for code, weight in _features(text).items():
                cells.append(offset + (code >> 1) % self._dimension)
                weights.append(weight if code & 1 else -weight)
        size = len(texts) * self._dimension
        flat = np.bincount(np.asarray(cells, dtype=np.int64), weights=np.asarray(weights), minlength=size)
        rows: list[list[float]] = unit_rows(flat.astype(np.float64).reshape(len(texts), self._dimension)).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def _features(text: str) -> dict[int, float]:
    """Hash code → weight, with term frequency dampened as 1 + ln(tf)."""
    counts: dict[int, int] = {}
    weights: dict[int, float] = {}
    for kind, run in runs(text):
        for code, weight in _cjk(run) if kind == "cjk" else _word(run):
            counts[code] = counts.get(code, 0) + 1
            weights[code] = weight
    for code, tf in counts.items():
        if tf > 1:
            weights[code] *= 1.0 + math.log(tf)
    return weights


def _cjk(run: str) -> Iterator[tuple[int, float]]:
    for start in range(len(run)):
        for size, weight in ((1, _CHARACTER), (2, _PAIR), (3, _TRIPLE)):
            if start + size <= len(run):
                yield _gram(run[start : start + size], weight)


@lru_cache(maxsize=65_536)
def _gram(gram: str, weight: float) -> tuple[int, float]:
    glue = sum(character in CHINESE_FUNCTION_CHARACTERS for character in gram)
    if len(gram) == 1 and glue:
        glue = 2
    return _code(gram), weight * _GLUED[min(glue, 2)]


@lru_cache(maxsize=16_384)
def _word(word: str) -> tuple[tuple[int, float], ...]:
    word = word.removesuffix("'s").replace("'", "")
    if word in ENGLISH_STOP_WORDS:
        return ((_code(f"w {word}"), _STOP_WORD),)
    stem = snowballstemmer.stemmer("english").stemWord(word) if word.isascii() else word
    # A long blob is not spelt alike by accident; its first 64 characters will do.
    framed = f"<{word[:64]}>"
    grams = {framed[start : start + 3] for start in range(len(framed) - 2)}
    return ((_code(f"w {stem}"), _WORD), *sorted((_code(f"g {gram}"), _WORD_GRAM) for gram in grams))


def _code(feature: str) -> int:
    """64 stable bits; the lowest is the sign, the others choose the dimension."""
    return int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "little")
