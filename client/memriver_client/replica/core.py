"""Replica, core: one state and who has to hear of its changes — callbacks, waiters, the store, the review queue; no Kafka."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from memriver_client.exceptions import ApiError, ConnectionFailed, ReplicaError
from memriver_client.model import Memory, MemoryUpdated
from memriver_client.owners import Owner
from memriver_client.replica.listeners import Change, Conflict, Listeners, OnConflict, Waiters, called
from memriver_client.replica.log import Record
from memriver_client.replica.scope import Scope
from memriver_client.replica.sequences import Sequences
from memriver_client.replica.state import Outcome, ReplicaState, Step
from memriver_client.replica.status import Counts
from memriver_client.replica.store import Kept, Rival, Store

_log = logging.getLogger("memriver_client.replica")


class Source(Protocol):
    """Truth, asked directly; `HttpSource` is one. Errors are MemriverError."""

    async def memories_of(self, tenant: str, owner: Owner) -> Sequence[Memory]:
        """The owner's memories, of every status that may be read; deleted ones need not be among them."""
        ...

    async def deleted_at(self, memory_id: str) -> int | None:
        """The version at which this memory was deleted; None when it was not, or that cannot be known."""
        ...

    async def report_conflict(self, conflict: Conflict) -> None:
        """Put the conflict before whoever reviews."""
        ...


