"""Recall, evaluation: vectors of texts, kept in a directory between runs, since embedding a conversation takes a minute."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from processors.ports import Embedder
from schemas import digest

_BATCH = 32

Rows = NDArray[np.float32]


def cache_directory() -> Path:
    """Where the platform keeps what can be made again (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memriver"


class KeptVectors:
    """An embedder whose results stay on disk, one file per list of texts."""

    def __init__(self, embedder: Embedder, directory: Path) -> None:
        self.embedder = embedder
        self._directory = directory

    def documents(self, texts: Sequence[str]) -> Rows:
        """(n, dimension), in order."""
        return self._kept("documents", texts)

    def questions(self, texts: Sequence[str]) -> Rows:
        """(n, dimension), in order."""
        return self._kept("questions", texts)

    def _kept(self, kind: str, texts: Sequence[str]) -> Rows:
        name = digest(kind, self.embedder.model, str(self.embedder.dimension), *texts)
        path = self._directory / f"{name}.npy"
        if path.exists():
            rows: Rows = np.load(path, allow_pickle=False)
            return rows
        rows = np.asarray(self._embed(kind, texts), dtype=np.float32).reshape(len(texts), self.embedder.dimension)
        self._directory.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}.npy")
        np.save(aside, rows, allow_pickle=False)
        # A run that is broken off leaves no half file under the real name.
        aside.rename(path)
        return rows

    def _embed(self, kind: str, texts: Sequence[str]) -> list[list[float]]:
        if kind == "questions":
            return [self.embedder.embed_query(text) for text in texts]
        found: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            found += self.embedder.embed_documents(texts[start : start + _BATCH])
        return found
