"""Streams, model side: one batch through prompt, call, parser and judge, within a budget of calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from processors.exceptions import PoisonError, TransientError
from processors.extraction.judge import Judge
from processors.extraction.outcome import Extracted, Outcome, Rejected, Truncated, Unparsable
from processors.extraction.parse import parse
from processors.extraction.plan import Accept, Again, Ask, GiveUp, Limits, about, first_asks, label, next_step
from processors.extraction.prompts import PROMPT_VERSION
from processors.extraction.render import OwnWords, Prompt, render
from processors.ports import ChatModel, ChatReply
from processors.times import Resolver
from schemas import Candidate, ExtractionBatch, Turn
from streams.pricing import BudgetExhausted


class BatchOutcome(StrEnum):
    """What became of a batch. Provider-down is none of these: it is a TransientError, and the batch waits."""

    EXTRACTED = "extracted"
    EMPTY = "empty"
    UNPARSABLE = "unparsable"


@runtime_checkable
class Downgradable(Protocol):
    """A model that can be asked with less structured output."""

    def plainer(self, steps: int) -> ChatModel:
        """The same endpoint, `steps` modes down."""


@dataclass(frozen=True, slots=True)
class RawReply:
    """A reply as it came, kept under the batch id; `outcome` is its metric label."""

    prompt_version: str
    model: str
    text: str = field(repr=False)
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    outcome: str
    turn_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedPiece:
    """Turns that no call got an answer for, for a dead letter. `raw` is the last reply, empty when there was none."""

    reason: str
    turns: tuple[Turn, ...] = field(repr=False)
    raw: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """All that a batch yielded; `outcome` is UNPARSABLE as soon as one piece failed, whatever the others gave."""

    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]
    outcome: BatchOutcome
    raw_replies: tuple[RawReply, ...]
    failed: tuple[FailedPiece, ...]
    calls: int


def _ignore(_label: str) -> None:
    return


async def extract_batch(
    batch: ExtractionBatch,
    model: ChatModel,
    *,
    own_words: OwnWords,
    resolve_times: Resolver,
    limits: Limits | None = None,
    observe: Callable[[str], None] = _ignore,
    prompt: str = PROMPT_VERSION,
) -> ExtractionResult:
    """Extract one batch with at most `limits.calls` calls, under this version of the prompt.

    `observe` gets one label per call: extracted, empty, truncated, refused, unparsable, provider_down or over_budget.

    Raises:
        TransientError: the provider is down or the budget is used up; nothing of the batch is done.
    """
    run = _Run(batch, model, own_words, resolve_times, limits or Limits(), observe, prompt)
    return await run.finish()


class _Run:
    """The state of one batch on its way."""

    def __init__(
        self,
        batch: ExtractionBatch,
        model: ChatModel,
        own_words: OwnWords,
        resolve_times: Resolver,
        limits: Limits,
        observe: Callable[[str], None],
        prompt: str,
    ) -> None:
        self._batch = batch
        self._model = model
        self._own_words = own_words
        self._resolve_times = resolve_times
        self._limits = limits
        self._observe = observe
        self._prompt = prompt
        self._calls = 0
        self._candidates: dict[str, Candidate] = {}
        self._rejected: list[Rejected] = []
        self._replies: list[RawReply] = []
        self._failed: list[FailedPiece] = []

    async def finish(self) -> ExtractionResult:
        asks = deque(first_asks(self._batch.turns, self._limits))
        while asks:
            ask = asks.popleft()
            prompt = render(self._batch.model_copy(update={"turns": ask.turns}), self._own_words, self._prompt)
            if not prompt.aliases:
                continue
            if self._calls >= self._limits.calls:
                self._failed.append(FailedPiece("call_budget", ask.turns))
                continue
            outcome, raw = await self._ask(ask, prompt)
            step = next_step(ask, outcome, self._limits)
            if isinstance(step, Again):
                asks.extendleft(reversed(step.asks))
                continue
            self._take(outcome, prompt)
            match step:
                case GiveUp(reason=reason):
                    self._failed.append(FailedPiece(reason, ask.turns, raw))
                case Accept():
                    pass
        return self._result()

    async def _ask(self, ask: Ask, prompt: Prompt) -> tuple[Outcome, str]:
        model = self._model
        if ask.plainer and isinstance(model, Downgradable):
            model = model.plainer(ask.plainer)
        user = f"{prompt.user}\n\n{prompt.reminder}" if ask.reminder else prompt.user
        self._calls += 1
        try:
            reply = await model.complete(prompt.system, user, max_tokens=ask.max_tokens)
        except PoisonError as error:
            refusal = Unparsable(error.reason)
            self._observe(label(refusal))
            return refusal, ""
        except BudgetExhausted:
            self._observe("over_budget")
            raise
        except TransientError:
            self._observe("provider_down")
            raise
        outcome = about(parse(reply.text, reply.finish_reason), prompt.aliases)
        self._observe(label(outcome))
        self._replies.append(_kept(reply, prompt, outcome, ask))
        return outcome, reply.text

    def _take(self, outcome: Outcome, prompt: Prompt) -> None:
        if not isinstance(outcome, (Extracted, Truncated)):
            return
        judge = Judge(prompt, self._model.name, self._own_words, self._resolve_times)
        candidates, rejected = judge.judge_all(outcome.items)
        self._candidates |= {candidate.candidate_id: candidate for candidate in candidates}
        self._rejected += [*outcome.rejected, *rejected]

    def _result(self) -> ExtractionResult:
        if self._failed:
            outcome = BatchOutcome.UNPARSABLE
        elif self._candidates or self._rejected:
            outcome = BatchOutcome.EXTRACTED
        else:
            outcome = BatchOutcome.EMPTY
        return ExtractionResult(
            candidates=tuple(self._candidates.values()),
            rejected=tuple(self._rejected),
            outcome=outcome,
            raw_replies=tuple(self._replies),
            failed=tuple(self._failed),
            calls=self._calls,
        )


def _kept(reply: ChatReply, prompt: Prompt, outcome: Outcome, ask: Ask) -> RawReply:
    return RawReply(
        prompt_version=prompt.version,
        model=reply.model,
        text=reply.text,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        outcome=label(outcome),
        turn_ids=tuple(turn.turn_id for turn in ask.turns),
    )
