"""Re-embedding, keywords: the sparse vectors of many texts, in processes of their own.

Cutting text into words is plain CPU work in one interpreter, more of it than everything else in a build whose embedder is a
service; on one core it would bound the build, and slow down the stages of the same worker.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from processors.keywords import Sparse, sparse

log = logging.getLogger("memriver.reindex")

WORTH_IT = 20_000
"""Memories below which starting interpreters takes longer than it saves."""
_MOST = 4

_Packed = list[tuple[tuple[int, ...], tuple[float, ...]]]


class KeywordPool:
    """`with` it around a build of `size` memories; a small one is done in this process. Safe for threads."""

    def __init__(self, size: int) -> None:
        self._pool: ProcessPoolExecutor | None = None
        if size >= WORTH_IT:
            processes = max(1, min(_MOST, (os.cpu_count() or 1) - 1))
            # Spawned: a fork would copy locks that other threads of a worker hold.
            self._pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> KeywordPool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def sparse(self, texts: Sequence[str]) -> list[Sparse]:
        """One vector for each text."""
        pool = self._pool
        if pool is not None:
            try:
                return [Sparse(indices, values) for indices, values in pool.submit(_packed, list(texts)).result()]
            except BrokenProcessPool:
                log.warning("a process that cuts words died; the build goes on without it")
                self._pool = None
        return [sparse(text) for text in texts]


def _packed(texts: list[str]) -> _Packed:
    return [(vector.indices, vector.values) for vector in map(sparse, texts)]
