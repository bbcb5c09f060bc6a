"""Sinks, vectors: the collections of a deployment as truth lists them, each with the model it was made with (SPEC L5).

A vector and the model that made it never part: whoever searches or writes gets both in one `Collection`. Which of them is
live, truth says; this process looks again once a second, opens the new one, lets new questions use it, and closes the old
one when its last question is answered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from processors.exceptions import FatalError, MemriverError
from processors.ports import Embedder
from sinks.embedders.cache import CachedEmbedder
from sinks.embedders.calibration import Calibration, calibration_for
from sinks.truth import Truth, collections
from sinks.truth.collections import CollectionRow, State
from sinks.vectors.protocol import VectorStore, collection_name

log = logging.getLogger("memriver.collections")

_REST_SECONDS = 10.0
"""How long a collection beside the live one is left alone after a write to it failed."""

OpenStore = Callable[[str, int], VectorStore]
"""(model, dimension) → a store that is not opened yet."""
OpenEmbedder = Callable[[str], Embedder]
"""An embedder by its name in configuration."""


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


@dataclass(slots=True)
class _Open:
    collection: Collection
    users: int = 0
    # Asked for by a writer: kept open until it is dropped, since the next change comes soon.
    kept: bool = False
    calibration: str | None = None


class Collections:
    """The collections of this process. Methods may be called from several threads.

    `every()` is for whoever must reach all vectors there are (an erasure): the live, the previous, the one under
    construction and the one about to be dropped.
    """

    def __init__(
        self,
        truth: Truth,
        open_store: OpenStore,
        open_embedder: OpenEmbedder,
        *,
        refresh_seconds: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._truth = truth
        self._open_store = open_store
        self._open_embedder = open_embedder
        self._refresh_seconds = refresh_seconds
        self._monotonic = monotonic
        self._opened: dict[str, _Open] = {}
        self._live: str | None = None
        self._resting: dict[str, float] = {}
        self._looked_at = 0.0
        self._looking = False
        self._idle = threading.Condition()
        # Opening may take seconds (a local model); questions go on meanwhile, so it has a lock of its own.
        self._opening = threading.Lock()
        self.trouble: str | None = None
        """Why the collection that truth calls live is not the one in use here; None when it is."""

    @contextmanager
    def live(self) -> Iterator[Collection]:
        """The live collection; never waits for a switch: until the new one is open, the old one answers.

        Raises:
            FatalError: no collection is live, or it cannot be opened.
            TransientError: truth or the store is away.
        """
        if self._live is None:
            self._look()
        elif self._monotonic() - self._looked_at >= self._refresh_seconds:
            self._look_aside()
        with self._idle:
            assert self._live is not None
            entry = self._opened[self._live]
            entry.users += 1
        try:
            yield entry.collection
        finally:
            self._leave(entry)

    def write(self, action: Callable[[Collection], None]) -> None:
        """Do `action` with every collection that is not being dropped.

        What is asked of truth here and now is what makes dual writing exact: a change that was committed before this call
        either goes into a collection listed here, or was committed before that collection's build began to read
        (decision 24). If one beside the live one cannot be written, that is noted in truth, and no switch leads to it
        before a repair: an embedder that is only being tried must not hold up the service.

        Raises:
            MemriverError: what opening or writing the live one raised, or truth is away.
        """
        for row in self.listed():
            if row.status is State.LIVE:
                with self.using(row) as collection:
                    action(collection)
            elif row.status is not State.DROPPING:
                self._write_beside(row, action)

    def _write_beside(self, row: CollectionRow, action: Callable[[Collection], None]) -> None:
        if self._monotonic() >= self._resting.get(row.name, 0.0):
            try:
                with self.using(row) as collection:
                    action(collection)
                return
            except MemriverError as error:
                # Its attempts may take a minute each; the live one should not wait for all of them.
                self._resting[row.name] = self._monotonic() + _REST_SECONDS
                log.warning("a change did not reach %s, which a repair must make good: %s", row.name, error)
        self._truth.run(lambda connection: collections.missed(connection, row.name))

    def listed(self) -> list[CollectionRow]:
        """What truth lists now, the live one first."""
        with self._truth.reading() as connection:
            rows = collections.existing(connection)
        self._close_all_but({row.name for row in rows})
        return rows

    @contextmanager
    def using(self, row: CollectionRow) -> Iterator[Collection]:
        """One of the listed ones.

        Raises:
            FatalError: another process owns it, or its embedder cannot be made.
            TransientError: its store is away.
        """
        entry = self._enter(row, kept=True)
        try:
            yield entry.collection
        finally:
            self._leave(entry)

    @contextmanager
    def every(self) -> Iterator[list[Collection]]:
        """All that exist, opened; for an erasure, which must reach each of them or fail.

        Raises:
            FatalError, TransientError: as `using`; none is left out.
        """
        with ExitStack() as stack:
            yield [stack.enter_context(self.using(row)) for row in self.listed()]

    def forget_texts(self) -> None:
        """Empty the embedders' caches of this process, for an erasure."""
        with self._idle:
            entries = list(self._opened.values())
        for entry in entries:
            if isinstance(entry.collection.embedder, CachedEmbedder):
                entry.collection.embedder.clear()

    def refresh(self) -> None:
        """Look now, and wait for it: after this call `live()` is what truth says."""
        self._look()

    def discard(self, name: str) -> None:
        """Delete a collection with all its vectors, as soon as nobody here uses it; it must have been opened before."""
        with self._idle:
            entry = self._opened.pop(name, None)
            if self._live == name:
                self._live = None
            while entry is not None and entry.users:
                self._idle.wait()
        if entry is not None:
            entry.collection.store.drop()

    def close(self) -> None:
        """Close all of them."""
        with self._idle:
            entries, self._opened, self._live = list(self._opened.values()), {}, None
        for entry in entries:
            entry.collection.store.close()

    def _enter(self, row: CollectionRow, *, kept: bool) -> _Open:
        while True:
            with self._idle:
                entry = self._opened.get(row.name)
                if entry is not None:
                    entry.users += 1
                    entry.kept = entry.kept or kept
                    self._update(entry, row)
                    return entry
            self._open(row)

    def _open(self, row: CollectionRow) -> None:
        with self._opening:
            with self._idle:
                if row.name in self._opened:
                    return
            embedder = self._open_embedder(row.embedder)
            if (embedder.model, embedder.dimension) != (row.model, row.dimension):
                raise FatalError(
                    f"{row.name} is of {row.model} with {row.dimension} dimensions, but the embedder {row.embedder} now "
                    f"gives {embedder.model} with {embedder.dimension}"
                )
            store = self._open_store(row.model, row.dimension)
            store.ensure(beside=True)
            collection = Collection(row.name, row.status is State.LIVE, store, embedder, calibration_of(row))
            with self._idle:
                self._opened[row.name] = _Open(collection, calibration=row.calibration)
        self._undo_if_dropped(row)

    def _undo_if_dropped(self, row: CollectionRow) -> None:
        """A collection that was dropped while it was being opened has been made anew by opening it."""
        with self._truth.reading() as connection:
            now = collections.get(connection, row.name)
        if now is None or now.status is not State.DROPPED:
            return
        with self._idle:
            entry = self._opened.pop(row.name, None)
        if entry is not None:
            entry.collection.store.drop()
        raise FatalError(f"{row.name} was dropped meanwhile")

    def _update(self, entry: _Open, row: CollectionRow) -> None:
        """State and calibration may change while it is open; the store and the model never do."""
        live = row.status is State.LIVE
        old = entry.collection
        if old.live != live or entry.calibration != row.calibration:
            entry.collection = Collection(old.name, live, old.store, old.embedder, calibration_of(row))
            entry.calibration = row.calibration

    def _leave(self, entry: _Open) -> None:
        with self._idle:
            entry.users -= 1
            self._idle.notify_all()
            name = entry.collection.name
            done = not entry.users and not entry.kept and name != self._live and self._opened.get(name) is entry
            if done:
                del self._opened[name]
        if done:
            entry.collection.store.close()

    def _close_all_but(self, names: set[str]) -> None:
        """Let go of what was dropped elsewhere; what is still in use goes when its last user leaves."""
        idle: list[_Open] = []
        with self._idle:
            for name in [name for name in self._opened if name not in names]:
                entry = self._opened[name]
                entry.kept = False
                if not entry.users and name != self._live:
                    idle.append(self._opened.pop(name))
        for entry in idle:
            entry.collection.store.close()

    def _look_aside(self) -> None:
        with self._idle:
            if self._looking:
                return
            self._looking = True
        threading.Thread(target=self._look_quietly, name="memriver-collections", daemon=True).start()

    def _look_quietly(self) -> None:
        try:
            self._look()
        except MemriverError as error:
            # The old one goes on answering: it is written to as long as it exists.
            self.trouble = str(error)
            log.warning("the live collection could not be looked up or opened: %s", error)
        finally:
            with self._idle:
                self._looking = False
                self._looked_at = self._monotonic()

    def _look(self) -> None:
        with self._truth.reading() as connection:
            rows = collections.existing(connection)
        live = next((row for row in rows if row.status is State.LIVE), None)
        if live is None:
            raise FatalError("no vector collection is live: start a worker once, it registers the configured embedder")
        entry = self._enter(live, kept=False)
        with self._idle:
            before, self._live = self._live, live.name
            self._looked_at = self._monotonic()
            old = self._opened.get(before) if before is not None and before != live.name else None
            if old is not None:
                old.users += 1
        self.trouble = None
        self._leave(entry)
        if old is not None:
            log.info("recall goes on in %s", live.name)
            self._leave(old)


class OneCollection:
    """A single collection that no truth lists: for tests, benchmarks and tools with a store of their own."""

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


def calibration_of(row: CollectionRow) -> Calibration:
    """What was measured for the collection, or the built-in one of its model."""
    return Calibration.from_json(row.calibration) if row.calibration is not None else calibration_for(row.model)
