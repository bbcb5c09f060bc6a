"""Delivery: the one place that knows how Faust acknowledges, and the order of a commit.

For each group of messages that have arrived:

1. decode and judge each message; one that cannot be read becomes a dead letter;
2. one database transaction: inbox, effects, dead letters, outbox; it also deletes the rows that were published since the
   stage's last one;
3. vectors, then publication of the group's outbox rows, and of a stage's copies (`Copying`);
4. acknowledge, in offset order.

A death before 2 leaves nothing; between 2 and 4 the messages come again, the inbox makes them a no-op, and the rows left
in the outbox are sent when the partition is next assigned, before its first new message; what a slow database commits even
later, its sender long dead, is found by looking now and then (`sweep`). After 4 the last group's rows may
still be there and are sent once more: nothing newer of their stage has been published, since the transaction of whatever
came next would have deleted them, so a compacted topic ends with the same message. A stage that falls idle tidies up.

Faust acknowledges when an agent raises, and commits past an unacknowledged message once a later one is acknowledged. So
nothing is acknowledged but a finished prefix, and an exception that nobody foresaw ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, NoReturn, Protocol, TypeVar, runtime_checkable

from sqlalchemy import Connection

from processors.exceptions import FatalError, MemriverError, PoisonError, TransientError
from sinks.truth import Truth, deadletters, outbox
from sinks.truth.deadletters import Redriven
from sinks.truth.outbox import Outgoing
from streams.deadletter import dead_letter, letters_out, redriven, redriven_of
from streams.grouping import Ready, groups, is_little
from streams.metrics import Metrics
from streams.progress import Progress
from streams.reasons import reason_of
from streams.standing import Standing
from streams.window import Window

log = logging.getLogger("memriver.delivery")
T = TypeVar("T")
R = TypeVar("R")

_TIDY_SECONDS = 0.2
"""An idle stage deletes its published rows after this; a busy one does it with its next transaction, at no cost."""
_BACKOFF_SECONDS = (0.1, 0.3, 1.0, 3.0, 5.0)
_LOOK_SECONDS = 0.02
LEFT_BEHIND = timedelta(seconds=15)
"""What is committed and not published after this, nobody is working on."""


@dataclass(frozen=True, slots=True)
class Message:
    """A raw message and where it stands in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: float
    headers: Sequence[tuple[str, bytes]] = ()

    @property
    def redriven(self) -> Redriven | None:
        """Whose dead letter this is, and which attempt, if it was sent again."""
        return redriven(self.headers)

    @property
    def place(self) -> str:
        """topic:partition:offset."""
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Delivered(Generic[T]):
    """A decoded message."""

    message: Message
    item: T


@dataclass(frozen=True, slots=True)
class _Judged(Generic[T]):
    """A group after step 1."""

    good: list[Delivered[T]]
    bad: list[tuple[Message, Exception]]

    @property
    def partitions(self) -> set[int]:
        """Where the outbox rows of this group are filed; a stage's own dead letters are under 0."""
        return {0, *(item.message.partition for item in self.good), *(message.partition for message, _ in self.bad)}


def _sorted(messages: Sequence[Message], outcomes: Sequence[T | Exception]) -> _Judged[T]:
    judged: _Judged[T] = _Judged([], [])
    for message, outcome in zip(messages, outcomes, strict=True):
        if isinstance(outcome, Exception):
            judged.bad.append((message, outcome))
        else:
            judged.good.append(Delivered(message, outcome))
    return judged


class Stage(Protocol[T]):
    """A stage's own part: what a message means, and what it changes."""

    name: str
    topic: str

    def prepare(self, message: Message) -> T:
        """Decode and judge one message; pure. Raises ValueError or PoisonError for a bad one."""

    def commit(self, connection: Connection, group: Sequence[Delivered[T]], now: datetime) -> list[Outgoing]:
        """The effects of a group inside the transaction; returns what is to be published."""


