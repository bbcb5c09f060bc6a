"""Sinks, embedders: local ONNX models through `fastembed`, which downloads them on first use.

https://qdrant.github.io/fastembed/
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from processors.exceptions import FatalError, TransientError
from sinks.embedders.text import blank_vector, clean, unit_rows

# Far beyond the 512 tokens that these models read.
_LONGEST = 8_000


class FastEmbedEmbedder:
    """An `Embedder` over `fastembed.TextEmbedding`; `name` is one of its supported models."""

    def __init__(self, name: str) -> None:
        try:
            from fastembed import TextEmbedding
        except ImportError as exc:
            raise FatalError("the embedder fastembed is an extra: pip install 'memriver[fastembed]'") from exc
        known = {str(entry["model"]): int(entry["dim"]) for entry in TextEmbedding.list_supported_models()}
        if name not in known:
            raise FatalError(f"fastembed does not know the model {name}")
        self._name = name
        self._dimension = known[name]
        try:
            self._engine: Any = TextEmbedding(model_name=name)
        except (OSError, ValueError) as exc:
            raise TransientError(f"fastembed cannot load or download {name}") from exc
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return self._name

    @property
    def dimension(self) -> int:
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return self._embed(texts, self._engine.passage_embed)

    def embed_query(self, text: str) -> list[float]:
        return self._embed([text], self._engine.query_embed)[0]

    def _embed(self, texts: Sequence[str], run: Any) -> list[list[float]]:
        cleaned = [clean(text[:_LONGEST]) for text in texts]
        vectors = [blank_vector(self._dimension) for _ in cleaned]
        told = [position for position, text in enumerate(cleaned) if text]
        if told:
            with self._lock:
                rows: Iterable[Any] = list(run([cleaned[position] for position in told]))
            for position, row in zip(told, unit_rows(np.asarray(rows, dtype=np.float64)).tolist(), strict=True):
                vectors[position] = row
        return vectors
