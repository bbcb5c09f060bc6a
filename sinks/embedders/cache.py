"""Sinks, embedders: the same text is embedded once; least recently used goes first.

The key is a digest, so the cache holds no text; vectors are derived from text all the same, so erasure clears it
(FIELD_REPORTS 36).
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from processors.ports import Embedder
from schemas.base import digest
from sinks.embedders.exceptions import RefusedTexts


class CachedEmbedder:
    """An `Embedder` in front of another. Vectors come back in single precision, cached or not, as Qdrant stores them.

    `capacity` is a number of texts: 4 bytes a dimension each, 25 MB for 4,096 texts of 1,536 dimensions.
    """

    def __init__(self, inner: Embedder, capacity: int = 4_096) -> None:
        if capacity < 1:
            raise ValueError("a cache needs room for at least one text")
        self._inner = inner
        self._capacity = capacity
        self._vectors: OrderedDict[str, array[float]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        keys = [self._key("document", text) for text in texts]
        known = {key: vector for key in dict.fromkeys(keys) if (vector := self._get(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        refused: RefusedTexts | None = None
        if missing:
            fresh: Sequence[list[float] | None]
            try:
                fresh = self._inner.embed_documents(list(missing.values()))
            except RefusedTexts as exc:
                refused, fresh = exc, exc.vectors
            for key, made in zip(missing, fresh, strict=True):
                if made is not None:
                    known[key] = self._put(key, made)
        if refused is not None:
            answered = [known[key].tolist() if key in known else None for key in keys]
            raise RefusedTexts(tuple(at for at, it in enumerate(answered) if it is None), answered) from refused
        return [known[key].tolist() for key in keys]

    def embed_query(self, text: str) -> list[float]:
        key = self._key("query", text)
        vector = self._get(key)
        if vector is None:
            vector = self._put(key, self._inner.embed_query(text))
        return vector.tolist()

    def clear(self) -> None:
        """Forget everything, for an erasure."""
        with self._lock:
            self._vectors.clear()

    def __len__(self) -> int:
        with self._lock:
            return len(self._vectors)

    def _key(self, kind: str, text: str) -> str:
        return digest(self._inner.model, str(self._inner.dimension), kind, text)

    def _get(self, key: str) -> array[float] | None:
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                self._vectors.move_to_end(key)
            return vector

    def _put(self, key: str, vector: Sequence[float]) -> array[float]:
        packed = array("f", vector)
        with self._lock:
            self._vectors[key] = packed
            self._vectors.move_to_end(key)
            while len(self._vectors) > self._capacity:
                self._vectors.popitem(last=False)
        return packed
