"""Replica, session: one connection to the log, from catching up to its end; restarted by the replica when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from memriver_client.exceptions import MemriverError, ReplicaError
from memriver_client.model import Memory
from memriver_client.owners import Owner
from memriver_client.replica.core import Core
from memriver_client.replica.listeners import Change
from memriver_client.replica.log import KafkaError, Log, OffsetOutOfRangeError, Record

_log = logging.getLogger("memriver_client.replica")


class Stalled(ReplicaError):
    """There are records, and none arrive: the connection looks alive and is not."""


TROUBLE = (KafkaError, MemriverError, OSError)
"""What a new attempt may mend; a snapshot's errors are among them."""


@dataclass(frozen=True)
class Timing:
    """Seconds throughout.

    `watch`: between looks at the log's ends, its partitions and open gaps. `gap_grace`: how long a hole may stay before
    the owner is read again. `reread_rest`: between two re-reads of the same partition. `stall_after`: records are there and
    none were read for that long. `max_absence`: after that long without the log everything is read again; must be well
    below the topic's delete.retention.ms (7 days). `save_rest`: between two saves; what was not saved is read again after a
    crash. `tombstones_kept`: how long erased memories are remembered.
    """

    watch: float = 5.0
    gap_grace: float = 2.0
    reread_rest: float = 30.0
    stall_after: float = 60.0
    reconnect_min: float = 0.2
    reconnect_max: float = 10.0
    max_absence: float = 5 * 86_400
    save_rest: float = 0.2
    tombstones_kept: float = 30 * 86_400


