"""Ports: what judgement needs from outside, as Protocols; adapters live in `sinks/` and `streams/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Embedder(Protocol):
    """Turns sentences into unit vectors."""

    @property
    def model(self) -> str:
        """Name that, with `dimension`, names a vector collection."""

    @property
    def dimension(self) -> int:
        """Length of each vector."""

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector of `dimension` floats per text, in order.

        Raises:
            TransientError: the endpoint is away or rate-limited.
        """

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question; some models embed questions and documents differently."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a model answered, with its cost. `finish_reason` is the endpoint's own word (stop, length, …)."""

    text: str
    finish_reason: str
    model: str
    prompt_tokens: int
    completion_tokens: int


class ChatModel(Protocol):
    """An OpenAI-compatible chat endpoint, already wrapped in retries and a breaker."""

    @property
    def name(self) -> str:
        """The model's name, recorded with each reply."""

    async def complete(self, system: str, user: str, *, max_tokens: int) -> ChatReply:
        """One call.

        Raises:
            TransientError: the provider is down, slow, or limiting; the batch waits.
            PoisonError: the request itself is refused (too long, content policy).
        """
