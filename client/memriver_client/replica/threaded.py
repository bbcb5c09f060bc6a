"""Replica, threaded: the same for programs without an event loop; it keeps one in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from memriver_client.exceptions import ReplicaStopped
from memriver_client.model import Memory
from memriver_client.owners import Owner
from memriver_client.replica.listeners import OnChange
from memriver_client.replica.replica import Replica
from memriver_client.replica.status import Status

T = TypeVar("T")


class ThreadedReplica:
    """`ThreadedReplica(lambda: Replica(…))`. Use as a context manager; every method may be called from any thread.

    Callbacks run in the replica's thread. Calling a method of this class from one would wait for itself, and is refused.
    """

    def __init__(self, build: Callable[[], Replica]) -> None:
        self._build = build
        self._replica: Replica | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Callbacks from before the start.
        self._early: list[tuple[OnChange, str | None]] = []

    def start(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """See `Replica.start`."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="memriver-replica", daemon=True)
            self._thread.start()
            self._replica = self._call(self._built())
        self._call(self._running().start(wait=wait, timeout=timeout))

    def stop(self) -> None:
        """See `Replica.stop`; ends the thread."""
        if self._loop is None or self._thread is None:
            return
        if self._replica is not None:
            self._call(self._replica.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = self._replica = None

    def __enter__(self) -> ThreadedReplica:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def get(self, memory_id: str, *, any_status: bool = False) -> Memory | None:
        """See `Replica.get`."""
        return self._read(lambda replica: replica.get(memory_id, any_status=any_status))

    def memories(
        self, *, owner: str | Owner | None = None, namespace: str | None = None, any_status: bool = False
    ) -> list[Memory]:
        """See `Replica.memories`."""
        return self._read(lambda replica: replica.memories(owner=owner, namespace=namespace, any_status=any_status))

    def wait_for(self, memory_id: str, version: int = 1, timeout: float | None = 10.0) -> Memory | None:
        """See `Replica.wait_for`."""
        return self._call(self._running().wait_for(memory_id, version, timeout))

    def on_change(self, callback: OnChange, namespace: str | None = None) -> None:
        """See `Replica.on_change`; may be called before `start`, so that nothing is missed."""
        if self._replica is None:
            self._early.append((callback, namespace))
        else:
            self._read(lambda replica: replica.on_change(callback, namespace))

    def resync(self, owner: str | Owner | None = None) -> None:
        """See `Replica.resync`."""
        self._call(self._running().resync(owner))

    @property
    def status(self) -> Status:
        """See `Replica.status`."""
        return self._read(lambda replica: replica.status)

    async def _built(self) -> Replica:
        # In its own loop: asyncio's events belong to the loop they are made in (Python 3.9 and before) or first used in.
        replica = self._build()
        for callback, namespace in self._early:
            replica.on_change(callback, namespace)
        return replica

    def _running(self) -> Replica:
        if self._replica is None:
            raise ReplicaStopped("the replica is not running")
        return self._replica

    def _read(self, read: Callable[[Replica], T]) -> T:
        async def run() -> T:
            return read(self._running())

        return self._call(run())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or threading.current_thread() is self._thread:
            work.close()
            raise ReplicaStopped("the replica is not running, or was asked from one of its own callbacks")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
