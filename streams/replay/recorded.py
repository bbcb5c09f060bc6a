"""Replay, the model's part: what it said when the same batch was asked with the same prompt is not asked again."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from processors.exceptions import FatalError, MemriverError
from processors.extraction.prompts import module_for
from processors.ports import ChatReply
from processors.spans import own_words
from processors.times import resolve as resolve_times
from schemas import ExtractionBatch
from sinks.truth.replays import Recorded
from streams.extraction import ExtractionResult, extract_batch


class _RanOut(MemriverError):
    """More is asked than was answered then."""


class _RecordedModel:
    """A `ChatModel` that says again what was said, in the same order."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.name = str(rows[0]["model"])
        self.left = list(rows)

    async def complete(self, _system: str, _user: str, *, max_tokens: int) -> ChatReply:
        """The next reply, whatever is asked."""
        if not self.left:
            raise _RanOut
        row = self.left.pop(0)
        tokens = row["prompt_tokens"], row["completion_tokens"]
        return ChatReply(row["reply"], row["finish_reason"], row["model"], *tokens)


def answered_before(batch: ExtractionBatch, known: Recorded, prompt: str) -> ExtractionResult | None:
    """The result that the recorded replies come to, without the replies, which are taken over as they are.

    None when there are none under this prompt, or when they do not fit: a call that a provider refused left no reply, and
    what came after it belongs to another question.
    """
    version = module_for(batch.language, prompt).VERSION
    if not known.replies or any(row["prompt_version"] != version for row in known.replies):
        return None
    model = _RecordedModel(known.replies)
    asking = extract_batch(batch, model, own_words=own_words, resolve_times=resolve_times, prompt=prompt)
    try:
        result = _at_once(asking)
    except _RanOut:
        return None
    return None if model.left else replace(result, raw_replies=())


def _at_once(work: Coroutine[Any, Any, ExtractionResult]) -> ExtractionResult:
    """Run what never really waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: ExtractionResult = done.value
        return result
    raise FatalError("a recorded reply had to be waited for")
