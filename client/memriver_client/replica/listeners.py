"""Replica, listeners: who is told of what — callbacks by namespace, and those who wait for one version."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from memriver_client.exceptions import ReplicaStopped, WaitTimeout
from memriver_client.model import Memory, MemoryUpdated
from memriver_client.replica.scope import within
from memriver_client.replica.state import Entry

_log = logging.getLogger("memriver_client.replica")


@dataclass(frozen=True)
class Change:
    """One change of what the replica holds.

    `before` and `after` are None where nothing was or is held. `event` is the event, None when the change was found
    while reading an owner again, and for erasures. `live` is False while the replica is still catching up.
    """

    memory_id: str
    version: int
    before: Memory | None
    after: Memory | None
    event: MemoryUpdated | None
    live: bool

    @property
    def kind(self) -> str:
        """What the event says (`created`, `superseded`, …); without one `updated`, or `removed` when nothing is held."""
        if self.event is not None:
            return self.event.change
        return "removed" if self.after is None else "updated"


@dataclass(frozen=True)
class Conflict:
    """Two contents with the same version. `held` stays (None: deleted at that version); `rival` was not applied."""

    memory_id: str
    version: int
    held: Memory | None
    rival: Memory


OnChange = Callable[[Change], Awaitable[None] | None]
OnConflict = Callable[[Conflict], Awaitable[None] | None]


class Listeners:
    """Callbacks by namespace prefix. One that raises is logged and counted, and stops nobody else."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[str | None, OnChange]] = []
        self.failed = 0

    def add(self, prefix: str | None, callback: OnChange) -> Callable[[], None]:
        """Tell this callback of changes below the prefix (None: of all). Returns what takes it off again."""
        entry = (prefix, callback)
        self._callbacks.append(entry)
        return lambda: self._callbacks.remove(entry) if entry in self._callbacks else None

    async def tell(self, changes: Sequence[Change]) -> None:
        """Calls in the order of the changes, one after the other."""
        for change in changes:
            namespaces = {memory.namespace for memory in (change.before, change.after) if memory is not None}
            for prefix, callback in list(self._callbacks):
                if prefix is None or any(within(namespace, prefix) for namespace in namespaces):
                    self.failed += not await called(callback, change)


async def called(callback: Callable[..., Awaitable[None] | None], *arguments: object) -> bool:
    """Calls a callback of the agent's, plain or async; False when it raised. The message is not logged: it may quote a memory."""

    async def run() -> None:
        answer = callback(*arguments)
        if inspect.isawaitable(answer):
            await answer

    (failure,) = await asyncio.gather(run(), return_exceptions=True)
    if isinstance(failure, asyncio.CancelledError):
        raise failure
    if failure is not None:
        _log.error("a callback raised %s", type(failure).__name__)
    return failure is None


class Waiters:
    """Those who wait until a version, or a later one, is known here."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, asyncio.Future[Memory | None]]]] = defaultdict(list)

    async def wait(self, entry: Entry | None, memory_id: str, version: int, timeout: float | None) -> Memory | None:
        """The memory at that version or a later one, None when it is gone by then. `timeout` in seconds.

        Raises:
            WaitTimeout: the version did not arrive in time.
            ReplicaStopped: the replica was stopped meanwhile.
        """
        if entry is not None and entry.version >= version:
            return entry.memory
        future: asyncio.Future[Memory | None] = asyncio.get_running_loop().create_future()
        waiting = (version, future)
        self._waiting[memory_id].append(waiting)
        try:
            # Not wait_for(): before Python 3.12 it may lose a cancellation that comes together with the result.
            await asyncio.wait({future}, timeout=timeout)
            if not future.done():
                raise WaitTimeout(f"version {version} of memory {memory_id} did not arrive within {timeout} s")
            return future.result()
        finally:
            self._waiting[memory_id].remove(waiting)
            if not self._waiting[memory_id]:
                del self._waiting[memory_id]

    def arrived(self, memory_id: str, entry: Entry) -> None:
        """Tell those whose version this is, or is past."""
        for version, future in self._waiting.get(memory_id, ()):
            if entry.version >= version and not future.done():
                future.set_result(entry.memory)

    def give_up(self) -> None:
        """The replica stops: nothing will arrive."""
        for waiting in self._waiting.values():
            for _version, future in waiting:
                if not future.done():
                    future.set_exception(ReplicaStopped("the replica was stopped"))
