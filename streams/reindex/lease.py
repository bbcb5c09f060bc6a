"""Re-embedding, the lease: whose task it is, kept alive while the work goes on; a dead holder's task is soon free.

A thread lengthens it, since a step of the work may take long: a slow model, a server that is waited for.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self

from processors.exceptions import MemriverError
from sinks.truth import Truth, collections

LEASE = timedelta(seconds=20)
_KEPT_EVERY_SECONDS = 4.0
_NOTED_EVERY_SECONDS = 1.0


class Lost(Exception):
    """The task is no longer ours: it was dropped, or somebody took over."""


class Halted(Exception):
    """This process is stopping."""


class Lease:
    """`with` it around the work. `note` and `keep` are for the thread that works."""

    def __init__(
        self, truth: Truth, name: str, holder: str, now: Callable[[], datetime], halt: threading.Event
    ) -> None:
        self._truth = truth
        self._name = name
        self._holder = holder
        self._now = now
        self._halt = halt
        self._over = threading.Event()
        self._lost = False
        self._noted_at = 0.0
        self._thread = threading.Thread(target=self._lengthen, name="memriver-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def keep(self, **progress: str | int | None) -> None:
        """Write progress down.

        Raises:
            Lost, Halted: the work must end here.
        """
        self._check()
        if not self._kept(**progress):
            raise Lost
        self._noted_at = time.monotonic()

    def note(self, **progress: str | int | None) -> None:
        """As `keep`, but at most once a second: progress between two writes is lost with the process, and done again."""
        self._check()
        if time.monotonic() - self._noted_at >= _NOTED_EVERY_SECONDS:
            self.keep(**progress)

    def wait(self, seconds: float) -> None:
        """Sleep, unless the work must end."""
        self._halt.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self._halt.is_set():
            raise Halted
        if self._lost:
            raise Lost

    def _kept(self, **progress: str | int | None) -> bool:
        return self._truth.run(
            lambda connection: collections.keep(connection, self._name, self._holder, self._now(), LEASE, **progress)
        )

    def _lengthen(self) -> None:
        while not self._over.wait(_KEPT_EVERY_SECONDS):
            try:
                self._lost = self._lost or not self._kept()
            except MemriverError:
                continue  # truth is away: the work will notice, and the lease may yet be lengthened in time


def new_holder() -> str:
    """A name for a holder that says which process it is."""
    return f"{socket.gethostname()[:24]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def is_dead(holder: str) -> bool:
    """Whether the holder was a process of this machine that is gone; False for other machines, whose lease must run out."""
    host, _, rest = holder.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname()[:24] or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
