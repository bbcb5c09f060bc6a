"""Sinks, embedders: any endpoint that speaks OpenAI's embeddings API (FIELD_REPORTS 42).

What is long is cut into pieces and averaged; a refused batch is halved until the bad text stands alone; what may work
later is retried here a few times and then handed on as `TransientError`.
https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import openai
import tenacity

from processors.exceptions import FatalError, Outage, TransientError
from sinks import outages
from sinks.embedders.exceptions import RefusedTexts
from sinks.embedders.text import blank_vector, clean, mean_of_pieces, unit_rows
from sinks.embedders.token_budget import estimate_tokens, split
from sinks.retry_after import retry_after

KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
"""Published native dimensions; for every other model the configuration names one."""

# Below this a refusal cannot be about length.
_SHORTEST_HALVED = 64.0
_MOST_HALVINGS = 3
_PROBE = "hello"
Vector = list[float]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold, and how long one attempt and all of them may take.

    Tokens are estimates. OpenAI allows 8,192 tokens a text, 2,048 texts and 300,000 tokens a request; the defaults are
    lower, so that other servers cope. `longest_wait_s` bounds a pause between attempts: an endpoint that asks for more
    is left to the delivery loop, which must not be blocked here.
    """

    text_tokens: float = 8_000
    texts: int = 128
    request_tokens: float = 64_000
    timeout_s: float = 30.0
    attempts: int = 4
    longest_wait_s: float = 10.0


