"""The extract stage: one batch, one question to the model, its candidates past the policy gate, all kept in one transaction."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from processors.exceptions import PoisonError, TransientError
from processors.policy import Decision, PolicyGate
from processors.ports import ChatModel
from processors.spans import own_words
from processors.times import resolve as resolve_times
from schemas import Candidate, DeadLetter, ExtractionBatch, Outcome, new_id
from sinks.truth import Truth, batches, deadletters, memories, turns
from sinks.truth.outbox import Outgoing
from streams.deadletter import MAX_RAW_BYTES, dead_letter
from streams.delivery import Delivery, Message
from streams.extraction import BatchOutcome, ExtractionResult, RawReply, extract_batch
from streams.metrics import Metrics

_DONE = frozenset({"extracted", "empty", "dead"})


@dataclass(frozen=True, slots=True)
class ModelChannel:
    """The model and what a call costs: `cost_usd(reply)` in US dollars."""

    model: ChatModel
    cost_usd: Callable[[RawReply], float]


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
    ) -> None:
        self._truth = truth
        self._delivery = delivery
        self._gate = gate
        self._metrics = metrics
        self._channel = channel
        self._attempts = attempts

    async def handle(self, message: Message) -> None:
        """Do one batch; doing it again changes nothing.

        Raises:
            TransientError: the provider or a server is away; the batch stays unacknowledged and comes again.
        """
        try:
            batch = ExtractionBatch.from_bytes(message.value or b"")
        except ValueError as error:
            return await self._bury(message, error)
        claimed = await self._delivery.in_thread(self._claim, batch)
        if claimed is None:
            return None
        if claimed > self._attempts:
            return await self._bury(message, PoisonError("attempts", f"{claimed - 1} attempts failed"), batch)
        if self._channel is None:
            return await self._finish(message, batch, None)
        try:
            result = await extract_batch(
                batch,
                self._channel.model,
                own_words=own_words,
                resolve_times=resolve_times,
                observe=lambda label: self._metrics.model_calls.labels(label).inc(),
            )
        except TransientError:
            # The provider's absence is not the batch's fault; only an attempt that ends in our death counts.
            await self._delivery.in_thread(self._release, batch)
            raise
        return await self._finish(message, batch, result)

    def _claim(self, batch: ExtractionBatch) -> int | None:
        """Count the attempt before it is made; None when the batch is done."""

        def work(connection: Connection) -> int | None:
            state = batches.state(connection, batch.batch_id)
            if state is None:
                # Re-published into a fresh schema: what is asked must be on record first.
                batches.insert(connection, [batch])
            elif state[0] in _DONE:
                return None
            return batches.count_attempt(connection, batch.batch_id)

        return self._truth.run(work)

    def _release(self, batch: ExtractionBatch) -> None:
        self._truth.run(lambda connection: batches.uncount_attempt(connection, batch.batch_id))

    async def _finish(self, message: Message, batch: ExtractionBatch, result: ExtractionResult | None) -> None:
        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            if result is None:
                batches.finish(connection, batch.batch_id, "waiting", 0)
                turns.note(connection, [turn.turn_key for turn in batch.turns], "model_off")
                return []
            return self._keep(connection, message, batch, result, now)

        await self._delivery.transact(self.name, work)
        if result is not None:
            for reply in result.raw_replies:
                self._metrics.model_tokens.labels("prompt").inc(reply.prompt_tokens)
                self._metrics.model_tokens.labels("completion").inc(reply.completion_tokens)
                self._metrics.model_cost.inc(self._cost(reply))

    def _keep(
        self,
        connection: Connection,
        message: Message,
        batch: ExtractionBatch,
        result: ExtractionResult,
        now: datetime,
    ) -> list[Outgoing]:
        by_key = {turn.turn_key: turn for turn in batch.turns}
        verdicts = [self._gate.judge(candidate, by_key.get(candidate.turn_key)) for candidate in result.candidates]
        judged = [verdict.candidate for verdict in verdicts]
        kept = [verdict.candidate for verdict in verdicts if verdict.decision is not Decision.REFUSE]
        memories.record_decisions(connection, self.name, judged, now)
        batches.keep_replies(connection, self._replies(batch, result, now))
        status = {BatchOutcome.EMPTY: "empty", BatchOutcome.UNPARSABLE: "dead"}.get(result.outcome, "extracted")
        batches.finish(connection, batch.batch_id, status, len(kept))
        failed = {turn.turn_key for piece in result.failed for turn in piece.turns}
        turns.mark(connection, [key for key in by_key if key not in failed], Outcome.EXTRACTED)
        turns.mark(connection, failed, Outcome.DEAD_LETTERED, "unparsable")
        letters = [self._letter(message, batch, index, result, now) for index in range(len(result.failed))]
        deadletters.put(connection, letters)
        for verdict in verdicts:
            self._metrics.candidates.labels("model", verdict.decision.value).inc()
        for rejected in result.rejected:
            self._metrics.candidates.labels("model", f"rejected_{rejected.reason}").inc()
        for letter in letters:
            self._metrics.dead_letters.labels(self.name, letter.reason).inc()
        return [_candidate(candidate, message.partition) for candidate in kept] + [
            Outgoing("deadletters", letter.dead_letter_id, letter.dead_letter_id, letter.to_bytes(), message.partition)
            for letter in letters
        ]

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

    def _letter(
        self, message: Message, batch: ExtractionBatch, index: int, result: ExtractionResult, now: datetime
    ) -> DeadLetter:
        piece = result.failed[index]
        one = batch.model_copy(update={"turns": piece.turns})
        raw = one.model_copy(update={"raw_reply": piece.raw[: MAX_RAW_BYTES // 4]}).to_bytes()
        return DeadLetter(
            dead_letter_id=new_id("dead", self.name, batch.batch_id, str(index)),
            stage=self.name,
            reason=piece.reason,
            detail=f"{len(piece.turns)} turns of a batch gave no readable answer in {result.calls} calls",
            where=message.place,
            topic=message.topic,
            key=batch.conversation_key,
            attempts=result.calls,
            raw=base64.b64encode(raw).decode(),
            failed_at=now,
        )

    async def _bury(self, message: Message, error: Exception, batch: ExtractionBatch | None = None) -> None:
        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            letter = dead_letter(self.name, message, error, now)
            deadletters.put(connection, [letter])
            if batch is not None:
                batches.finish(connection, batch.batch_id, "dead", 0)
                keys = [turn.turn_key for turn in batch.turns]
                turns.mark(connection, keys, Outcome.DEAD_LETTERED, letter.reason)
            self._metrics.dead_letters.labels(self.name, letter.reason).inc()
            return [Outgoing("deadletters", letter.dead_letter_id, letter.dead_letter_id, letter.to_bytes())]

        await self._delivery.transact(self.name, work)


def _candidate(candidate: Candidate, partition: int) -> Outgoing:
    return Outgoing("candidates", candidate.owner_key, candidate.owner_key, candidate.to_bytes(), partition)