class Session:
    """Catches up, then follows, until an error or cancellation."""

    def __init__(
        self,
        core: Core,
        topic: str,
        settings: Mapping[str, Any],
        timing: Timing,
        now: Callable[[], datetime],
        in_contact: Callable[[], None],
        live: asyncio.Event,
    ) -> None:
        self._core = core
        self._log = Log(topic, settings)
        self._timing = timing
        self._now = now
        self._in_contact = in_contact
        self._live = live
        # Partitions still catching up: the offset to reach. Below it compaction leaves holes in owner_seq.
        self._goals: dict[int, int] = {}
        self._arriving: dict[int, tuple[int, int]] = {}
        self._reread_at: dict[int, float] = {}
        self._ends: dict[int, int] = {}
        self._progress = 0.0
        self._to_save = asyncio.Event()
        self.went_live = False

    @property
    def lag(self) -> int:
        """Records known to be in the log and not read yet."""
        positions = self._core.positions
        return sum(max(0, end - positions.get(partition, 0)) for partition, end in self._ends.items())

    async def run(self, fresh: bool, snapshot: Callable[[], AsyncIterator[Memory]] | None) -> None:
        """Follow the log. `fresh`: the kept positions are none or too old. Raises one of TROUBLE."""
        async with self._log:
            partitions = await self._log.partitions()
            bounds = await self._log.bounds(partitions)
            self._in_contact()
            if snapshot is not None and not self._core.positions:
                # The ends were asked for before truth is: what is written in between is met again in the tail.
                await self._take(snapshot)
                self._core.positions = {partition: end for partition, (_first, end) in bounds.items()}
            elif fresh:
                self._core.forget_positions()
            self._begin(bounds)
            self._progress = self._time()
            beside = [asyncio.create_task(self._watch()), asyncio.create_task(self._keep())]
            try:
                await self._follow(beside)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)

    async def resync(self, owner: Owner | None) -> None:
        """Read one owner again, from truth where there is one; None: every partition."""
        if owner is None or not await self._reread_owner(owner):
            partitions = list(self._core.positions)
            if owner is not None and owner in self._core.homes:
                partitions = [self._core.homes[owner]]
            for partition in partitions:
                await self._reread_partition(partition)

    async def _take(self, snapshot: Callable[[], AsyncIterator[Memory]]) -> None:
        read_at = self._now()
        async for memory in snapshot():
            change = self._core.apply_memory(memory, read_at, live=False)
            await self._core.tell([change] if change else [])

    def _begin(self, bounds: Mapping[int, tuple[int, int]]) -> None:
        """Takes up these partitions besides those already followed, each where it was left or at its beginning."""
        core = self._core
        held_from = {e.place.partition for e in core.state.entries.values() if e.memory is not None and e.place}
        for partition, (first, end) in bounds.items():
            at = core.positions.get(partition)
            if at is None or not first <= at <= end:
                if at is not None:
                    # Truncated, made anew, or records dropped unread: whatever was between is unknown.
                    core.counts.log_resets += 1
                    _log.warning("partition %d no longer reaches back to the last position: read again", partition)
                core.positions[partition] = first
                if partition in held_from:
                    core.passes[partition] = set()
            self._goals[partition] = end
            self._ends[partition] = end
        core.told = dict(core.positions)
        self._log.follow({partition: core.positions[partition] for partition in self._ends})

    async def _follow(self, beside: Sequence[asyncio.Task[None]]) -> None:
        while True:
            for task in beside:
                if task.done():
                    task.result()
            if self._arriving:
                arriving, self._arriving = self._arriving, {}
                self._begin(arriving)
            try:
                records = await self._log.poll(0.25)
            except OffsetOutOfRangeError:
                self._core.counts.log_resets += 1
                _log.warning("the position fell out of the log: everything is read again")
                self._core.forget_positions()
                raise
            await self._core.tell(self._apply(records))
            await self._core.tell(await self._goals_reached())
            self._core.told = dict(self._core.positions)
            if records:
                self._to_save.set()
            if not self._goals:
                self.went_live = True
                self._live.set()

    def _apply(self, records: list[Record]) -> list[Change]:
        core, changes = self._core, []
        for record in records:
            partition, offset = record.place
            live = offset >= self._goals.get(partition, 0)
            change = core.apply_record(record, live=live, monotonic=self._time())
            if change is not None:
                changes.append(change)
            # Afterwards, so that what is new here counts as seen too.
            if partition in core.passes and record.key in core.state.entries:
                core.passes[partition].add(record.key)
            core.positions[partition] = offset + 1
        if records:
            self._progress = self._time()
            self._in_contact()
        return changes

    async def _goals_reached(self) -> list[Change]:
        core, changes = self._core, []
        for partition, goal in list(self._goals.items()):
            at = await self._log.position(partition)
            if at >= goal:
                core.positions[partition] = max(at, core.positions[partition])
                del self._goals[partition]
                seen = core.passes.pop(partition, None)
                if seen is not None:
                    changes += core.removed(core.state.sweep(partition, goal, seen, self._now()), live=False)
        if not self._goals and core.unplaced:
            unplaced, core.unplaced = core.unplaced, set()
            changes += core.removed(core.state.sweep_unplaced(unplaced, self._now()), live=False)
        return changes

    async def _keep(self) -> None:
        """Saves beside the tail, which does not wait for the disk; what came meanwhile goes with the next save."""
        while True:
            # Not wait_for(): before Python 3.12 it may lose a cancellation that comes together with the event.
            saving = asyncio.ensure_future(self._to_save.wait())
            try:
                # An idle log is saved too now and then: when it was last followed decides about a full read at the start.
                await asyncio.wait({saving}, timeout=3600)
            finally:
                saving.cancel()
            self._to_save.clear()
            await self._core.save()
            await asyncio.sleep(self._timing.save_rest)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._timing.watch)
            partitions = await self._log.partitions()
            known = [partition for partition in partitions if partition in self._ends]
            self._ends.update(await self._log.ends(known))
            self._in_contact()
            new = [partition for partition in partitions if partition not in self._ends]
            if new:
                self._arriving = await self._log.bounds(new)
            if self.lag and self._time() - self._progress > self._timing.stall_after:
                raise Stalled("there are records, and none arrive")
            if not self._goals:
                await self._close_gaps()
            self._core.prune(timedelta(seconds=self._timing.tombstones_kept))

    async def _close_gaps(self) -> None:
        missing = self._core.sequences.missing(self._time() - self._timing.gap_grace)
        left = []
        for owner, up_to in missing.items():
            if await self._reread_owner(owner):
                self._core.sequences.settle(owner, up_to)
            else:
                left.append(owner)
        for partition, owners in self._core.owners_by_partition(left).items():
            if self._time() - self._reread_at.get(partition, float("-inf")) >= self._timing.reread_rest:
                await self._reread_partition(partition)
                for owner in owners:
                    self._core.sequences.settle(owner, missing[owner])

    async def _reread_owner(self, owner: Owner) -> bool:
        if not self._core.has_source:
            return False
        try:
            return await self._core.reread(owner)
        except MemriverError as error:
            _log.warning("an owner could not be read again (%s): its partition is", type(error).__name__)
            return False

    async def _reread_partition(self, partition: int) -> None:
        _log.info("partition %d is read again", partition)
        self._reread_at[partition] = self._time()
        first, end = (await self._log.bounds([partition]))[partition]
        seen: set[str] = set()
        async for records in self._log.read_partition(partition, first, end):
            changes = [self._core.apply_record(record, live=False, monotonic=self._time()) for record in records]
            seen |= {record.key for record in records if record.key in self._core.state.entries}
            await self._core.tell([change for change in changes if change is not None])
        steps = self._core.state.sweep(partition, end, seen, self._now())
        self._core.counts.resyncs += 1
        await self._core.tell(self._core.removed(steps, live=False))

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()