class OpenAIEmbedder:
    """An `Embedder` over HTTP; safe for threads.

    `send_dimension` asks the endpoint to shorten its vectors (`dimensions`, which only some models know).
    """

    def __init__(
        self,
        model: str,
        dimension: int,
        *,
        api_key: str,
        base_url: str | None = None,
        send_dimension: bool = False,
        limits: Limits | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._dimension = dimension
        self._send_dimension = send_dimension
        self._limits = limits or Limits()
        self._sleep = sleep
        # Retries are ours: the SDK's own know neither the longest wait nor the injected sleep.
        self._client = openai.OpenAI(api_key=api_key, base_url=base_url, timeout=self._limits.timeout_s, max_retries=0)

    @property
    def model(self) -> str:
        return self._model

    @property
    def dimension(self) -> int:
        return self._dimension

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def embed_query(self, text: str) -> Vector:
        return self.embed_documents([text])[0]

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder`.

        Raises:
            TransientError: away, limiting or failing, after all attempts.
            RefusedTexts: some texts are refused whatever is done; the others' vectors are in the error.
            FatalError: key, model or dimension is wrong, or the endpoint refuses even a harmless word.
        """
        pieces: list[str] = []
        owners: list[int] = []
        for position, text in enumerate(map(clean, texts)):
            if text:
                for piece in split(text, self._limits.text_tokens):
                    pieces.append(piece)
                    owners.append(position)
        embedded: list[Vector | None] = []
        for batch in self._batches(pieces):
            embedded.extend(self._isolate(batch))
        if pieces and all(vector is None for vector in embedded):
            self._probe()

        parts: dict[int, list[tuple[str, Vector]]] = {}
        for owner, piece, vector in zip(owners, pieces, embedded, strict=True):
            parts.setdefault(owner, [])
            if vector is not None:
                parts[owner].append((piece, vector))
        found = [self._pool(parts.get(position)) for position in range(len(texts))]
        vectors = [vector for vector in found if vector is not None]
        if len(vectors) < len(found):
            raise RefusedTexts(tuple(at for at, vector in enumerate(found) if vector is None), found)
        return vectors

    def _pool(self, parts: list[tuple[str, Vector]] | None) -> Vector | None:
        if parts is None:
            return blank_vector(self._dimension)
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0][1]
        return mean_of_pieces([vector for _, vector in parts], [estimate_tokens(piece) for piece, _ in parts])

    def _batches(self, pieces: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        spent = 0.0
        for piece in pieces:
            cost = estimate_tokens(piece)
            if batch and (len(batch) >= self._limits.texts or spent + cost > self._limits.request_tokens):
                yield batch
                batch, spent = [], 0.0
            batch.append(piece)
            spent += cost
        if batch:
            yield batch

    def _isolate(self, batch: list[str], halvings: int = 0) -> list[Vector | None]:
        """The batch's vectors, None for what is refused when it stands alone."""
        try:
            return list(self._request(batch))
        except (openai.BadRequestError, openai.UnprocessableEntityError, _TooLarge):
            if len(batch) > 1:
                middle = len(batch) // 2
                return self._isolate(batch[:middle]) + self._isolate(batch[middle:])
        text = batch[0]
        tokens = estimate_tokens(text)
        if tokens < _SHORTEST_HALVED or halvings >= _MOST_HALVINGS:
            return [None]
        # Perhaps it was only too long, the estimate notwithstanding.
        halves = split(text, tokens / 2 + 2)
        parts = [(half, self._isolate([half], halvings + 1)[0]) for half in halves]
        return [self._pool([(half, vector) for half, vector in parts if vector is not None])]

    def _probe(self) -> None:
        """Tell a refused text from a refused configuration, which would send every message to the dead letters."""
        try:
            self._request([_PROBE])
        except (openai.BadRequestError, openai.UnprocessableEntityError, _TooLarge) as exc:
            raise FatalError(
                f"the embedding endpoint refuses every request for {self._model}; check its name and dimension"
            ) from exc

    def _request(self, batch: list[str]) -> list[Vector]:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._limits.attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception(self._worth_retrying),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(self._attempt, batch)
        except openai.APIStatusError as exc:
            status = exc.status_code
            if status == 413:
                raise _TooLarge from exc
            if status in (400, 422):
                raise
            if _transient_status(status):
                raise TransientError(
                    f"the embedding endpoint answered {status}",
                    retry_after=retry_after(exc.response.headers),
                    part="embedder",
                    outage=outages.http(status) or Outage.AWAY,
                ) from exc
            raise FatalError(f"the embedding endpoint answered {status}; check key, address and model") from exc
        except openai.APIConnectionError as exc:
            raise TransientError(
                f"the embedding endpoint does not answer ({type(exc).__name__})", part="embedder"
            ) from exc
        except openai.APIError as exc:
            raise TransientError(
                f"the embedding endpoint gave no usable answer ({type(exc).__name__})", part="embedder"
            ) from exc

    def _attempt(self, batch: list[str]) -> list[Vector]:
        reply = self._client.embeddings.create(
            input=batch,
            model=self._model,
            # The SDK would ask for base64, which not every compatible server speaks.
            encoding_format="float",
            dimensions=self._dimension if self._send_dimension else openai.omit,
        )
        data = sorted(reply.data or [], key=lambda item: item.index)
        if [item.index for item in data] != list(range(len(batch))):
            raise TransientError(
                "the embedding endpoint answered with another number of vectors than texts", part="embedder"
            )
        for item in data:
            if len(item.embedding) != self._dimension:
                raise FatalError(
                    f"{self._model} gives vectors of {len(item.embedding)} dimensions, configured are {self._dimension}"
                )
        rows: list[Vector] = unit_rows(np.asarray([item.embedding for item in data], dtype=np.float64)).tolist()
        return rows

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Exponential with full jitter, or what the endpoint asks for."""
        jittered = tenacity.wait_random_exponential(multiplier=0.5, max=self._limits.longest_wait_s)(state)
        error = state.outcome.exception() if state.outcome else None
        asked = retry_after(error.response.headers) if isinstance(error, openai.APIStatusError) else None
        return max(jittered, asked or 0.0)

    def _worth_retrying(self, error: BaseException) -> bool:
        if isinstance(error, openai.APIStatusError):
            asked = retry_after(error.response.headers)
            return _transient_status(error.status_code) and (asked or 0.0) <= self._limits.longest_wait_s
        return isinstance(error, openai.APIConnectionError | TransientError)


class _TooLarge(Exception):
    """413: the request as a whole is too big."""


def _transient_status(status: int) -> bool:
    return status in (408, 409, 425, 429) or status >= 500
