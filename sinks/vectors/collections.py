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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from processors.exceptions import FatalError, MemriverError
from sinks.embedders.late import LateEmbedder, OpenEmbedder
from sinks.truth import Truth, collections
from sinks.truth.collections import Listed, State
from sinks.vectors.collection import Collection, calibration_of
from sinks.vectors.protocol import VectorStore

log = logging.getLogger("memriver.collections")

_REST_SECONDS = 10.0
"""How long a collection beside the live one is left alone after a write to it failed."""

OpenStore = Callable[[str, int], VectorStore]
"""(model, dimension) → a store that is not opened yet."""


@dataclass(slots=True)
class _Open:
    collection: Collection
    embedder: LateEmbedder
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
        self._times_closed = 0
        self._idle = threading.Condition()
        # Opening may take seconds (a local model); questions go on meanwhile, so it has a lock of its own.
        self._opening = threading.Lock()
        self._one_looks = threading.Lock()
        self.trouble: str | None = None
        """Why the collection that truth calls live is not the one in use here; None when it is."""

    @contextmanager
    def live(self) -> Iterator[Collection]:
        """The live collection; never waits for a switch: until the new one is open, the old one answers.

        Raises:
            FatalError: no collection is live, or it cannot be opened.
            TransientError: truth or the store is away.
        """
        entry = self._enter_live()
        try:
            yield entry.collection
        finally:
            self._leave(entry)

    def _enter_live(self) -> _Open:
        while True:
            if self._live is None:
                self._look()
            elif self._monotonic() - self._looked_at >= self._refresh_seconds:
                self._look_aside()
            with self._idle:
                entry = self._opened.get(self._live) if self._live is not None else None
                # None: it was dropped here just now, by somebody who knew of the switch before.
                if entry is not None:
                    entry.users += 1
                    return entry

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

    def _write_beside(self, row: Listed, action: Callable[[Collection], None]) -> None:
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

    def listed(self) -> list[Listed]:
        """What truth lists now, the live one first."""
        asked_at = self._monotonic()
        rows = collections.listed(self._truth)
        self._close_all_but({row.name for row in rows})
        for row in rows:
            if row.status is State.LIVE:
                self._is_live(row, asked_at)
        return rows

    def _is_live(self, row: Listed, asked_at: float) -> None:
        """Truth says so. If it is in use, nobody needs to look aside: a busy writer asks more often than once a second."""
        with self._idle:
            entry = self._opened.get(row.name)
            if entry is not None and row.name == self._live:
                self._update(entry, row)
                self._looked_at = max(self._looked_at, asked_at)
                self.trouble = None

    @contextmanager
    def using(self, row: Listed) -> Iterator[Collection]:
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
            entry.embedder.forget_texts()

    def refresh(self) -> None:
        """Look now, and wait for it: after this call `live()` is what truth says."""
        self._look()

    def discard(self, row: Listed) -> None:
        """Delete a collection with all its vectors, as soon as nobody here uses it. Doing it again is harmless.

        Raises:
            FatalError: another process owns it.
            TransientError: the store is away.
        """
        with self._idle:
            entry = self._opened.pop(row.name, None)
            if self._live == row.name:
                self._live = None
            while entry is not None and entry.users:
                self._idle.wait()
        with self._opening:
            store = entry.collection.store if entry is not None else self._open_store(row.model, row.dimension)
            store.drop()

    def close(self) -> None:
        """Close all of them."""
        with self._one_looks, self._opening:
            with self._idle:
                self._times_closed += 1
                entries, self._opened, self._live = list(self._opened.values()), {}, None
            for entry in entries:
                entry.collection.store.close()

    def _enter(self, row: Listed, *, kept: bool) -> _Open:
        while True:
            with self._idle:
                entry = self._opened.get(row.name)
                if entry is not None:
                    entry.users += 1
                    entry.kept = entry.kept or kept
                    self._update(entry, row)
                    return entry
            self._open(row)

    def _open(self, row: Listed) -> None:
        with self._opening:
            with self._idle:
                if row.name in self._opened:
                    return
            store = self._open_store(row.model, row.dimension)
            store.ensure(beside=True)
            embedder = LateEmbedder(row.embedder, row.model, row.dimension, self._open_embedder)
            collection = Collection(row.name, row.status is State.LIVE, store, embedder, calibration_of(row))
            with self._idle:
                self._opened[row.name] = _Open(collection, embedder, calibration=row.calibration)
        self._undo_if_dropped(row)

    def _undo_if_dropped(self, row: Listed) -> None:
        """A collection that was dropped while it was being opened has been made anew by opening it."""
        with self._truth.reading() as connection:
            now = collections.get(connection, row.name)
        gone = now is None or now.status is State.DROPPED
        # Whoever opens one that is being dropped, to erase from it, knows that; its dropper looks once more afterwards.
        if gone or (now is not None and now.status is State.DROPPING and row.status is not State.DROPPING):
            self.discard(row)
            raise FatalError(f"{row.name} was dropped meanwhile")

    def _update(self, entry: _Open, row: Listed) -> None:
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
            if not self._is_idle(name, entry):
                return
        with self._opening:
            # Under this lock, so that nobody opens the store anew before it is closed: Edge has one owner.
            with self._idle:
                if not self._is_idle(name, entry):
                    return
                del self._opened[name]
            entry.collection.store.close()

    def _is_idle(self, name: str, entry: _Open) -> bool:
        return not entry.users and not entry.kept and name != self._live and self._opened.get(name) is entry

    def _close_all_but(self, names: set[str]) -> None:
        """Let go of what was dropped elsewhere; what is still in use goes when its last user leaves."""
        with self._idle:
            gone = [entry for name, entry in self._opened.items() if name not in names]
            for entry in gone:
                entry.kept = False
                entry.users += 1
        for entry in gone:
            self._leave(entry)

    def _look_aside(self) -> None:
        with self._idle:
            if self._looking:
                return
            self._looking = True
            times_closed = self._times_closed
        threading.Thread(
            target=self._look_quietly, args=(times_closed,), name="memriver-collections", daemon=True
        ).start()

    def _look_quietly(self, times_closed: int) -> None:
        try:
            with self._one_looks:
                # Closed meanwhile: nothing may be opened that nobody would close.
                if times_closed == self._times_closed:
                    self._take_what_is_live()
        except MemriverError as error:
            # The old one goes on answering: it is written to as long as it exists.
            self.trouble = str(error)
            log.warning("the live collection could not be looked up or opened: %s", error)
        finally:
            with self._idle:
                self._looking = False
                self._looked_at = self._monotonic()

    def _look(self) -> None:
        with self._one_looks:
            self._take_what_is_live()

    def _take_what_is_live(self) -> None:
        rows = collections.listed(self._truth)
        live = next((row for row in rows if row.status is State.LIVE), None)
        if live is None:
            raise FatalError("no vector collection is live: start a worker once, it registers the configured embedder")
        entry = self._enter(live, kept=False)
        try:
            entry.embedder.make()
        except BaseException:
            self._leave(entry)
            raise
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
