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

from processors.keywords import CHINESE_FUNCTION_CHARACTERS, ENGLISH_STOP_WORDS, bare, english, runs
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
        dimension = self._dimension
        for row, text in enumerate(texts):
            offset = row * dimension
            features = _features(text)
            cells += [offset + (code >> 1) % dimension for code in features]
            weights += features.values()
        size = len(texts) * dimension
        flat = np.bincount(np.array(cells, dtype=np.int64), weights=np.array(weights), minlength=size)
        rows: list[list[float]] = unit_rows(flat.astype(np.float64, copy=False).reshape(len(texts), dimension)).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def _features(text: str) -> dict[int, float]:
    """Hash code → weight with the code's sign, with term frequency dampened as 1 + ln(tf)."""
    weights: dict[int, float] = {}
    repeated: dict[int, int] = {}
    for kind, run in runs(text):
        for features in _cjk(run) if kind == "cjk" else (_word(run),):
            for code, weight in features:
                if code in weights:
                    repeated[code] = repeated.get(code, 1) + 1
                # A stem may be a stop word's feature (ones, one), and then the last of them says what it weighs.
                weights[code] = weight
    for code, tf in repeated.items():
        weights[code] *= 1.0 + math.log(tf)
    return weights


_Features = tuple[tuple[int, float], ...]


def _cjk(run: str) -> Iterator[_Features]:
    for start in range(len(run)):
        yield _grams(run[start : start + 3])


@lru_cache(maxsize=65_536)
def _grams(three: str) -> _Features:
    """Those that begin where these characters do; only the end of a run has fewer than three."""
    sizes = ((1, _CHARACTER), (2, _PAIR), (3, _TRIPLE))
    return tuple(_gram(three[:size], weight) for size, weight in sizes if size <= len(three))


def _gram(gram: str, weight: float) -> tuple[int, float]:
    glue = sum(character in CHINESE_FUNCTION_CHARACTERS for character in gram)
    if len(gram) == 1 and glue:
        glue = 2
    return _feature(gram, weight * _GLUED[min(glue, 2)])


@lru_cache(maxsize=16_384)
def _word(word: str) -> _Features:
    plain = bare(word)
    if plain in ENGLISH_STOP_WORDS:
        return (_feature(f"w {plain}", _STOP_WORD),)
    # A long blob is not spelt alike by accident; its first 64 characters will do.
    framed = f"<{plain[:64]}>"
    grams = {framed[start : start + 3] for start in range(len(framed) - 2)}
    return (_feature(f"w {english(word)}", _WORD), *sorted(map(_word_gram, grams)))


@lru_cache(maxsize=16_384)
def _word_gram(gram: str) -> tuple[int, float]:
    return _feature(f"g {gram}", _WORD_GRAM)


def _feature(feature: str, weight: float) -> tuple[int, float]:
    code = _code(feature)
    return code, weight if code & 1 else -weight


def _code(feature: str) -> int:
    """64 stable bits; the lowest is the sign, the others choose the dimension."""
    return int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "little")
