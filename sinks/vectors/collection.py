"""Sinks, vectors: one collection with its model, and what those who ask and those who write need of collections (SPEC L5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from processors.ports import Embedder
from sinks.embedders.calibration import Calibration, calibration_for
from sinks.truth.collections import Listed
from sinks.vectors.protocol import VectorStore, collection_name


@dataclass(frozen=True, slots=True)
class Collection:
    """One vector space: the store, the model that its vectors are of, and what their cosines mean."""

    name: str
    live: bool
    store: VectorStore
    embedder: Embedder
    calibration: Calibration


class LiveCollection(Protocol):
    """Where questions are asked."""

    def live(self) -> AbstractContextManager[Collection]:
        """The live collection, which stays open until the context is left."""

    def refresh(self) -> None:
        """Look again which one is live."""


class EveryCollection(Protocol):
    """Where changes go."""

    def write(self, action: Callable[[Collection], None]) -> None:
        """Do `action` with each collection that changes belong into; the live one must succeed."""


class OneCollection:
    """A single collection that no truth lists: for tests, benchmarks and tools with a store of their own."""

    trouble: str | None = None
    """It is always the one in use."""

    def __init__(self, store: VectorStore, embedder: Embedder, calibration: Calibration | None = None) -> None:
        name = collection_name("one", embedder.model, embedder.dimension)
        scale = calibration or calibration_for(embedder.model)
        self._collection = Collection(name, True, store, embedder, scale)

    @contextmanager
    def live(self) -> Iterator[Collection]:
        """It."""
        yield self._collection

    def refresh(self) -> None:
        """There is no other."""

    def write(self, action: Callable[[Collection], None]) -> None:
        """Do it with the one."""
        action(self._collection)


def calibration_of(row: Listed) -> Calibration:
    """What was measured for the collection, or the built-in one of its model."""
    return Calibration.from_json(row.calibration) if row.calibration is not None else calibration_for(row.model)
