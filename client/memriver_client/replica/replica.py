"""Replica: a local copy of the memories in scope that follows `memory_updated`: snapshot, tail, gaps, restarts (SPEC A1)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any

from memriver_client.exceptions import ReplicaStopped, WaitTimeout
from memriver_client.model import Memory
from memriver_client.owners import Owner
from memriver_client.replica.core import Core, Source
from memriver_client.replica.listeners import OnChange, OnConflict
from memriver_client.replica.scope import Scope
from memriver_client.replica.session import TROUBLE, Session, Timing
from memriver_client.replica.status import Status
from memriver_client.replica.store import MemoryStore, Store

_log = logging.getLogger("memriver_client.replica")

Snapshot = Callable[[], AsyncIterator[Memory]]
"""Reads all memories in scope from truth. Called on a new start instead of reading the log from its beginning."""


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Replica:
    """Follows one tenant's memories, or those of named owners and namespaces, and answers without a network.

    Start: what the store kept, else `snapshot`, else the log from its beginning; then the tail. The log is read on all
    partitions without a consumer group. Every record may come twice or late; see `state` for what is applied.

    Use as an async context manager. Everything runs in the event loop that started it. `ThreadedReplica` is the same
    for programs without one.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        tenant: str,
        owners: Iterable[str | Owner] | None = None,
        namespaces: Iterable[str] | None = None,
        topic: str = "memory_updated",
        store: Store | None = None,
        source: Source | None = None,
        snapshot: Snapshot | None = None,
        on_conflict: OnConflict | None = None,
        kafka: Mapping[str, Any] | None = None,
        timing: Timing | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """Connects to nothing yet.

        Args:
            bootstrap_servers: "host:port,…".
            owners: whose memories; a plain string is a user's id. None: all of the tenant. Empty is refused.
            namespaces: prefixes at segment boundaries. None: all. Empty is refused.
            topic: with the deployment's prefix.
            store: where the state survives a restart. The default keeps it in memory.
            source: truth, to read an owner again after a gap and to report conflicts. Without one the partition is read again.
            on_conflict: told once of each rival content of a version.
            kafka: more settings of aiokafka's consumer: TLS, SASL, client_id.

        Raises:
            ValueError: an empty tenant, owners or namespaces.
        """
        scope = Scope(tenant, owners, namespaces)
        self._topic = topic
        self._settings = {**(kafka or {}), "bootstrap_servers": bootstrap_servers}
        self._store = store if store is not None else MemoryStore()
        self._source = source
        self._snapshot = snapshot
        self._timing = timing or Timing()
        self._now = now
        self._core = Core(scope, scope.fingerprint(topic), self._store, now, source, on_conflict)
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._live = asyncio.Event()
        self._contact: float | None = None
        self._followed_at: datetime | None = None
        self._trouble = ""

    async def start(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Start following; with `wait`, return when everything that was in the log has been read.

        An unreachable broker is no error: it is tried again until `stop`.

        Raises:
            WaitTimeout: not caught up within `timeout` seconds; it goes on in the background.
        """
        if self._task is None:
            self._followed_at = await self._core.restore()
            self._task = asyncio.create_task(self._run(), name=f"memriver replica of {self._topic}")
        if wait:
            await self.wait_live(timeout)

    async def stop(self) -> None:
        """Stop following and close the store's session; what is held stays readable. `start` goes on from there."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._core.close()
        await self._core.save()
        self._live.clear()

    async def __aenter__(self) -> Replica:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_live(self, timeout: float | None = None) -> None:
        """Return when the replica has caught up. Raises WaitTimeout, or what ended the replica for good."""
        if self._task is None:
            raise ReplicaStopped("the replica is not running")
        waiter = asyncio.ensure_future(self._live.wait())
        try:
            await asyncio.wait({waiter, self._task}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if self._task is not None and self._task.done() and not self._task.cancelled():
                self._task.result()
            if not self._live.is_set():
                raise WaitTimeout(
                    f"the replica has not caught up within {timeout} s; {self._trouble or 'still reading'}"
                )
        finally:
            waiter.cancel()

    def get(self, memory_id: str, *, any_status: bool = False) -> Memory | None:
        """The memory, if it is held and usable now (active, not expired); with `any_status`, whatever is held."""
        entry = self._core.state.entries.get(memory_id)
        memory = entry.memory if entry else None
        return memory if memory is not None and (any_status or memory.usable(self._now())) else None

    def memories(
        self, *, owner: str | Owner | None = None, namespace: str | None = None, any_status: bool = False
    ) -> list[Memory]:
        """Held memories, by id; usable ones only unless `any_status`. `namespace` is a prefix at segment boundaries."""
        scope, now = self._core.state.scope, self._now()
        # The scope decides what may be held; these two only choose among that.
        chosen = Scope(scope.tenant, None if owner is None else [owner], None if namespace is None else [namespace])
        found = [m for m in self._core.state.held() if chosen.covers(m) and (any_status or m.usable(now))]
        return sorted(found, key=lambda memory: memory.id)

    async def wait_for(self, memory_id: str, version: int = 1, timeout: float | None = 10.0) -> Memory | None:
        """Wait until that version, or a later one, is here. None: the memory is gone by then.

        Never call it from a callback of this replica: the tail waits for its callbacks.

        Raises:
            WaitTimeout: not within `timeout` seconds.
            ReplicaStopped: not running, or stopped meanwhile.
        """
        if self._task is None:
            raise ReplicaStopped("the replica is not running")
        return await self._core.waiters.wait(self._core.state.entries.get(memory_id), memory_id, version, timeout)

    def on_change(self, callback: OnChange, namespace: str | None = None) -> Callable[[], None]:
        """Call it, plain or async, with each `Change` below the namespace prefix (None: each). Returns what ends that.

        In order per owner, at least once. The next records wait for it.
        """
        return self._core.listeners.add(namespace, callback)

    async def resync(self, owner: str | Owner | None = None) -> None:
        """Read an owner, or everything, again now. Raises MemriverError when it cannot."""
        if self._session is None:
            raise ReplicaStopped("the replica is not connected")
        await self._session.resync(
            None if owner is None else owner if isinstance(owner, Owner) else Owner("user", owner)
        )

    @property
    def status(self) -> Status:
        """Lag and health at this moment."""
        session = self._session
        silent = float("inf") if self._contact is None else asyncio.get_running_loop().time() - self._contact
        return Status(
            running=self._task is not None and not self._task.done(),
            live=self._live.is_set(),
            memories=sum(1 for _ in self._core.state.held()),
            partitions=len(self._core.positions),
            lag=session.lag if session else 0,
            silent_for=silent,
            open_gaps=self._core.sequences.open,
            callbacks_failed=self._core.listeners.failed,
            trouble=self._trouble or self._core.store_trouble,
            counts=self._core.snapshot_counts(),
        )

    async def _run(self) -> None:
        pause = self._timing.reconnect_min
        while True:
            session = self._session = Session(
                self._core, self._topic, self._settings, self._timing, self._now, self._in_contact, self._live
            )
            try:
                await session.run(self._start_fresh(), self._snapshot)
            except TROUBLE as error:
                if not self._trouble:
                    _log.warning("the log of %s cannot be followed now (%s)", self._topic, type(error).__name__)
                self._trouble = f"the log cannot be followed: {type(error).__name__}"
            finally:
                self._session = None
            self._core.counts.reconnects += 1
            pause = self._timing.reconnect_min if session.went_live else min(self._timing.reconnect_max, pause * 2)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    def _start_fresh(self) -> bool:
        """Whether the positions are too old: tombstones older than that may have left the log unread."""
        followed = self._followed_at
        return followed is None or self._now() - followed > timedelta(seconds=self._timing.max_absence)

    def _in_contact(self) -> None:
        self._contact = asyncio.get_running_loop().time()
        self._followed_at = self._now()
        self._trouble = ""