class Core:
    """Applies what is read and tells everyone. All methods run in one event loop; `apply*` never awaits halfway."""

    def __init__(
        self,
        scope: Scope,
        fingerprint: str,
        store: Store,
        now: Callable[[], datetime],
        source: Source | None,
        on_conflict: OnConflict | None,
    ) -> None:
        self.state = ReplicaState(scope)
        self.sequences = Sequences()
        # Where reading goes on; and how far everybody has been told, which is what the store may know.
        self.positions: dict[int, int] = {}
        self.told: dict[int, int] = {}
        # Partitions being read from their beginning while something is held from them: the ids met so far. And what is held
        # from elsewhere than the log, while all of it is read. Both outlive a connection; nothing is saved before they end.
        self.passes: dict[int, set[str]] = {}
        self.unplaced: set[str] = set()
        self.counts = Counts()
        self.listeners = Listeners()
        self.waiters = Waiters()
        self.homes: dict[Owner, int] = {}
        self.store_trouble = ""
        self._fingerprint = fingerprint
        self._store = store
        self._now = now
        self._source = source
        self._on_conflict = on_conflict
        self._conflicts: list[Conflict] = []
        self._rivals: set[Rival] = set()
        self._reports: set[asyncio.Task[None]] = set()
        self._saving = asyncio.Lock()

    @property
    def has_source(self) -> bool:
        """Whether truth can be asked."""
        return self._source is not None

    async def restore(self) -> datetime | None:
        """Take up what the store kept; returns when the log was last followed, None for a new start."""
        kept = await asyncio.to_thread(self._store.load, self._fingerprint)
        if kept is None:
            return None
        self.state.entries = {memory_id: entry for memory_id, entry in kept.entries.items() if entry is not None}
        self.state.reported = set(kept.reported)
        self.positions = dict(kept.positions)
        self.told = dict(kept.positions)
        self.sequences.restore(dict(kept.sequences))
        return kept.saved_at

    def apply_record(self, record: Record, *, live: bool, monotonic: float) -> Change | None:
        """One record of the log; the position is the caller's."""
        if record.value is None:
            step = self.state.bury(record.key, record.written_at, record.place, record.ends)
            if step.outcome is Outcome.DOUBTFUL:
                entry = self.state.entries[step.memory_id]
                if entry.owner is not None:
                    self.sequences.suspect(entry.owner, monotonic)
            return self._stepped(step, None, live)
        try:
            event = MemoryUpdated.from_bytes(record.value)
        except ValueError as error:
            self.counts.undecodable += 1
            _log.error("record %d:%d is no event (%s)", *record.place, type(error).__name__)
            return None
        memory = event.memory
        step = self.state.apply(memory, event.occurred_at, record.place)
        if self.state.scope.covers_owner(memory):
            owner = Owner(memory.owner_kind, memory.owner)
            self.homes[owner] = record.place.partition
            if live:
                self.sequences.observe(owner, event.owner_seq, monotonic)
            else:
                self.sequences.catch_up(owner, event.owner_seq)
        return self._stepped(step, event, live, memory)

    def apply_memory(self, memory: Memory, read_at: datetime, *, live: bool) -> Change | None:
        """A memory that was read elsewhere than in the log."""
        return self._stepped(self.state.apply(memory, read_at), None, live, memory)

    def removed(self, steps: Sequence[Step], *, live: bool) -> list[Change]:
        """Changes of a sweep or an owner read again."""
        return [change for step in steps if (change := self._stepped(step, None, live)) is not None]

    async def tell(self, changes: Sequence[Change]) -> None:
        """Callbacks and review first, then the store: after a crash in between they hear it again rather than never."""
        conflicts, self._conflicts = self._conflicts, []
        for conflict in conflicts:
            if self._on_conflict is not None:
                self.listeners.failed += not await called(self._on_conflict, conflict)
            self._rivals.add((conflict.memory_id, conflict.version, conflict.rival.content_digest()))
            if self._source is None:
                continue
            # Beside the tail, which must not wait for an API that is down. `on_conflict` is the one that is never lost.
            task = asyncio.create_task(self._report(self._source, conflict))
            self._reports.add(task)
            task.add_done_callback(self._reports.discard)
        await self.listeners.tell(changes)

    async def save(self) -> None:
        """Hand the changes to the store; what it cannot take now is kept for the next time.

        The positions are of records that were applied and told of. They may lie before newer entries, never after.
        """
        if self.passes or self.unplaced:
            # Else the next start would take up half a pass, and never remove what only the whole one can miss.
            return
        async with self._saving:
            state, sequences = self.state, self.sequences
            ids, state.changed = state.changed, set()
            owners, sequences.changed = sequences.changed, set()
            rivals, self._rivals = self._rivals, set()
            changes = Kept(
                saved_at=self._now(),
                entries={memory_id: state.entries.get(memory_id) for memory_id in ids},
                positions=dict(self.told),
                sequences={owner: sequences.last(owner) for owner in owners},
                reported=frozenset(rivals),
            )
            try:
                await asyncio.to_thread(self._store.save, self._fingerprint, changes)
            except (OSError, sqlite3.Error) as error:
                state.changed |= ids
                sequences.changed |= owners
                self._rivals |= rivals
                self.store_trouble = f"the store failed: {type(error).__name__}"
                _log.error("the store failed (%s); the changes are kept for the next save", type(error).__name__)
            else:
                self.store_trouble = ""

    async def reread(self, owner: Owner) -> bool:
        """Read one owner from truth. False: the fate of something held here stays open, and the log has to tell.

        Raises MemriverError; nothing has been removed then.
        """
        if self._source is None:
            raise ReplicaError("this replica has no source to read an owner from")
        held = {
            memory_id
            for memory_id, entry in self.state.entries.items()
            if entry.memory is not None and entry.owner == owner
        }
        read_at = self._now()
        memories = await self._source.memories_of(self.state.scope.tenant, owner)
        # Not being listed is no proof: a memory may also wait for a review, or be too sensitive for this key.
        unlisted = held - {memory.id for memory in memories}
        fates = {memory_id: await self._source.deleted_at(memory_id) for memory_id in unlisted}
        changes = [self.apply_memory(memory, read_at, live=True) for memory in memories]
        deleted = [(memory_id, version) for memory_id, version in fates.items() if version is not None]
        steps = [self.state.deleted(memory_id, version, read_at) for memory_id, version in deleted]
        self.counts.resyncs += 1
        await self.tell([change for change in changes if change is not None] + self.removed(steps, live=True))
        return len(deleted) == len(unlisted)

    async def close(self) -> None:
        """End what is under way."""
        self.waiters.give_up()
        for task in list(self._reports):
            task.cancel()
        await asyncio.gather(*self._reports, return_exceptions=True)

    def forget_positions(self) -> None:
        """Everything is read again, and what the log no longer has is removed afterwards."""
        self.positions = {}
        self.passes = {}
        self.unplaced = {
            memory_id
            for memory_id, entry in self.state.entries.items()
            if entry.memory is not None and entry.place is None
        }

    def prune(self, kept_for: timedelta) -> None:
        """Forget what erased memories left behind that long ago."""
        self.state.prune(self._now() - kept_for)

    def owners_by_partition(self, owners: Sequence[Owner]) -> dict[int, list[Owner]]:
        """Where each owner's last event stood; owners without one are in none."""
        found: dict[int, list[Owner]] = defaultdict(list)
        for owner in owners:
            if owner in self.homes:
                found[self.homes[owner]].append(owner)
        return found

    def _stepped(
        self, step: Step, event: MemoryUpdated | None, live: bool, rival: Memory | None = None
    ) -> Change | None:
        name = step.outcome.value
        setattr(self.counts, name, getattr(self.counts, name) + 1)
        if step.outcome is Outcome.CONFLICT and rival is not None and self.state.report_once(rival):
            _log.warning("memory %s has two contents at version %d", step.memory_id, step.version)
            self._conflicts.append(Conflict(step.memory_id, step.version, step.before, rival))
        if step.outcome in (Outcome.APPLIED, Outcome.REMOVED, Outcome.OUTSIDE) and step.memory_id in self.state.entries:
            self.waiters.arrived(step.memory_id, self.state.entries[step.memory_id])
        if step.outcome in (Outcome.APPLIED, Outcome.REMOVED) and (step.before is not None or step.after is not None):
            return Change(step.memory_id, step.version, step.before, step.after, event, live)
        return None

    async def _report(self, source: Source, conflict: Conflict) -> None:
        pause = 1.0
        while True:
            try:
                return await source.report_conflict(conflict)
            except ApiError as error:
                if error.status < 500 and error.status != 429:
                    _log.error("a conflict was not taken for review: %d", error.status)
                    return None
                _log.warning("a conflict could not be reported (%d); again in %.0f s", error.status, pause)
            except ConnectionFailed as error:
                _log.warning("a conflict could not be reported (%s); again in %.0f s", type(error).__name__, pause)
            await asyncio.sleep(pause)
            pause = min(60.0, pause * 2)

    def snapshot_counts(self) -> Counts:
        """A copy that does not change any more."""
        return dataclasses.replace(self.counts)
