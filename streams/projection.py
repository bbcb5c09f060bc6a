"""The vector projection: memories as truth has them, written to the vector store behind its version fence."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from processors.keywords import sparse
from processors.ports import Embedder
from schemas import Memory, Status
from sinks.embedders.exceptions import RefusedTexts
from sinks.vectors import Point, Tombstone, VectorStore

log = logging.getLogger("memriver.projection")


class VectorProjection:
    """Writes any versions in any order; the store keeps the newest. Blocking; run it in a thread."""

    def __init__(self, store: VectorStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder

    def write(self, memories: Iterable[Memory]) -> int:
        """Upsert or tombstone each memory at its highest version; returns how many were written.

        Raises:
            TransientError: the store or the embedder is away.
        """
        newest: dict[str, Memory] = {}
        for memory in memories:
            known = newest.get(memory.id)
            if known is None or memory.version > known.version:
                newest[memory.id] = memory
        gone = [memory for memory in newest.values() if memory.status is Status.DELETED]
        kept = [memory for memory in newest.values() if memory.status is not Status.DELETED]
        if kept:
            vectors = self._embed([memory.text for memory in kept])
            self._store.upsert([_point(memory, vector) for memory, vector in zip(kept, vectors, strict=True)])
        if gone:
            self._store.delete([Tombstone(memory.id, memory.version) for memory in gone])
        return len(newest)

    def _embed(self, texts: list[str]) -> list[list[float]]:
        try:
            return self._embedder.embed_documents(texts)
        except RefusedTexts as error:
            # One text that the endpoint refuses must not keep the others from being found. Its memory is in truth and
            # keeps its keywords; the constant vector is far from any question's.
            log.warning(
                "the embedder refused %d of %d texts; they are found by keyword only", len(error.positions), len(texts)
            )
            blank = [1.0] + [0.0] * (self._embedder.dimension - 1)
            return [blank if vector is None else vector for vector in error.vectors]


def _point(memory: Memory, dense: list[float]) -> Point:
    return Point(
        id=memory.id,
        owner_key=memory.owner_key,
        tenant=memory.tenant,
        namespace=memory.namespace,
        status=memory.status.value,
        type=memory.type.value,
        category=memory.category.value,
        attribute=memory.attribute,
        version=memory.version,
        event_time=(memory.valid_from or memory.last_stated_at).timestamp(),
        expires_at=memory.expires_at.timestamp() if memory.expires_at else None,
        language=memory.language,
        confidence=memory.confidence,
        sensitivity=memory.sensitivity.value,
        dense=dense,
        sparse=sparse(f"{memory.text} {memory.value}"),
    )
