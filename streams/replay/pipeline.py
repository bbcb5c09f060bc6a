"""Replay, the pipeline: the stages in one process and one transaction, in a fixed order, under the clock of the log.

What runs is what the workers run: `IngestStage.commit`, `close_batches`, `ExtractStage.commit`, `ResolveStage.commit`. What they
would publish goes to the next of them, in memory. The clock shows whole seconds: a turn that was published at 12:00:00.4
happens at 12:00:01, with whatever else was published in that second. So two replays of one log agree in every byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from processors.batching import BatchLimits, PendingTurn, batch_id
from processors.exceptions import MemriverError
from processors.intake import Judged
from schemas import Candidate, Command, ExtractionBatch, Operation
from sinks.truth import Truth, batches, carrying, deadletters, replays, turns
from sinks.truth.carrying import Carried
from sinks.truth.outbox import Outgoing
from sinks.truth.turns import Conversation
from streams.deadletter import dead_letter
from streams.delivery import Delivered, Message
from streams.extraction import ExtractionResult
from streams.replay.log import LoggedTurn
from streams.replay.recorded import answered_before
from streams.stages.closing import close_batches, outgoing
from streams.stages.extract import ExtractStage
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage

_SECOND = timedelta(seconds=1)
_CLAIM = 200


def tick(moment: datetime) -> datetime:
    """The second that is complete at `moment`."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + _SECOND


@dataclass(frozen=True, slots=True)
class Read:
    """A turn of the log, judged; `verdict` is why it could not be for one that cannot be read."""

    logged: LoggedTurn
    message: Message
    verdict: Judged | Exception


