"""Sinks, embedders: made when it is first asked, since some who hold a collection never embed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from processors.exceptions import FatalError
from processors.ports import Embedder
from sinks.embedders.cache import CachedEmbedder

OpenEmbedder = Callable[[str], Embedder]
"""An embedder by its name in configuration."""


class LateEmbedder:
    """An embedder that is made when it is first asked: deleting from a collection needs no model, and must not fail for one."""

    def __init__(self, name: str, model: str, dimension: int, open_embedder: OpenEmbedder) -> None:
        self._name = name
        self._model = model
        self._dimension = dimension
        self._open = open_embedder
        self._lock = threading.Lock()
        self._inner: Embedder | None = None

    @property
    def model(self) -> str:
        return self._model

    @property
    def dimension(self) -> int:
        return self._dimension

    def make(self) -> Embedder:
        """The embedder itself.

        Raises:
            FatalError: it cannot be made, or gives other vectors than it gave when the collection was built.
        """
        with self._lock:
            if self._inner is None:
                made = self._open(self._name)
                if (made.model, made.dimension) != (self._model, self._dimension):
                    raise FatalError(
                        f"the collection's vectors are of {self._model} with {self._dimension} dimensions, but the "
                        f"embedder {self._name} now gives {made.model} with {made.dimension}"
                    )
                self._inner = made
            return self._inner

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return self.make().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.make().embed_query(text)

    def forget_texts(self) -> None:
        """Empty its cache."""
        if isinstance(self._inner, CachedEmbedder):
            self._inner.clear()
