"""The extract stage: one batch, one question to the model, its candidates past the policy gate, all kept in one transaction."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from processors.batching import PendingTurn, batch_id
from processors.exceptions import PoisonError, TransientError
from processors.policy import Decision, PolicyGate
from processors.ports import ChatModel
from processors.spans import own_words
from processors.times import resolve as resolve_times
from schemas import Candidate, DeadLetter, ExtractionBatch, Outcome, Turn, new_id
from sinks.sealing.guard import Guard, Named
from sinks.truth import Truth, batches, deadletters, memories, turns
from sinks.truth.outbox import Outgoing
from streams.deadletter import MAX_RAW_BYTES, dead_letter, letters_out, redriven_of
from streams.delivery import Delivery, Message
from streams.extraction import BatchOutcome, ExtractionResult, FailedPiece, RawReply, extract_batch
from streams.metrics import Metrics

_ANSWERED = frozenset({"extracted", "empty"})
_DONE = _ANSWERED | {"dead"}


@dataclass(frozen=True, slots=True)
class ModelChannel:
    """The model and what a call costs: `cost_usd(reply)` in US dollars."""

    model: ChatModel
    cost_usd: Callable[[RawReply], float]


@dataclass(frozen=True, slots=True)
class _Job:
    """A batch and the message it came in."""

    message: Message
    batch: ExtractionBatch


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What a group comes to: batches to ask about, messages beyond asking, and redriven ones that were answered before."""

    jobs: list[_Job]
    dead: list[tuple[Message, Exception, ExtractionBatch | None]]
    settled: list[Message]


