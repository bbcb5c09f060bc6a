"""The vector projection: memories as truth has them, written to every collection behind its version fence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from processors.keywords import Sparse, sparse
from processors.ports import Embedder
from schemas import Memory, Status
from sinks.embedders.exceptions import RefusedTexts
from sinks.truth.scanning import Entry
from sinks.vectors import Point, Tombstone
from sinks.vectors.collection import Collection, EveryCollection

log = logging.getLogger("memriver.projection")

Cut = Callable[[Sequence[str]], list[Sparse]]
"""From texts to their keywords."""


def _sparse(texts: Sequence[str]) -> list[Sparse]:
    return [sparse(text) for text in texts]


class VectorProjection:
    """Writes any versions in any order; the stores keep the newest. Blocking; run it in a thread."""

    def __init__(self, collections: EveryCollection) -> None:
        self._collections = collections

    def write(self, memories: Iterable[Memory]) -> int:
        """Upsert or tombstone each memory at its highest version, in each collection with the vectors of its own model.

        Returns how many were written.

        Raises:
            TransientError: the live collection's store or embedder is away, or truth is.
        """
        newest: dict[str, Memory] = {}
        for memory in memories:
            known = newest.get(memory.id)
            if known is None or memory.version > known.version:
                newest[memory.id] = memory
        entries = [entry_of(memory) for memory in newest.values()]
        if entries:
            self._collections.write(lambda collection: project(collection, entries))
        return len(entries)

    def bury(self, gone: Sequence[Tombstone]) -> None:
        """Take away what truth no longer knows, in each collection.

        Raises:
            TransientError: the live collection's store is away, or truth is.
        """
        self._collections.write(lambda collection: _bury(collection, gone))


def _bury(collection: Collection, gone: Sequence[Tombstone]) -> None:
    store, versions = collection.store, {tombstone.id: tombstone.version for tombstone in gone}
    came = [
        point.id
        for point in store.get(list(versions))
        if point.status != Status.DELETED.value and point.version <= versions[point.id]
    ]
    store.delete(gone)
    if came:
        log.warning(
            "%s: %d points came after their memories were erased, and are gone again", collection.name, len(came)
        )
        compact = getattr(store, "compact", None)
        if compact is not None:
            compact()


def project(collection: Collection, entries: Sequence[Entry], cut: Cut = _sparse) -> None:
    """Write these states of memories, each id once, into one collection; `cut` makes the sparse vectors.

    Raises:
        TransientError: its store or embedder is away.
    """
    gone = [Tombstone(entry.id, entry.version) for entry in entries if entry.status == Status.DELETED.value]
    kept = [entry for entry in entries if entry.status != Status.DELETED.value]
    if kept:
        words = cut([f"{entry.text} {entry.value}" for entry in kept])
        vectors = embed(collection.embedder, [entry.text for entry in kept])
        rows = zip(kept, vectors, words, strict=True)
        collection.store.upsert([point_of(entry, vector, keywords) for entry, vector, keywords in rows])
    if gone:
        collection.store.delete(gone)


def embed(embedder: Embedder, texts: list[str]) -> list[list[float]]:
    """Vectors of memories' texts; a refused one gets a constant."""
    try:
        return embedder.embed_documents(texts)
    except RefusedTexts as error:
        # One text that the endpoint refuses must not keep the others from being found. Its memory is in truth and
        # keeps its keywords; the constant vector is far from any question's.
        log.warning(
            "the embedder refused %d of %d texts; they are found by keyword only", len(error.positions), len(texts)
        )
        blank = [1.0] + [0.0] * (embedder.dimension - 1)
        return [blank if vector is None else vector for vector in error.vectors]


def entry_of(memory: Memory) -> Entry:
    """The memory as its row in truth has it."""
    return Entry(
        id=memory.id,
        owner_key=memory.owner_key,
        tenant=memory.tenant,
        namespace=memory.namespace,
        status=memory.status.value,
        type=memory.type.value,
        category=memory.category.value,
        attribute=memory.attribute,
        version=memory.version,
        valid_from=memory.valid_from,
        last_stated_at=memory.last_stated_at,
        expires_at=memory.expires_at,
        language=memory.language,
        confidence=memory.confidence,
        sensitivity=memory.sensitivity.value,
        text=memory.text,
        value=memory.value,
    )


def point_of(entry: Entry, dense: Sequence[float], keywords: Sparse) -> Point:
    """The point of a memory that is not deleted; keywords are those of text and value."""
    return Point(
        id=entry.id,
        owner_key=entry.owner_key,
        tenant=entry.tenant,
        namespace=entry.namespace,
        status=entry.status,
        type=entry.type,
        category=entry.category,
        attribute=entry.attribute,
        version=entry.version,
        event_time=(entry.valid_from or entry.last_stated_at).timestamp(),
        expires_at=entry.expires_at.timestamp() if entry.expires_at else None,
        language=entry.language,
        confidence=entry.confidence,
        sensitivity=entry.sensitivity,
        dense=dense,
        sparse=keywords,
    )
