"""Re-embedding, the build: truth page by page into a collection, several pages in flight, in constant memory.

The pages go by the memories' ids. What is written down as reached is the end of the last page before which everything is
written, so a builder that is killed goes on there and does at most a few pages twice, which the version fence makes a no-op.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass

from sinks.truth import Truth, scanning
from sinks.truth.collections import CollectionRow
from sinks.truth.scanning import Entry
from sinks.vectors.collection import Collection
from streams.projection import Cut, project
from streams.reindex.keywords import KeywordPool
from streams.reindex.lease import Lease

PAGE = 512
IN_FLIGHT = 4
_LOOK_SECONDS = 1.0
_THREADS = "memriver-reindex"


@dataclass(frozen=True, slots=True)
class _Flying:
    """A page on its way: what is reached, and how many memories are done, when it has arrived."""

    future: Future[None]
    reached: str
    count: int


class Pace:
    """At most `rate` memories a second on average; None: no limit."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._spent = 0

    @property
    def page(self) -> int:
        """How many to take at once: never more than a second's worth."""
        return PAGE if self._rate is None else max(1, min(PAGE, self._rate))

    def seconds_ahead(self, count: int) -> float:
        """How long to wait before the next `count`; they are counted as taken."""
        if self._rate is None:
            return 0.0
        due = self._began + self._spent / self._rate
        self._spent += count
        return max(0.0, due - time.monotonic())


class Build:
    """Fills one collection. Used by one thread; the pages are embedded and written by others."""

    def __init__(self, truth: Truth, collection: Collection, lease: Lease, rate: int | None) -> None:
        self._truth = truth
        self._collection = collection
        self._lease = lease
        self._pace = Pace(rate)
        self._flying: deque[_Flying] = deque()
        self._done = 0
        self._total = 0
        self._reached = ""
        self._cut: Cut = KeywordPool(0).sparse

    def from_truth(self, row: CollectionRow) -> None:
        """Everything after `row.reached`: active, superseded, archived, and deleted as tombstones.

        Raises:
            TransientError: a server is away.
            Lost, Halted: the work must end here; what is reached is in truth.
        """
        with self._truth.reading() as connection:
            total = scanning.size(connection)
        with KeywordPool(total - row.done) as words, ThreadPoolExecutor(IN_FLIGHT, _THREADS) as pool:
            self._cut = words.sparse
            self.begin(row.reached, row.done, total)
            after = row.reached
            try:
                while True:
                    with self._truth.reading() as connection:
                        page = scanning.entries_after(connection, after, self._pace.page)
                    if not page:
                        break
                    after = page[-1].id
                    self.send(pool, page, after, len(page))
                self.settle()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, reached: str, done: int, total: int) -> None:
        """Note where the work starts."""
        self._reached, self._done, self._total = reached, done, total
        self._lease.keep(reached=reached, done=done, total=total)

    def send(self, pool: ThreadPoolExecutor, page: Sequence[Entry], reached: str, count: int) -> None:
        """One page on its way, as soon as the pace and the pages before it allow."""
        ahead = self._pace.seconds_ahead(count)
        if ahead:
            self._lease.wait(ahead)
        if len(self._flying) >= IN_FLIGHT:
            self._land()
        self._flying.append(_Flying(pool.submit(project, self._collection, page, self._cut), reached, count))

    def settle(self) -> None:
        """Wait for all pages, and write the end down."""
        while self._flying:
            self._land()
        self._lease.keep(reached=self._reached, done=self._done, total=max(self._total, self._done))

    def _land(self) -> None:
        first = self._flying[0]
        while True:
            try:
                first.future.result(timeout=_LOOK_SECONDS)
                break
            except NotYet:
                if first.future.done():
                    raise
                self._lease.note()
        self._flying.popleft()
        self._reached = first.reached
        self._done += first.count
        self._lease.note(reached=self._reached, done=self._done)
