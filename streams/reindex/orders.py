"""Re-embedding, the orders: what a person asks for becomes a row in truth, and whoever owns the vectors does it.

Nothing here touches a vector, so an order can be given from any machine that reaches the database, also while another
process owns a Qdrant Edge directory. If nobody takes a task up, the one who gave the order does it itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from datetime import datetime

from processors.exceptions import TransientError
from sinks.truth import Truth, collections
from sinks.truth.collections import CollectionRow, Source, Task
from sinks.vectors import collection_name
from sinks.vectors.aliases import point_alias
from streams.reindex.work import Reindexer, free_the_dead
from streams.settings import Settings
from streams.vectors import PREFIX, open_collections, open_embedder

_LOOK_SECONDS = 0.25
_PATIENCE_SECONDS = 2.5
"""How long an order waits for an owner: several ticks of the reindex clock."""
_AFTER_TROUBLE_SECONDS = 2.0

Watch = Callable[[CollectionRow], None]


class Orders:
    """`now` gives the wall clock. Every order raises PoisonError, with nothing changed, when it cannot be followed."""

    def __init__(self, settings: Settings, truth: Truth, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._truth = truth
        self._now = now

    def start(self, embedder: str, source: Source, rate: int | None) -> CollectionRow:
        """Ask for a collection of this embedder, or for one to be built further whose builder is gone.

        Raises:
            FatalError: the embedder is not known, or lacks something.
        """
        made = open_embedder(self._settings, embedder)
        name = collection_name(PREFIX, made.model, made.dimension)
        free_the_dead(self._truth)
        return self._truth.run(
            lambda connection: collections.request_build(
                connection, name, embedder, made.model, made.dimension, source=source, rate=rate, now=self._now()
            )
        )

    def request(self, task: Task, name: str | None = None) -> CollectionRow:
        """Ask for a verification, a repair or a drop."""
        return self._truth.run(lambda connection: collections.request(connection, task, name, self._now()))

    def switch(self) -> tuple[CollectionRow, CollectionRow]:
        """The verified collection becomes the live one, in one transaction; returns it and the previous one."""
        return self._moved(self._truth.run(lambda connection: collections.switch(connection, self._now())))

    def rollback(self) -> tuple[CollectionRow, CollectionRow]:
        """The previous collection becomes the live one again."""
        return self._moved(self._truth.run(lambda connection: collections.rollback(connection, self._now())))

    def _moved(self, rows: tuple[CollectionRow, CollectionRow]) -> tuple[CollectionRow, CollectionRow]:
        # Only a Qdrant server has aliases. Should this fail, the next start of any process does it.
        if self._settings.qdrant_url.startswith(("http://", "https://")):
            opened = open_collections(self._settings, self._truth)
            try:
                with opened.live() as live:
                    point_alias(live.store, PREFIX)
            finally:
                opened.close()
        return rows

    def rows(self) -> list[CollectionRow]:
        """All collections, also the dropped ones."""
        with self._truth.reading() as connection:
            return collections.listing(connection)

    def look(self, name: str) -> CollectionRow:
        """One of them as it is now."""
        with self._truth.reading() as connection:
            row = collections.get(connection, name)
        assert row is not None  # rows are kept after a drop
        return row

    def follow(self, name: str, watch: Watch, halt: threading.Event) -> CollectionRow:
        """Wait until the task is over, and do it here if nobody takes it up; `halt` ends the waiting, not the task.

        Raises:
            FatalError: nobody takes it up, and it cannot be done here either (another process owns the vectors).
        """
        alone_since = time.monotonic()
        while not halt.is_set():
            row = self.look(name)
            watch(row)
            if row.task is None:
                return row
            if row.held(self._now()):
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since >= _PATIENCE_SECONDS:
                return self._do(name, watch, halt)
            halt.wait(_LOOK_SECONDS)
        return self.look(name)

    def _do(self, name: str, watch: Watch, halt: threading.Event) -> CollectionRow:
        opened = open_collections(self._settings, self._truth)
        work = Reindexer(self._settings, self._truth, opened, now=self._now, halt=halt, keeps=True)
        try:
            with ThreadPoolExecutor(1) as pool:
                while not halt.is_set():
                    row = self.look(name)
                    watch(row)
                    if row.task is None:
                        return row
                    self._step(pool, work, name, watch, halt)
            return self.look(name)
        finally:
            opened.close()

    def _step(self, pool: ThreadPoolExecutor, work: Reindexer, name: str, watch: Watch, halt: threading.Event) -> None:
        step = pool.submit(work.step)
        try:
            while True:
                try:
                    step.result(timeout=_LOOK_SECONDS)
                    break
                except NotYet:
                    if step.done():
                        raise
                    watch(self.look(name))
        except TransientError:
            # Where it broke off is in truth, with the reason, which `watch` shows.
            halt.wait(_AFTER_TROUBLE_SECONDS)
            return
        except KeyboardInterrupt:
            halt.set()
            raise
        halt.wait(_LOOK_SECONDS)
