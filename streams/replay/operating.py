"""Replay, operating: start, status, diff, switch, rollback and drop, with the conditions under which each may be done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection

from processors.exceptions import FatalError, TransientError
from sinks.truth import Truth, carrying, make_engine, replays
from sinks.truth.beside import Beside
from sinks.truth.migrate import check as check_schema
from sinks.truth.replays import Judging, Plan, Progress
from sinks.truth.takeover import take_over
from streams.replay import merging, workers
from streams.replay.building import Builder
from streams.replay.comparing import Comparison, compare
from streams.replay.door import returning
from streams.replay.log import TurnLog
from streams.replay.merging import Merged
from streams.replay.run import Position, summary
from streams.sealing import make_identities
from streams.settings import Settings

_NOTHING = "there is no replay: `memriver replay start --from-beginning` begins one"
_LAG = timedelta(hours=1)
"""How much later than it was published a turn may have come in: it is taken over by when it came, and read by when it was
published. What lagged more is missed by the switch, which then refuses."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Status:
    """Where a replay stands. `left` are messages still to read, None while the broker is away."""

    plan: Plan
    progress: Progress
    switched: bool
    running: bool
    left: int | None
    counts: Mapping[str, Any]


class Operator:
    """The commands of `memriver replay`. Each either does what it says or raises and has changed nothing."""

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], datetime],
        open_log: Callable[[str, Truth], TurnLog] | None = None,
    ) -> None:
        self._settings = settings
        self._url = settings.database_url.get_secret_value()
        self._now = now
        self._builder = Builder(settings, now=now)
        self._open_log = open_log or self._builder.log
        self.beside = Beside(self._url)

    async def start(
        self,
        judging: Judging,
        before: Judging,
        *,
        topic: str,
        since: datetime | None = None,
        report: Callable[[Position], None] = lambda _position: None,
    ) -> Status:
        """Begin a replay, or go on with the one that is there, up to the end of the log.

        Raises:
            FatalError: another replay is there or at work, the live tables are a replay's, or the log has lost its beginning.
        """
        check_schema(self._url)
        with self.beside.alone(), self._live() as live:
            if not self.beside.exists() or not self._begun():
                await self._begin(live, Plan(topic, since, judging, before))
            with self._open() as beside:
                plan = self._plan(beside)
                if self._switched(live):
                    raise FatalError(
                        "the live tables are those of a replay: `memriver replay rollback`, or `memriver replay drop` to keep "
                        "them for good"
                    )
                if (plan.since, plan.judging, plan.topic) != (since, judging, topic):
                    raise FatalError(
                        "a replay of other turns, rules or prompt is there: `memriver replay drop` first, or give the same again"
                    )
                progress = await self._run(live, beside, plan, plan.judging, report)
                return await self._status(live, beside, plan, progress, running=False)

    async def status(self) -> Status:
        """Raises FatalError where there is none."""
        with self._live() as live, self._open() as beside:
            with beside.reading() as connection:
                progress = replays.progress(connection)
            return await self._status(live, beside, self._plan(beside), progress, running=self._at_work())

    def diff(self, *, limit: int) -> Comparison:
        """The live memories beside those of the other schema.

        Raises:
            FatalError: there is no replay, or it has never come to the end of the log.
        """
        with self._live() as live, self._open() as beside:
            self._plan(beside)
            self._caught_up(beside)
            return compare(live, beside, self._now(), limit=limit)

    async def switch(self, report: Callable[[Position], None] = lambda _position: None) -> Merged:
        """Catch up and put the replayed tables in the live ones' place.

        Raises:
            FatalError: not caught up, switched already, or workers are running.
        """
        return await self._turn(to_replayed=True, report=report)

    async def rollback(self, report: Callable[[Position], None] = lambda _position: None) -> Merged:
        """The same the other way round: what came in since the switch is judged as before it.

        Raises:
            FatalError: there was no switch, or workers are running.
        """
        return await self._turn(to_replayed=False, report=report)

    def drop(self) -> None:
        """Away with the schema beside; after a switch that is the way back, and the live tables stay.

        Raises:
            FatalError: there is none.
        """
        with self.beside.alone(), self._live() as live:
            if not self.beside.exists():
                raise FatalError(_NOTHING)
            # In this order: a mark without a schema beside means nothing, and the next start takes it away.
            self.beside.drop()
            live.run(replays.unmark)

    async def _begin(self, live: Truth, plan: Plan) -> None:
        log = self._open_log(plan.topic, live)
        extent = await log.extent()
        lost = sorted(number for number, start in extent.starts.items() if start > 0)
        if plan.since is None and lost:
            raise FatalError(
                f"{plan.topic} has lost its beginning in {len(lost)} partitions (retention): replay with --since a time that "
                "it still holds; what is older is then taken over as it is"
            )
        positions = dict(extent.starts) if plan.since is None else await log.since(plan.since - _LAG)
        await asyncio.to_thread(self.beside.create)
        await asyncio.to_thread(live.run, replays.unmark)
        with self._open() as beside:
            await asyncio.to_thread(beside.run, partial(self._first, live, plan, positions))

    def _first(self, live: Truth, plan: Plan, positions: Mapping[int, int], connection: Connection) -> None:
        if plan.since is not None:
            with live.reading() as here:
                for carried in take_over(here, connection, plan.since):
                    carrying.stage(connection, carried)
        replays.begin(connection, plan, Progress(clock=plan.since or _EPOCH), positions)

    async def _turn(self, *, to_replayed: bool, report: Callable[[Position], None]) -> Merged:
        check_schema(self._url)
        with self.beside.alone(), self._live() as live, self._open() as beside:
            plan = self._plan(beside)
            if self._switched(live) == to_replayed:
                raise FatalError(
                    "it is switched already; `memriver replay rollback` takes it back"
                    if to_replayed
                    else "there is nothing to roll back: no replay was switched to"
                )
            self._caught_up(beside)
            await workers.standing_still(self._settings)
            judging = plan.judging if to_replayed else plan.before
            await self._run(live, beside, plan, judging, report)
            missing = await asyncio.to_thread(self._missing, live, beside)
            if missing:
                raise FatalError(
                    f"{missing} turns of the live schema are not in the log: a switch would lose what was made of them; replay "
                    "with --since a time after them"
                )
            erased = await asyncio.to_thread(self._returning, live, beside)
            if erased:
                raise FatalError(
                    f"{erased} people, conversations or turns that were erased meanwhile are still in the schema beside: "
                    "`memriver replay drop`, and start again"
                )
            merged = await self._merge(live, beside, plan, judging)
            await asyncio.to_thread(self.beside.exchange, live)
            return merged

    async def _merge(self, live: Truth, beside: Truth, plan: Plan, judging: Judging) -> Merged:
        partitions = await workers.partitions_of(self._settings, "candidates")
        with beside.reading() as connection:
            positions = replays.positions(connection)
        if plan.topic == "turns":
            # The schema that steps aside has what ingest took in, which may be less than the log holds.
            taken = await workers.taken_in(self._settings, positions)
            positions = {number: min(at, taken[number]) for number, at in positions.items()}
        now = self._now()

        def work(connection: Connection) -> Merged:
            with live.reading() as here:
                cause = f"replay:{judging.rules_version}"
                merged = merging.merge(here, connection, cause=cause, partitions=partitions, now=now)
            replays.save(connection, replace(replays.progress(connection), caught_up_at=now), positions)
            return merged

        return await asyncio.to_thread(beside.run, work)

    async def _run(
        self, live: Truth, beside: Truth, plan: Plan, judging: Judging, report: Callable[[Position], None]
    ) -> Progress:
        log = self._open_log(plan.topic, live)
        with ThreadPoolExecutor(1) as executor:
            async with self._builder.replay(live, beside, log, judging, executor) as run:
                return await run.run(report)

    async def _status(self, live: Truth, beside: Truth, plan: Plan, progress: Progress, *, running: bool) -> Status:
        left: int | None
        with beside.reading() as connection:
            positions, counts = replays.positions(connection), summary(connection, progress)
        try:
            left = (await self._open_log(plan.topic, live).extent()).between(positions)
        except TransientError:
            left = None
        return Status(plan, progress, self._switched(live), running, left, counts)

    def _at_work(self) -> bool:
        try:
            with self.beside.alone():
                return False
        except FatalError:
            return True

    def _missing(self, live: Truth, beside: Truth) -> int:
        with live.reading() as here, beside.reading() as there:
            return replays.missing_turns(here, there)

    def _returning(self, live: Truth, beside: Truth) -> int:
        with live.reading() as here, beside.reading() as there:
            return returning(here, there, make_identities(self._settings))

    def _switched(self, live: Truth) -> bool:
        with live.reading() as connection:
            return replays.switched(connection)

    def _begun(self) -> bool:
        with self._open() as beside, beside.reading() as connection:
            return replays.plan(connection) is not None

    def _plan(self, beside: Truth) -> Plan:
        with beside.reading() as connection:
            plan = replays.plan(connection)
        if plan is None:
            raise FatalError("a replay was begun and died at once: `memriver replay drop`, and start again")
        return plan

    def _caught_up(self, beside: Truth) -> None:
        with beside.reading() as connection:
            progress = replays.progress(connection)
        if progress.caught_up_at is None:
            raise FatalError(
                "the replay has not come to the end of the log: `memriver replay start`, as it was begun, goes on with it"
            )

    @contextmanager
    def _live(self) -> Iterator[Truth]:
        truth = Truth(make_engine(self._url))
        try:
            yield truth
        finally:
            truth.close()

    @contextmanager
    def _open(self) -> Iterator[Truth]:
        if not self.beside.exists():
            raise FatalError(_NOTHING)
        truth = self.beside.open()
        try:
            yield truth
        finally:
            truth.close()
