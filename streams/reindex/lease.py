"""Re-embedding, the lease: whose task it is, kept alive while the work goes on; a dead holder's task is free a minute later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from sinks.truth import Truth, collections

LEASE = timedelta(seconds=30)
_KEPT_EVERY_SECONDS = 1.0


class Lost(Exception):
    """The task is no longer ours: it was dropped, or somebody took over."""


class Halted(Exception):
    """This process is stopping."""


class Lease:
    """What the work calls between its steps. Used by one thread."""

    def __init__(
        self, truth: Truth, name: str, holder: str, now: Callable[[], datetime], halt: threading.Event
    ) -> None:
        self._truth = truth
        self._name = name
        self._holder = holder
        self._now = now
        self._halt = halt
        self._kept_at = 0.0

    def keep(self, **progress: str | int | None) -> None:
        """Write progress down, and lengthen the lease.

        Raises:
            Lost, Halted: the work must end here.
        """
        if self._halt.is_set():
            raise Halted
        ours = self._truth.run(
            lambda connection: collections.keep(connection, self._name, self._holder, self._now(), LEASE, **progress)
        )
        if not ours:
            raise Lost
        self._kept_at = time.monotonic()

    def note(self, **progress: str | int | None) -> None:
        """As `keep`, but at most once a second: progress between two writes is lost with the process, and done again."""
        if self._halt.is_set():
            raise Halted
        if time.monotonic() - self._kept_at >= _KEPT_EVERY_SECONDS:
            self.keep(**progress)

    def wait(self, seconds: float) -> None:
        """Sleep, without losing the lease."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._halt.wait(min(left, _KEPT_EVERY_SECONDS))
            self.note()
