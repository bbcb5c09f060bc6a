"""Replay, a run: the log into the schema beside, from where the last run ended to the end that the log has now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from processors.exceptions import TransientError
from processors.spans import own_words
from processors.times import resolve as resolve_times
from schemas import ExtractionBatch
from sinks.truth import Truth, batches, carrying, replays, turns
from sinks.truth.replays import Progress
from streams.extraction import ExtractionResult, extract_batch
from streams.replay.log import LoggedTurn, TurnLog
from streams.replay.pipeline import Done, Pipeline, Read, judged, tick
from streams.stages.extract import ModelChannel
from streams.stages.ingest import IngestStage

R = TypeVar("R")

GROUP = 500
"""Messages in one transaction; a death repeats at most so many."""
_ASKED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Position:
    """For a progress bar: messages done in this run and still to do, and the event clock."""

    done: int
    left: int
    clock: datetime


class Replay:
    """One run. It goes on where an earlier one ended, whether that came to its end or was killed."""

    def __init__(
        self,
        live: Truth,
        beside: Truth,
        log: TurnLog,
        pipeline: Pipeline,
        ingest: IngestStage,
        channel: ModelChannel | None,
        *,
        prompt: str,
        now: Callable[[], datetime],
    ) -> None:
        self._live = live
        self._beside = beside
        self._log = log
        self._pipeline = pipeline
        self._ingest = ingest
        self._channel = channel
        self._prompt = prompt
        self._now = now

    async def run(self, report: Callable[[Position], None] = lambda _position: None) -> Progress:
        """To the end of the log.

        Raises:
            TransientError: the broker or a database is away; the next run goes on from here.
            FatalError: the log no longer has what is to be read.
        """
        await asyncio.to_thread(self._carry)
        extent = await self._log.extent()
        start, progress = await asyncio.to_thread(self._read, lambda c: (replays.positions(c), replays.progress(c)))
        total, done = extent.between(start), 0
        report(Position(0, total, progress.clock))
        positions = dict(start)
        async for group in _groups(self._log.read(start, extent.ends)):
            for logged in group:
                positions[logged.partition] = logged.offset + 1
            read = await asyncio.to_thread(judged, self._ingest, group, self._log.topic)
            progress = await asyncio.to_thread(self._commit, read, positions)
            if self._channel is not None:
                await self._settle(progress.clock)
            done += len(group)
            report(Position(done, total - done, progress.clock))
        # What a marker takes up at the end of a partition is read as well.
        positions |= {number: end for number, end in extent.ends.items() if end > positions.get(number, 0)}
        progress = await asyncio.to_thread(self._advance, positions)
        await self._settle(progress.clock)
        return await asyncio.to_thread(self._finish)

    def _carry(self) -> None:
        """What was ordered in the live schema, as far as it is not done yet."""
        with self._live.reading() as live:
            for orders in carrying.orders(live):
                self._beside.run(partial(carrying.stage, found=orders))
            for rows in carrying.other_decisions(live):
                self._beside.run(partial(carrying.keep_decisions, rows=rows))

    def _commit(self, read: list[Read], positions: Mapping[int, int]) -> Progress:
        def work(connection: Connection) -> Progress:
            before = replays.progress(connection)
            clock, done = self._pipeline.group(connection, read, before.clock)
            return _save(connection, before, clock, len(read), done, positions)

        return self._beside.run(work)

    def _advance(self, positions: Mapping[int, int]) -> Progress:
        """The log is at its end, the clock is not: batches close and orders take effect up to now."""
        until = tick(self._now())

        def work(connection: Connection) -> Progress:
            before = replays.progress(connection)
            done, clock = Done(), max(before.clock, until)
            self._pipeline.advance(connection, clock, done)
            self._pipeline.rest(connection)
            # The clock stays with the log: a turn that comes later in this second has its own moment.
            return _save(connection, before, before.clock, 0, done, positions)

        return self._beside.run(work)

    def _finish(self) -> Progress:
        def work(connection: Connection) -> Progress:
            done = replace(replays.progress(connection), caught_up_at=self._now())
            replays.save(connection, done, {})
            return done

        return self._beside.run(work)

    async def _settle(self, clock: datetime) -> None:
        """Batches without an answer: taken from the live schema if it has one by now, left to the worker that is asking,
        asked about, or left waiting while the model channel is off."""
        statuses = ("closed",) if self._channel is None else ("closed", "waiting")
        after = ""
        while True:
            query = partial(replays.unanswered, statuses=statuses, after=after, limit=_ASKED_AT_ONCE)
            found = await asyncio.to_thread(self._read, query)
            if not found:
                return
            after = found[-1].batch_id
            left = await asyncio.to_thread(self._look, found, clock)
            if self._channel is None:
                await asyncio.to_thread(self._wait, left)
            else:
                await self._ask(self._channel, left, clock)

    def _look(self, found: list[ExtractionBatch], clock: datetime) -> list[ExtractionBatch]:
        def work(connection: Connection) -> list[ExtractionBatch]:
            left = self._pipeline.look(connection, found, clock)
            replays.save(connection, replays.progress(connection).counted("recorded", len(found) - len(left)), {})
            gone = [batch.batch_id for batch in left if not batch.turns]
            batches.close_empty(connection, gone)
            return [batch for batch in left if batch.turns]

        left = self._beside.run(work)
        with self._live.reading() as live:
            known = batches.states(live, [batch.batch_id for batch in left])
        return [batch for batch in left if known.get(batch.batch_id, ("", 0))[0] != "closed"]

    def _wait(self, left: list[ExtractionBatch]) -> None:
        def work(connection: Connection) -> None:
            batches.finish_all(connection, [(batch.batch_id, "waiting", 0) for batch in left])
            turns.note(connection, [turn.turn_key for batch in left for turn in batch.turns], "model_off")

        self._beside.run(work)

    async def _ask(self, channel: ModelChannel, left: list[ExtractionBatch], clock: datetime) -> None:
        asking = [
            extract_batch(batch, channel.model, own_words=own_words, resolve_times=resolve_times, prompt=self._prompt)
            for batch in left
        ]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, TransientError):
                raise answer
        answered = [(b, a) for b, a in zip(left, answers, strict=True) if isinstance(a, ExtractionResult)]

        def work(connection: Connection) -> None:
            self._pipeline.answer(connection, answered, clock)
            replays.save(connection, replays.progress(connection).counted("asked", len(answered)), {})

        await asyncio.to_thread(self._beside.run, work)

    def _read(self, work: Callable[[Connection], R]) -> R:
        with self._beside.reading() as connection:
            return work(connection)


def _save(
    connection: Connection, before: Progress, clock: datetime, count: int, done: Done, positions: Mapping[int, int]
) -> Progress:
    after = replace(before, clock=clock, turns=before.turns + count, commands=before.commands + done.commands)
    if done.recorded:
        after = after.counted("recorded", done.recorded)
    replays.save(connection, after, positions)
    return after


async def _groups(log: AsyncIterator[LoggedTurn]) -> AsyncIterator[list[LoggedTurn]]:
    group: list[LoggedTurn] = []
    async for logged in log:
        group.append(logged)
        if len(group) == GROUP:
            yield group
            group = []
    if group:
        yield group


def summary(connection: Connection, at: Progress) -> dict[str, Any]:
    """Counts for people and programs. `in_flight`: the live workers are asking the model about them."""
    states = batches.count_by_status(connection)
    names = ("recorded", "asked")
    counts = {name: at.batches.get(name, 0) for name in names}
    counts |= {"waiting": states.get("waiting", 0), "in_flight": states.get("closed", 0)}
    return {"messages": at.turns, "orders": at.commands, "batches": counts}