@dataclass(slots=True)
class Done:
    """What one transaction came to."""

    commands: int = 0
    recorded: int = 0


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a worker, for a schema of their own."""

    ingest: IngestStage
    extract: ExtractStage
    candidates: ResolveStage
    commands: ResolveStage


@dataclass(slots=True)
class _Step:
    """What is on its way from one stage to the next, at one moment."""

    now: datetime
    resolving: list[Delivered[Candidate | Command]] = field(default_factory=list)


class Pipeline:
    """Blocking; called inside transactions of the schema beside. It keeps nothing between two of them."""

    def __init__(self, live: Truth, stages: Stages, limits: BatchLimits, prompt: str) -> None:
        self._live = live
        self._stages = stages
        self._limits = limits
        self._prompt = prompt

    def group(self, connection: Connection, read: Sequence[Read], clock: datetime) -> tuple[datetime, Done]:
        """Everything up to the last of these turns; returns what the clock shows then."""
        done = Done()
        position = 0
        while position < len(read):
            clock = max(clock, tick(read[position].logged.published_at))
            end = position
            while end < len(read) and tick(read[end].logged.published_at) <= clock:
                end += 1
            self.advance(connection, clock, done)
            self._ingest(connection, read[position:end], clock, done)
            position = end
        return clock, done

    def advance(self, connection: Connection, clock: datetime, done: Done) -> None:
        """What is due up to `clock` without a turn: batches whose first turn is old enough, orders of people and agents."""
        while True:
            oldest = turns.oldest_unextracted(connection)
            closing = tick(oldest + self._limits.max_age) if oldest is not None else None
            carried = carrying.due(connection, clock)
            ordered = tick(carried[0].at) if carried else None
            if closing is not None and closing <= clock and (ordered is None or closing <= ordered):
                self._close(connection, oldest or closing, closing, done)
            elif ordered is not None:
                self._obey(connection, carried, ordered)
                done.commands += len(carried)
            else:
                return

    def rest(self, connection: Connection) -> None:
        """The log is at its end: what is postponed waits since it came, as the workers' own clock counts it.

        When it would be looked at again depends on how long ago that was; what a replay leaves must not.
        """
        turns.wait_since_arrival(connection)

    def answer(
        self, connection: Connection, answered: Sequence[tuple[ExtractionBatch, ExtractionResult]], now: datetime
    ) -> None:
        """Answers that were asked for outside the transaction."""
        step = _Step(now)
        self._answered(connection, step, answered)
        self._resolve(connection, step)

    def look(self, connection: Connection, found: Sequence[ExtractionBatch], now: datetime) -> list[ExtractionBatch]:
        """Answer what the live schema has an answer for by now; returns the others."""
        step, left = _Step(now), list[ExtractionBatch]()
        for batch in found:
            if not self._recorded(connection, step, batch):
                left.append(batch)
        self._resolve(connection, step)
        return left

    def _ingest(self, connection: Connection, read: Sequence[Read], now: datetime, done: Done) -> None:
        stage = self._stages.ingest
        good: list[Delivered[Judged]] = []
        for item in read:
            if isinstance(item.verdict, Judged):
                good.append(Delivered(item.message, item.verdict))
            elif item.logged.payload is not None:
                deadletters.put(connection, [dead_letter(stage.name, item.message, item.verdict, now)])
        if good:
            self._pass_on(connection, stage.commit(connection, good, now), now, done)

    def _close(self, connection: Connection, oldest: datetime, now: datetime, done: Done) -> None:
        found = turns.lock_due(connection, oldest, _CLAIM)
        flush = {key for key, row in found.items() if self._is_cut(connection, row, now)}
        closed = close_batches(connection, found, self._limits, now, flush=flush, flushed_by="time")
        turns.save_conversations(connection, found.values())
        self._pass_on(connection, [outgoing(batch) for batch in closed], now, done)

    def _is_cut(self, connection: Connection, row: Conversation, now: datetime) -> bool:
        """Whether the batch closes here.

        A worker that was behind its log waited longer for the rest of a batch. Where the live schema shows that it did, the
        replay waits too, or it would cut other batches, and the recorded replies would be of no use.
        """
        held = turns.waiting(connection, [row.conversation_key]).get(row.conversation_key, [])
        if not held:
            return True
        own = batch_id(PendingTurn(i.turn_key, i.revision, i.tokens, i.sent_at, i.arrived_at) for i in held)
        with self._live.reading() as live:
            if batches.existing(live, [own]) or not replays.cut_later(live, row.conversation_key, held[0].turn_key):
                return True
        # Looked at again when it has waited twice as long.
        waited = now - min(item.arrived_at for item in held)
        row.first_pending_at = now + waited - self._limits.max_age
        return False

    def _obey(self, connection: Connection, carried: Sequence[Carried], now: datetime) -> None:
        step = _Step(now)
        for order in carried:
            item = order.item
            # An expiry was ordered for the moment at which a memory ran out; under other rules it may run longer.
            expiry = isinstance(item, Candidate) and item.operation is Operation.EXPIRE
            if not expiry or carrying.expires(connection, item):
                step.resolving.append(Delivered(_message("commands", item.to_bytes()), item))
        self._resolve(connection, step)
        carrying.done(connection, carried)

    def _pass_on(self, connection: Connection, messages: Sequence[Outgoing], now: datetime, done: Done) -> None:
        step = _Step(now)
        for sent in messages:
            if sent.topic == "batches":
                done.recorded += self._recorded(connection, step, ExtractionBatch.from_bytes(sent.payload or b""))
            else:
                self._route(step, sent)
        self._resolve(connection, step)

    def _recorded(self, connection: Connection, step: _Step, batch: ExtractionBatch) -> bool:
        with self._live.reading() as live:
            known = replays.recorded(live, batch.batch_id)
        result = answered_before(batch, known, self._prompt)
        if result is None:
            return False
        self._answered(connection, step, [(batch, result)])
        batches.keep_replies(connection, known.replies)
        return True

    def _answered(
        self, connection: Connection, step: _Step, answered: Sequence[tuple[ExtractionBatch, ExtractionResult]]
    ) -> None:
        found = [(_message("batches", batch.to_bytes()), batch, result) for batch, result in answered]
        for sent in self._stages.extract.commit(connection, found, step.now):
            self._route(step, sent)

    def _route(self, step: _Step, sent: Outgoing) -> None:
        stage = {"candidates": self._stages.candidates, "commands": self._stages.commands}.get(sent.topic)
        if stage is not None:
            message = _message(sent.topic, sent.payload or b"")
            step.resolving.append(Delivered(message, stage.prepare(message)))

    def _resolve(self, connection: Connection, step: _Step) -> None:
        """What it would publish goes nowhere: agents learn of a replay when it takes the live schema's place."""
        if step.resolving:
            self._stages.candidates.commit(connection, step.resolving, step.now)


def judged(stage: IngestStage, read: Sequence[LoggedTurn], topic: str) -> list[Read]:
    """Decode and judge; pure, and so outside the transaction."""
    found: list[Read] = []
    for logged in read:
        stamp = logged.published_at.timestamp()
        message = Message(topic, logged.partition, logged.offset, None, logged.payload, stamp)
        verdict: Judged | Exception
        try:
            verdict = stage.prepare(message)
        except (MemriverError, ValueError) as error:
            verdict = error
        found.append(Read(logged, message, verdict))
    return found


def _message(topic: str, payload: bytes) -> Message:
    return Message(topic, 0, 0, None, payload, 0.0)
