"""Re-embedding, the work: take up a task that truth lists, do it, write down how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random

from sqlalchemy import Connection

from processors.exceptions import ConflictError, FatalError, MemriverError, TransientError
from sinks.truth import Truth, collections
from sinks.truth.collections import CollectionRow, Source, State, Task
from sinks.vectors.collection import Collection
from sinks.vectors.collections import Collections
from streams.reindex.build import Build
from streams.reindex.calibrating import calibrate
from streams.reindex.compare import Comparison, repair
from streams.reindex.events import read_events
from streams.reindex.fences import fence_erased
from streams.reindex.lease import LEASE, Halted, Lease, Lost, is_dead, new_holder
from streams.reindex.verify import Verification
from streams.settings import Settings

log = logging.getLogger("memriver.reindex")

_LEAVES_AFTER = timedelta(seconds=5)
"""A collection that was live goes this long after the switch at the earliest: by then every process has looked again."""


class Reindexer:
    """Does the tasks of one process, one after the other. Blocking; `halt` makes it let go at the next page.

    `keeps` leaves a task that cannot be done here to others instead of giving it up: right for a command line that does
    the work only because nobody else came.
    """

    def __init__(
        self,
        settings: Settings,
        truth: Truth,
        opened: Collections,
        *,
        now: Callable[[], datetime],
        halt: threading.Event,
        keeps: bool = False,
        rng: Random | None = None,
    ) -> None:
        self._settings = settings
        self._truth = truth
        self._opened = opened
        self._now = now
        self._halt = halt
        self._keeps = keeps
        self._rng = rng or Random()
        self._holder = new_holder()

    def step(self) -> bool:
        """Take up one task, if there is one that nobody is at work on; whether there was.

        Raises:
            TransientError: a server is away; the task waits to be taken up again where it was.
            FatalError: it cannot be done; the reason is in truth.
        """
        if self._halt.is_set():
            return False
        now = self._now()
        free_the_dead(self._truth)
        with self._truth.reading() as connection:
            waiting = collections.waiting(connection, now)
            owing = [row for row in collections.existing(connection) if _is_to_be_repaired(row)]
        for row in waiting:
            if self._due(row, now) and self._claimed(row):
                self._perform(row)
                return True
        if not waiting and owing:
            # Nobody has to ask for this: what is owed is written as soon as its embedder answers again.
            self._truth.run(lambda connection: _ask_for_repair(connection, owing[0].name, now))
            return True
        return False

    def _due(self, row: CollectionRow, now: datetime) -> bool:
        if row.task is not Task.DROP or row.switched_at is None:
            return True
        return now - row.switched_at >= _LEAVES_AFTER

    def _claimed(self, row: CollectionRow) -> bool:
        return self._truth.run(lambda connection: collections.claim(connection, row, self._holder, self._now(), LEASE))

    def _perform(self, row: CollectionRow) -> None:
        try:
            with Lease(self._truth, row.name, self._holder, self._now, self._halt) as lease:
                if row.task is Task.DROP:
                    self._drop(row)
                else:
                    with self._opened.using(row) as collection:
                        self._do(row, collection, lease)
        except Lost:
            log.info("%s: somebody else goes on with it", row.name)
        except Halted:
            self._fail(row, None, again=True)
        except TransientError as error:
            self._fail(row, str(error), again=True)
            raise
        except MemriverError as error:
            self._fail(row, str(error), again=self._keeps)
            raise
        except Exception as error:
            # The process will end; its successor must not meet the same task again, and end, and so on.
            self._fail(row, f"unforeseen: {type(error).__name__}", again=False)
            raise

    def _fail(self, row: CollectionRow, error: str | None, *, again: bool) -> None:
        self._truth.run(lambda connection: collections.fail(connection, row.name, self._holder, error, again=again))

    def _do(self, row: CollectionRow, collection: Collection, lease: Lease) -> None:
        if row.task in (Task.BUILD, Task.REPAIR):
            fence_erased(self._truth, collection.store, lease)
        if row.task is Task.BUILD:
            self._build(row, collection, lease)
        elif row.task is Task.REPAIR:
            self._repair(row, collection, lease)
        elif row.task is Task.VERIFY:
            self._verify(row, collection, lease)
        else:
            raise FatalError(f"there is no task {row.task}")

    def _build(self, row: CollectionRow, collection: Collection, lease: Lease) -> None:
        if row.calibration is None:
            lease.keep(calibration=calibrate(self._truth, collection.embedder, self._rng).to_json())
        build = Build(self._truth, collection, lease, row.rate)
        if row.source is Source.EVENTS:
            read_events(self._settings, self._truth, build, row)
        else:
            build.from_truth(row)
        self._bring_up(row, collection, lease, built_at=self._now())

    def _repair(self, row: CollectionRow, collection: Collection, lease: Lease) -> None:
        if row.calibration is None and row.status is not State.LIVE:
            lease.keep(calibration=calibrate(self._truth, collection.embedder, self._rng).to_json())
        self._bring_up(row, collection, lease)

    def _bring_up(self, row: CollectionRow, collection: Collection, lease: Lease, **outcome: datetime) -> None:
        """Compare with truth, write what is missing, and strike what was owed when the comparison began."""
        with self._truth.reading() as connection:
            before = collections.get(connection, row.name)
        if before is None:
            raise Lost
        comparison = Comparison(self._truth, collection.store, lease, shown=row.task is not Task.BUILD)
        mended = repair(comparison, self._truth, collection)
        log.info("%s: compared with truth, %d points written or taken away", row.name, mended)
        self._finish(row, repaired=before.missed, error=None, **outcome)

    def _verify(self, row: CollectionRow, collection: Collection, lease: Lease) -> None:
        with self._opened.live() as live:
            found = Verification(self._truth, live, collection, lease, self._rng).run(now=self._now())

        def work(connection: Connection) -> bool:
            state = collections.get(connection, row.name)
            if state is None:
                return False
            report = dict(found)
            if state.owes:
                report["ok"] = False
                report["reasons"] = [*found["reasons"], "changes did not reach it: memriver reindex repair"]
            outcome: dict[str, object] = {"report": report, "error": None}
            if state.status in (State.BUILDING, State.VERIFIED):
                outcome["status"] = (State.VERIFIED if report["ok"] else State.BUILDING).value
                outcome["verified_at"] = self._now() if report["ok"] else None
            return collections.finish(connection, row.name, self._holder, **outcome)

        self._truth.run(work)

    def _drop(self, row: CollectionRow) -> None:
        self._opened.discard(row)
        self._truth.run(lambda connection: collections.dropped(connection, row.name, self._now()))
        # Once more: an erasure that listed it before may have made it anew in between, by opening it.
        self._opened.discard(row)
        log.info("%s is dropped", row.name)

    def _finish(self, row: CollectionRow, **outcome: object) -> None:
        if not self._truth.run(lambda connection: collections.finish(connection, row.name, self._holder, **outcome)):
            raise Lost


def free_the_dead(truth: Truth) -> None:
    """Free what is held by processes of this machine that are gone, without waiting for their leases to run out."""
    with truth.reading() as connection:
        held = [(row.name, row.holder) for row in collections.existing(connection) if row.holder is not None]
    for name, holder in held:
        if is_dead(holder):
            truth.run(partial(_release, name=name, holder=holder))


def _release(connection: Connection, *, name: str, holder: str) -> None:
    collections.release(connection, name, holder)


def _is_to_be_repaired(row: CollectionRow) -> bool:
    return bool(row.owes) and row.task is None and row.built_at is not None and row.status is not State.DROPPING


def _ask_for_repair(connection: Connection, name: str, now: datetime) -> None:
    row = collections.get(connection, name)
    if row is None or not _is_to_be_repaired(row):
        raise ConflictError("somebody else asked for it")
    collections.request(connection, Task.REPAIR, name, now)