class ExtractStage:
    """Batches in, candidates out. Without a model channel its batches wait in truth."""

    name = "extract"

    def __init__(
        self,
        truth: Truth,
        delivery: Delivery,
        gate: PolicyGate,
        metrics: Metrics,
        channel: ModelChannel | None,
        *,
        attempts: int,
        guard: Guard | None = None,
    ) -> None:
        """`guard` None: a replay, which is given what was let in."""
        self._truth = truth
        self._delivery = delivery
        self._gate = gate
        self._metrics = metrics
        self._channel = channel
        self._attempts = attempts
        self._guard = guard

    async def handle(self, messages: Sequence[Message]) -> None:
        """Do a group of batches; doing it again changes nothing. Many questions at once, one transaction for the answers.

        Raises:
            TransientError: the provider or a server is away for some of them; those that have an answer are done.
        """
        now = await self._delivery.in_thread(self._claim, messages)
        await self._bury(now.dead)
        asked = [job for job in now.jobs if self._channel is not None]
        try:
            answers = await asyncio.gather(*(self._ask(job) for job in asked), return_exceptions=True)
        except asyncio.CancelledError:
            # An orderly end, or partitions that went elsewhere, is no death.
            with contextlib.suppress(TransientError):
                await asyncio.shield(self._delivery.in_thread(self._release, [job.batch.batch_id for job in asked]))
            raise
        unexpected = [
            item for item in answers if isinstance(item, BaseException) and not isinstance(item, TransientError)
        ]
        if unexpected:
            raise unexpected[0]
        done = [(job, item) for job, item in zip(asked, answers, strict=True) if isinstance(item, ExtractionResult)]
        await self._finish(done, [job for job in now.jobs if self._channel is None], now.settled)
        away = [(job, item) for job, item in zip(asked, answers, strict=True) if isinstance(item, TransientError)]
        if away:
            # The provider's absence is not the batch's fault; only an attempt that ends in our death counts.
            await self._delivery.in_thread(self._release, [job.batch.batch_id for job, _error in away])
            raise away[0][1]

    def _claim(self, messages: Sequence[Message]) -> _Claimed:
        """Decode, and count the attempts before they are made; batches that are done are left out."""
        claimed = _Claimed([], [], [])
        jobs: dict[str, _Job] = {}
        for message in messages:
            try:
                batch = ExtractionBatch.from_bytes(message.value or b"")
                # Of two copies the one that was sent again stands for both: its dead letter wants an answer.
                if batch.batch_id not in jobs or message.redriven is not None:
                    jobs[batch.batch_id] = _Job(message, batch)
            except ValueError as error:
                claimed.dead.append((message, error, None))

        def work(connection: Connection) -> dict[str, int]:
            self._without_erased(connection, jobs)
            known = batches.states(connection, jobs)
            # Re-published into a fresh schema: what is asked must be on record first.
            batches.insert(connection, [job.batch for key, job in jobs.items() if key not in known])
            todo = [key for key in jobs if known.get(key, ("closed", 0))[0] not in _DONE]
            batches.count_attempts(connection, todo)
            answered = [job for key, job in jobs.items() if known.get(key, ("", 0))[0] in _ANSWERED]
            claimed.settled[:] = [job.message for job in answered if job.message.redriven is not None]
            return {key: known.get(key, ("closed", 0))[1] + 1 for key in todo}

        for key, attempt in self._truth.run(work).items():
            job = jobs[key]
            if attempt > self._attempts:
                given_up = PoisonError("attempts", f"{attempt - 1} attempts failed")
                claimed.dead.append((job.message, given_up, job.batch))
            else:
                claimed.jobs.append(job)
        return claimed

    def _release(self, batch_ids: Sequence[str]) -> None:
        self._truth.run(lambda connection: batches.count_attempts(connection, batch_ids, by=-1))

    async def _ask(self, job: _Job) -> ExtractionResult:
        assert self._channel is not None
        return await extract_batch(
            job.batch,
            self._channel.model,
            own_words=own_words,
            resolve_times=resolve_times,
            observe=lambda label: self._metrics.model_calls.labels(label).inc(),
        )

    async def _finish(
        self, done: Sequence[tuple[_Job, ExtractionResult]], waiting: Sequence[_Job], settled: Sequence[Message]
    ) -> None:
        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            jobs = [*waiting, *(job for job, _result in done)]
            # Whoever was paused while asking may find the batch answered: a model seldom says the same thing twice.
            still = batches.lock_unanswered(connection, [job.batch.batch_id for job in jobs])
            unasked = [job for job in waiting if job.batch.batch_id in still]
            batches.finish_all(connection, [(job.batch.batch_id, "waiting", 0) for job in unasked])
            turns.note(connection, [turn.turn_key for job in unasked for turn in job.batch.turns], "model_off")
            out = self._keep(connection, [item for item in done if item[0].batch.batch_id in still], now)
            # After the letters of this group: one that failed again is waiting by now, and no letter is closed by it.
            through = [*settled, *(job.message for job in waiting), *(job.message for job, _result in done)]
            deadletters.resolve(connection, self.name, redriven_of(through), now)
            return out

        if done or waiting or settled:
            await self._delivery.transact(self.name, work)
        for _job, result in done:
            for reply in result.raw_replies:
                self._metrics.model_tokens.labels("prompt").inc(reply.prompt_tokens)
                self._metrics.model_tokens.labels("completion").inc(reply.completion_tokens)
                self._metrics.model_cost.inc(self._cost(reply))

    def commit(
        self,
        connection: Connection,
        answered: Sequence[tuple[Message, ExtractionBatch, ExtractionResult]],
        now: datetime,
    ) -> list[Outgoing]:
        """What these answers change, inside a transaction; a replay calls it, whose answers come from elsewhere."""
        return self._keep(connection, [(_Job(message, batch), result) for message, batch, result in answered], now)

    def _refused(self, connection: Connection, turns: Sequence[Turn]) -> set[str]:
        """Turns that were erased since they were batched."""
        if self._guard is None:
            return set()
        named = [Named(turn.tenant, turn.owner_key, turn.conversation_key, turn.turn_key) for turn in turns]
        refused = self._guard.refuses(connection, named)
        return {turn.turn_key for turn, gone in zip(turns, refused, strict=True) if gone}

    def _without_erased(self, connection: Connection, jobs: dict[str, _Job]) -> None:
        """Erased turns go to no model; a batch of nothing else is over."""
        refused = self._refused(connection, [turn for job in jobs.values() for turn in job.batch.turns])
        for key, job in list(jobs.items()) if refused else ():
            left = tuple(turn for turn in job.batch.turns if turn.turn_key not in refused)
            if left:
                jobs[key] = replace(job, batch=job.batch.model_copy(update={"turns": left}))
            else:
                batches.finish(connection, key, "empty", 0)
                del jobs[key]

    def _as_it_is_now(
        self, connection: Connection, done: Sequence[tuple[_Job, ExtractionResult]]
    ) -> list[tuple[_Job, ExtractionResult]]:
        """Answers without what was erased while the model was thinking; its own words are not kept then."""
        refused = self._refused(connection, [turn for job, _result in done for turn in job.batch.turns])
        found: list[tuple[_Job, ExtractionResult]] = []
        for job, result in done:
            left = tuple(turn for turn in job.batch.turns if turn.turn_key not in refused)
            if len(left) < len(job.batch.turns):
                job = replace(job, batch=job.batch.model_copy(update={"turns": left}))
                kept = tuple(item for item in result.candidates if item.turn_key not in refused)
                result = replace(result, candidates=kept, raw_replies=(), failed=())
            found.append((job, result))
        return found

    def _keep(
        self, connection: Connection, done: Sequence[tuple[_Job, ExtractionResult]], now: datetime
    ) -> list[Outgoing]:
        out: list[Outgoing] = []
        judged: list[Candidate] = []
        replies: list[dict[str, object]] = []
        letters: list[DeadLetter] = []
        done = self._as_it_is_now(connection, done)
        ended: list[tuple[str, str, int]] = []
        extracted: list[str] = []
        failed: list[str] = []
        for job, result in done:
            by_key = {turn.turn_key: turn for turn in job.batch.turns}
            verdicts = [self._gate.judge(item, by_key.get(item.turn_key)) for item in result.candidates]
            judged += [verdict.candidate for verdict in verdicts]
            kept = [verdict.candidate for verdict in verdicts if verdict.decision is not Decision.REFUSE]
            out += [_candidate(candidate, job.message.partition) for candidate in kept]
            replies += self._replies(job.batch, result, now)
            status = {BatchOutcome.EMPTY: "empty", BatchOutcome.UNPARSABLE: "dead"}.get(result.outcome, "extracted")
            if result.failed and job.message.redriven is not None:
                status = "dead"  # its letter is about the whole of it, and so is the next attempt
            ended.append((job.batch.batch_id, status, len(kept)))
            lost = {turn.turn_key for piece in result.failed for turn in piece.turns}
            failed += lost
            extracted += [key for key in by_key if key not in lost]
            letters += self._letters(job, result, now)
            for verdict in verdicts:
                self._metrics.candidates.labels("model", verdict.decision.value).inc()
            for rejected in result.rejected:
                self._metrics.candidates.labels("model", f"rejected_{rejected.reason}").inc()
        batches.finish_all(connection, ended)
        memories.record_decisions(connection, self.name, judged, now)
        batches.keep_replies(connection, replies)
        turns.mark(connection, extracted, Outcome.EXTRACTED)
        turns.mark(connection, failed, Outcome.DEAD_LETTERED, "unparsable")
        return out + self._bury_now(connection, letters)

    def _replies(self, batch: ExtractionBatch, result: ExtractionResult, now: datetime) -> list[dict[str, object]]:
        return [
            {
                "batch_id": batch.batch_id,
                "part": part,
                "prompt_version": reply.prompt_version,
                "model": reply.model,
                "finish_reason": reply.finish_reason[:32],
                "outcome": reply.outcome,
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": reply.completion_tokens,
                "cost_usd": self._cost(reply),
                "reply": reply.text,
                "created_at": now,
            }
            for part, reply in enumerate(result.raw_replies)
        ]

    def _cost(self, reply: RawReply) -> float:
        return self._channel.cost_usd(reply) if self._channel is not None else 0.0

    def _letters(self, job: _Job, result: ExtractionResult, now: datetime) -> list[DeadLetter]:
        """One for each piece without an answer; a batch that was redriven stays the one letter that it was."""
        if job.message.redriven is None:
            return [self._letter(job, index, result, now) for index in range(len(result.failed))]
        return [
            dead_letter(self.name, job.message, PoisonError(piece.reason, self._unanswered(piece, result)), now)
            for piece in result.failed[:1]
        ]

    def _unanswered(self, piece: FailedPiece, result: ExtractionResult) -> str:
        return f"{len(piece.turns)} turns of a batch gave no readable answer in {result.calls} calls"

    def _letter(self, job: _Job, index: int, result: ExtractionResult, now: datetime) -> DeadLetter:
        piece = result.failed[index]
        # A piece is a batch of its own: sent again under the id of the whole, it would be taken for done.
        own_id = batch_id(
            PendingTurn(turn.turn_key, turn.revision, 0, turn.sent_at, turn.sent_at) for turn in piece.turns
        )
        one = job.batch.model_copy(update={"turns": piece.turns, "batch_id": own_id})
        raw = one.model_copy(update={"raw_reply": piece.raw[: MAX_RAW_BYTES // 4]}).to_bytes()
        return DeadLetter(
            dead_letter_id=new_id("dead", self.name, job.batch.batch_id, str(index)),
            stage=self.name,
            reason=piece.reason,
            detail=self._unanswered(piece, result),
            where=job.message.place,
            topic=job.message.topic,
            key=job.batch.conversation_key,
            attempts=1,
            raw=base64.b64encode(raw).decode(),
            failed_at=now,
        )

    async def _bury(self, dead: Sequence[tuple[Message, Exception, ExtractionBatch | None]]) -> None:
        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            still = batches.lock_unanswered(connection, [batch.batch_id for *_, batch in dead if batch is not None])
            given_up = [item for item in dead if item[2] is None or item[2].batch_id in still]
            letters = [dead_letter(self.name, message, error, now) for message, error, _batch in given_up]
            for letter, (_message, _error, batch) in zip(letters, given_up, strict=True):
                if batch is not None:
                    batches.finish(connection, batch.batch_id, "dead", 0)
                    keys = [turn.turn_key for turn in batch.turns]
                    turns.mark(connection, keys, Outcome.DEAD_LETTERED, letter.reason)
            return self._bury_now(connection, letters)

        if dead:
            await self._delivery.transact(self.name, work)

    def _bury_now(self, connection: Connection, letters: Sequence[DeadLetter]) -> list[Outgoing]:
        for letter in letters:
            self._metrics.dead_letters.labels(self.name, letter.reason).inc()
        return letters_out(deadletters.put(connection, letters))


def _candidate(candidate: Candidate, partition: int) -> Outgoing:
    return Outgoing("candidates", candidate.owner_key, candidate.owner_key, candidate.to_bytes(), partition)