@runtime_checkable
class Copying(Protocol):
    """A stage that publishes a copy of what it was given, without a database row for each.

    After the commit and before the acknowledgement, for each group as often as it is delivered: at least once, so whoever
    reads the copies knows one that comes again.
    """

    def copies(self) -> list[Outgoing]:
        """Of the group that was committed last, whether or not it changed anything; in a thread, and once per group."""


class Publisher(Protocol):
    """Vectors, then the broker."""

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        """Raises TransientError while a server is away."""


class Delivery:
    """Runs stages. `now` gives the wall clock; `on_fatal` ends the process (a test passes something gentler)."""

    def __init__(
        self,
        truth: Truth,
        publisher: Publisher,
        executor: Executor,
        metrics: Metrics,
        *,
        now: Callable[[], datetime],
        group_size: int = 500,
        linger_seconds: float = 0.005,
        on_fatal: Callable[[str], None] | None = None,
    ) -> None:
        self._truth = truth
        self._publisher = publisher
        self._executor = executor
        self._metrics = metrics
        self._now = now
        self._group_size = group_size
        self._linger = linger_seconds
        self._on_fatal = on_fatal or _end_process
        self._draining: dict[str, set[int]] = {}
        self._held: dict[str, frozenset[int]] = {}
        self._published: defaultdict[str, list[int]] = defaultdict(list)
        self._tidying: dict[str, asyncio.Task[None]] = {}
        self._drains: set[asyncio.Future[None]] = set()
        # Stages with two topics have two agents. What one commits first must leave first: the compacted topic would
        # keep the older version of a memory for ever.
        self._order: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.standing = Standing(metrics)
        self.progress: dict[str, Progress] = {}
        self._waits: dict[object, tuple[str, TransientError]] = {}
        self._open = asyncio.Event()
        self._open.set()

    @property
    def waits(self) -> list[tuple[str, TransientError]]:
        """Stages that wait for a server at this moment, and for what."""
        return list(self._waits.values())

    def watched(self, name: str) -> Progress:
        """What the watchdog and health see of a stage, or of a timer whose work is done a transaction at a time."""
        return self.progress.setdefault(name, Progress())

    def close(self) -> None:
        """Take no new group; what is in hand goes on. The rest was never acknowledged, and goes back by itself."""
        self._open.clear()

    async def idle(self) -> None:
        """Until nothing is in hand any more."""
        while True:
            if not any(progress.in_hand for progress in self.progress.values()):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def assigned(self, stage: str, partitions: set[int]) -> None:
        """These partitions are ours now: drain what an earlier owner left before touching a new message."""
        self._draining.setdefault(stage, set()).update(partitions)
        self._held[stage] = frozenset(partitions)
        # No message may ever come: what the earlier owner left must leave all the same.
        left = asyncio.ensure_future(self._drain_in_turn(stage))
        self._drains.add(left)
        left.add_done_callback(self._drains.discard)
        self.standing.assigned(stage, partitions)

    async def run(
        self,
        stream: Any,
        stage: Stage[T],
        judge: Callable[[Sequence[bytes]], Awaitable[list[T | Exception]]] | None = None,
    ) -> None:
        """Group what has arrived, commit it, publish it, acknowledge it; for ever.

        What arrives while a group is being written is judged meanwhile, and written as one group after it: the longer writing
        takes, the larger the groups. Writing, and so acknowledging, stays in order. `judge` does the stage's `prepare` for
        many messages elsewhere.
        """
        progress = self.watched(stage.name)
        ready: Ready[_Judged[T]] = Ready(self._group_size)
        writing: asyncio.Task[None] | None = None
        try:
            async for events in groups(stream.noack().events(), self._group_size, self._linger):
                await self._open.wait()
                progress.take()
                messages = [_message(event) for event in events]
                await self.standing.check(stage.name, messages)
                if judge is not None:
                    judged = _sorted(messages, await judge([message.value or b"" for message in messages]))
                else:
                    judged = await self.judged(messages, stage)
                await ready.add(events, judged)
                if writing is None or writing.done():
                    if writing is not None:
                        writing.result()
                    writing = asyncio.create_task(self._write_ready(ready, stage, progress))
            if writing is not None:
                await writing
        except asyncio.CancelledError:
            if writing is not None:
                writing.cancel()
            progress.drop()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, going on would acknowledge past a hole
            self.fatal(stage.name, error)

    async def _write_ready(self, ready: Ready[_Judged[T]], stage: Stage[T], progress: Progress) -> None:
        try:
            while taken := ready.take():
                events = [event for piece, _judged in taken for event in piece]
                judged: _Judged[T] = _Judged(
                    [item for _piece, each in taken for item in each.good],
                    [item for _piece, each in taken for item in each.bad],
                )
                await self._write(judged, stage)
                _acknowledge(events)
                progress.finish(len(events), len(taken))
        except Exception as error:  # noqa: BLE001 - as above
            self.fatal(stage.name, error)
        finally:
            ready.give_up()

    async def run_many(
        self,
        stream: Any,
        name: str,
        handle: Callable[[Sequence[Message]], Awaitable[None]],
        *,
        size: int,
        flying: int,
    ) -> None:
        """For slow work: up to `flying` groups of `size` messages at once, acknowledged as a finished prefix."""
        progress = self.watched(name)
        window = Window(flying, progress, _acknowledge)
        try:
            async for events in groups(stream.noack().events(), size, self._linger):
                await self._open.wait()
                await self._drain_in_turn(name)
                progress.take()
                messages = [_message(event) for event in events]
                await self.standing.check(name, messages)
                await window.add(events, asyncio.ensure_future(self._patiently(name, handle, messages)))
            await window.finish()
        except asyncio.CancelledError:
            window.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self.fatal(name, error)

    async def judged(self, messages: Sequence[Message], stage: Stage[T]) -> _Judged[T]:
        """Step 1; in a thread where it is more than a change of threads."""
        if is_little([message.value for message in messages]):
            return self._judge(messages, stage)
        return await self.in_thread(self._judge, messages, stage)

    async def _write(self, judged: _Judged[T], stage: Stage[T]) -> None:
        async with self._order[stage.name]:
            await self._drain(stage.name)
            copying = stage if isinstance(stage, Copying) and judged.good else None
            await self._carry_out(stage.name, partial(self._effects, judged, stage), judged, copying)

    async def _carry_out(
        self,
        stage: str,
        work: Callable[[Connection, datetime], list[Outgoing]],
        group: _Judged[Any] | None = None,
        copying: Copying | None = None,
    ) -> None:
        """Steps 2 and 3, of a message group or of work that is none."""
        runs = 0

        def run(published: Sequence[int]) -> tuple[list[Outgoing], list[Outgoing]]:
            now = self._now()

            def kept(connection: Connection) -> list[Outgoing]:
                nonlocal runs
                runs += 1
                outbox.done(connection, published)
                return outbox.put(connection, stage, work(connection, now), now)

            return self._truth.run(kept), copying.copies() if copying is not None else []

        async def once() -> None:
            started = time.perf_counter()
            published = tuple(self._published[stage])
            rows, copies = await self.in_thread(run, published)
            self._forget(stage, published)
            if group is not None:
                self._committed(stage, group, time.perf_counter() - started)
            if runs > 1:
                # The answer to a COMMIT may be what was lost: then the rows are there, and this run found nothing to do.
                await self.drain(stage, group.partitions if group is not None else None)
                rows = []
            await self.flush(stage, rows, copies)

        await self._again(stage, once)

    def _committed(self, stage: str, group: _Judged[Any], seconds: float) -> None:
        self._metrics.stage_seconds.labels(stage, "commit").observe(seconds)
        for _, error in group.bad:
            self._metrics.dead_letters.labels(stage, reason_of(error)[0]).inc()

    async def send(self, stage: str, messages: Sequence[Outgoing]) -> None:
        """Publish what no transaction belongs to, until it is out; whoever reads it knows a copy that comes again."""
        await self._again(stage, lambda: self._publisher.flush(messages))

    def now(self) -> datetime:
        """The clock of this process."""
        return self._now()

    async def transact(self, stage: str, work: Callable[[Connection, datetime], list[Outgoing]]) -> None:
        """Steps 2 and 3 for work that is not a message group: a timer, or one finished model call."""
        await self._carry_out(stage, work)
        self._moves(stage)

    async def flush(self, stage: str, rows: Sequence[Outgoing], copies: Sequence[Outgoing] = ()) -> None:
        """Step 3, repeated until it succeeds: what is committed must go out, in order."""
        if not rows and not copies:
            return
        started = time.perf_counter()
        await self._again(stage, lambda: self._publisher.flush([*rows, *copies]))
        self._published[stage] += [row.id for row in rows]
        if rows and stage not in self._tidying:
            self._tidying[stage] = asyncio.create_task(self._tidy(stage))
        self._metrics.stage_seconds.labels(stage, "publish").observe(time.perf_counter() - started)

    async def settle(self) -> None:
        """Delete the published rows of every stage now, at the end of work; tried once: what stays is sent again."""
        for stage in list(self._published):
            with contextlib.suppress(TransientError):
                await self._delete_published(stage)

    async def _tidy(self, stage: str) -> None:
        try:
            while self._published[stage]:
                last = self._published[stage][-1]
                await asyncio.sleep(_TIDY_SECONDS)
                if self._published[stage][-1:] == [last]:  # else the stage is at work and does it by the way
                    await self._again(stage, partial(self._delete_published, stage))
        except Exception as error:  # noqa: BLE001 - as above
            self.fatal(stage, error)
        finally:
            del self._tidying[stage]

    async def _delete_published(self, stage: str) -> None:
        published = tuple(self._published[stage])
        if published:
            await self.in_thread(self._truth.run, partial(outbox.done, ids=published))
            self._forget(stage, published)

    def _forget(self, stage: str, published: Sequence[int]) -> None:
        """These rows are deleted."""
        gone = set(published)
        self._published[stage] = [item for item in self._published[stage] if item not in gone]

    async def drain(
        self, stage: str, partitions: set[int] | None = None, *, older_than: timedelta | None = None
    ) -> int:
        """Publish what was committed and never sent; returns how many messages."""
        sent = 0
        while True:
            await self._again(stage, partial(self._delete_published, stage))
            rows = await self._again(stage, lambda: self.in_thread(self._leftover, stage, partitions, older_than))
            if not rows:
                return sent
            await self.flush(stage, rows)
            self._moves(stage)
            sent += len(rows)

    async def sweep(self, older_than: timedelta) -> int:
        """Publish what somebody committed for partitions that are ours and is still there; returns how many messages.

        A database may carry a COMMIT out long after the process that sent it is dead and its partitions were drained.
        """
        # Beside each other: one that waits for a server holds up no other.
        return sum(await asyncio.gather(*(self._sweep(stage, older_than) for stage in list(self._held))))

    async def _sweep(self, stage: str, older_than: timedelta) -> int:
        if any(waiting == stage for waiting, _error in self.waits):
            return 0  # its rows are as old as the outage, and leave when that is over
        async with self._order[stage]:
            sent = await self.drain(stage, set(self._held[stage]), older_than=older_than)
        if sent:
            log.warning("%s: sent %d messages that were committed late", stage, sent)
        return sent

    async def _drain_in_turn(self, stage: str) -> None:
        try:
            async with self._order[stage]:
                await self._drain(stage)
        except Exception as error:  # noqa: BLE001 - as above
            self.fatal(stage, error)

    async def _drain(self, stage: str) -> None:
        taken = self._draining.pop(stage, None)
        if not taken:
            return
        try:
            sent = await self.drain(stage, taken)
        except BaseException:
            self._draining.setdefault(stage, set()).update(taken)
            raise
        if sent:
            log.info("%s: sent %d messages that an earlier owner had committed", stage, sent)

    def _leftover(self, stage: str, partitions: set[int] | None, older_than: timedelta | None) -> list[Outgoing]:
        before = ahead = None
        if older_than is not None:
            before, ahead = self._now() - older_than, self._now() + older_than
        with self._truth.reading() as connection:
            return outbox.leftover(
                connection, stage, self._group_size, partitions=partitions, before=before, ahead=ahead
            )

    def _judge(self, messages: Sequence[Message], stage: Stage[T]) -> _Judged[T]:
        started = time.perf_counter()
        judged: _Judged[T] = _Judged([], [])
        for message in messages:
            try:
                judged.good.append(Delivered(message, stage.prepare(message)))
            except (PoisonError, ValueError) as error:
                judged.bad.append((message, error))
        self._metrics.stage_seconds.labels(stage.name, "judge").observe(time.perf_counter() - started)
        return judged

    def _effects(self, judged: _Judged[T], stage: Stage[T], connection: Connection, now: datetime) -> list[Outgoing]:
        out = stage.commit(connection, judged.good, now) if judged.good else []
        letters = [dead_letter(stage.name, message, error, now) for message, error in judged.bad]
        out += letters_out(deadletters.put(connection, letters))
        again = redriven_of(item.message for item in judged.good)
        if again:
            deadletters.resolve(connection, stage.name, again, now)
        return out

    async def _again(self, stage: str, work: Callable[[], Awaitable[R]]) -> R:
        """Until it succeeds; only a TransientError is worth another try."""
        attempt = 0
        this = object()
        try:
            while True:
                try:
                    return await work()
                except TransientError as error:
                    wait = error.retry_after or _BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)]
                    attempt += 1
                    self._waits[this] = (stage, error)
                    self._metrics.retries.labels(stage).inc()
                    self._moves(stage)
                    log.warning("%s: %s; again in %.1f s", stage, error, wait)
                    await asyncio.sleep(wait)
        finally:
            self._waits.pop(this, None)

    def _moves(self, stage: str) -> None:
        """It has come further, or is told to wait: no standstill either way."""
        if stage in self.progress:
            self.progress[stage].patience()

    async def _patiently(
        self, name: str, handle: Callable[[Sequence[Message]], Awaitable[None]], messages: Sequence[Message]
    ) -> None:
        try:
            await self._again(name, lambda: handle(messages))
        except Exception as error:  # noqa: BLE001 - as above; waiting for the next message to notice would take too long
            self.fatal(name, error)

    async def in_thread(self, work: Callable[..., R], *args: Any) -> R:
        """Run blocking work without holding up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def fatal(self, stage: str, error: Exception) -> NoReturn:
        """End the process: what happened was not foreseen, and going on could acknowledge past a hole."""
        # What we raise on purpose says why, and holds nobody's words; of anything else only the kind is certain not to.
        what = str(error) if isinstance(error, MemriverError) else type(error).__name__
        log.critical("%s: %s; the process ends", stage, what, exc_info=error)
        self._on_fatal(f"{stage}: {what}")
        raise FatalError(f"{stage} stopped") from error


def _acknowledge(events: Sequence[Any]) -> None:
    for event in events:
        event.ack()


def _message(event: Any) -> Message:
    raw = event.message
    return Message(raw.topic, raw.partition, raw.offset, raw.key, raw.value, raw.timestamp, raw.headers or ())


def _end_process(reason: str) -> None:
    logging.shutdown()
    os._exit(70)  # EX_SOFTWARE of sysexits.h; an exit that ran Faust's own clean-up would acknowledge
