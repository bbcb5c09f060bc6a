"""Streams, model side: any OpenAI-compatible endpoint as the `ChatModel` port, with retries, breaker, budget."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import httpx2
import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from processors.exceptions import TransientError
from processors.ports import ChatReply
from streams.breaker import Breaker, BreakerOpen
from streams.pricing import BudgetExhausted, Price, Spending, TokenBudget, estimate_tokens
from streams.provider_errors import Misconfigured, from_status, refused_parameter


class OutputMode(StrEnum):
    """How much structure the endpoint can be asked for, richest first (FIELD_REPORTS 10)."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    TEXT = "text"


_MODES = tuple(OutputMode)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Where the model is and how patient we are. Times are seconds.

    `timeout` bounds a whole call, so that an answer that drips in byte by byte ends too. A Retry-After longer than
    `max_wait` is not waited for inside the call: the batch goes back to wait where it costs nothing.
    """

    base_url: str
    model: str
    api_key: str = field(default="none", repr=False)
    output: OutputMode = OutputMode.JSON_SCHEMA
    timeout: float = 60.0
    attempts: int = 4
    first_wait: float = 0.5
    max_wait: float = 20.0
    temperature: float | None = 0.0
    prices: Mapping[str, Price] = field(default_factory=dict)


@dataclass(slots=True)
class _Learned:
    """What the endpoint turned out not to know; learned from its own refusals and shared by all views."""

    refused: set[OutputMode] = field(default_factory=set)
    tokens_parameter: str = "max_tokens"
    temperature: bool = True


@dataclass(slots=True)
class _Ledger:
    spending: Spending = field(default_factory=Spending)


class OpenAIChatModel:
    """The adapter. Use as an async context manager, or call `aclose`.

    `json_schema` is the schema of an answer for json_schema mode. `rng` gives the jitter.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        json_schema: Mapping[str, Any],
        breaker: Breaker,
        rng: random.Random,
        budget: TokenBudget | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self._config = config
        self._schema = dict(json_schema)
        self._breaker = breaker
        self._budget = budget
        self._sleep = sleep
        self._rng = rng
        # Retries are ours, where the breaker and the budget see them.
        # aiohttp under the SDK, which it supports for many calls at once: a fifth less work per call than its default.
        self._client = client or openai.AsyncOpenAI(
            api_key=config.api_key,
            base_url=config.base_url,
            timeout=config.timeout,
            max_retries=0,
            http_client=openai.DefaultAioHttpClient(),
        )
        self._learned = _Learned()
        self._ledger = _Ledger()
        self._steps_down = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    @property
    def name(self) -> str:
        """The configured model's name."""
        return self._config.model

    @property
    def output_mode(self) -> OutputMode:
        """The structured output that the next call asks for."""
        offered = _MODES[_MODES.index(self._config.output) :]
        left = [mode for mode in offered if mode not in self._learned.refused]
        return left[min(self._steps_down, len(left) - 1)]

    @property
    def spending(self) -> Spending:
        """Calls, tokens and cost of this process so far, all views together."""
        return self._ledger.spending

    def plainer(self, steps: int) -> OpenAIChatModel:
        """The same endpoint, breaker and budget, asked with `steps` less structured output."""
        view = copy.copy(self)
        view._steps_down = self._steps_down + steps
        return view

    async def complete(self, system: str, user: str, *, max_tokens: int) -> ChatReply:
        """One answer.

        A refused parameter (response_format, max_tokens, temperature) is dropped for good and the call repeated. An
        answer that is no chat completion comes back as its raw text with finish_reason "error".

        Raises:
            TransientError: away, slow, limiting, misconfigured, breaker open, or budget used up.
            PoisonError: too_long, refused or bad_request.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._config.attempts),
            wait=self._wait,
            retry=retry_if_exception(self._worth_repeating),
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(self._admitted, system, user, max_tokens)

    def _worth_repeating(self, error: BaseException) -> bool:
        if not isinstance(error, TransientError) or isinstance(error, (BreakerOpen, BudgetExhausted, Misconfigured)):
            return False
        return error.retry_after is None or error.retry_after <= self._config.max_wait

    def _wait(self, state: RetryCallState) -> float:
        """Exponential with full jitter, and never sooner than the provider asked for.

        Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
        """
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after if isinstance(error, TransientError) and error.retry_after else 0.0
        ceiling = min(self._config.max_wait, self._config.first_wait * 2.0 ** (state.attempt_number - 1))
        return asked + self._rng.uniform(0.0, ceiling)

    async def _admitted(self, system: str, user: str, max_tokens: int) -> ChatReply:
        if self._budget is not None:
            self._budget.admit(estimate_tokens(system) + estimate_tokens(user) + max_tokens)
        self._breaker.admit()
        try:
            reply = await self._adapting(system, user, max_tokens)
        except TransientError as error:
            self._breaker.failure(error.retry_after)
            raise
        except openai.APIStatusError as error:
            refusal = from_status(error)
            if isinstance(refusal, TransientError):
                self._breaker.failure(refusal.retry_after)
            else:
                self._breaker.success()
            raise refusal from None
        except BaseException:
            self._breaker.release()
            raise
        self._breaker.success()
        self._ledger.spending = self._ledger.spending.with_reply(reply, self._config.prices)
        if self._budget is not None:
            self._budget.spend(reply.prompt_tokens + reply.completion_tokens)
        return reply

    async def _adapting(self, system: str, user: str, max_tokens: int) -> ChatReply:
        """One call, repeated at once without what the endpoint says it does not know: each part at most once."""
        while True:
            asked = self.output_mode
            try:
                return await self._call(system, user, max_tokens)
            except openai.APIStatusError as error:
                if not self._learn(refused_parameter(error), asked):
                    raise

    def _learn(self, parameter: str | None, asked: OutputMode) -> bool:
        learned = self._learned
        if parameter == "response_format" and asked is not OutputMode.TEXT:
            # Text is never refused, so there is always a mode left.
            learned.refused.add(asked)
            return True
        if parameter == "max_tokens" and learned.tokens_parameter == "max_tokens":
            learned.tokens_parameter = "max_completion_tokens"
            return True
        if parameter == "temperature" and learned.temperature:
            learned.temperature = False
            return True
        return False

    async def _call(self, system: str, user: str, max_tokens: int) -> ChatReply:
        request: dict[str, Any] = {
            "model": self._config.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            self._learned.tokens_parameter: max_tokens,
        }
        if self._config.temperature is not None and self._learned.temperature:
            request["temperature"] = self._config.temperature
        match self.output_mode:
            case OutputMode.JSON_SCHEMA:
                schema = {"name": "memories", "schema": self._schema, "strict": True}
                request["response_format"] = {"type": "json_schema", "json_schema": schema}
            case OutputMode.JSON_OBJECT:
                request["response_format"] = {"type": "json_object"}
        try:
            # The client's own timeout starts anew with each byte.
            async with asyncio.timeout(self._config.timeout):
                # The SDK's way for what it has no types for. `chat.completions.create` walks its typed parameters leaf
                # by leaf and types the answer, which we read ourselves: that is half of a call's own time.
                raw = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=request)
        except (TimeoutError, openai.APITimeoutError):
            raise TransientError("the model endpoint did not answer in time", part="model") from None
        except openai.APIConnectionError:
            raise TransientError("the model endpoint cannot be reached", part="model") from None
        return self._read(raw.text, system, user)

    def _read(self, body: str, system: str, user: str) -> ChatReply:
        """The reply in a body, whatever shape it has; some gateways answer 200 and put the error inside."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        data = data if isinstance(data, dict) else {}
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        message = choice.get("message") if choice is not None else None
        if choice is None or not isinstance(message, dict):
            _raise_inner_error(data)
            text, finish = body, "error"
        else:
            text = _text_of(message)
            finish = str(choice.get("finish_reason") or "stop")
        usage = data.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return ChatReply(
            text=text,
            finish_reason=finish,
            model=data["model"] if isinstance(data.get("model"), str) else self._config.model,
            prompt_tokens=_count(usage.get("prompt_tokens"), f"{system}{user}"),
            completion_tokens=_count(usage.get("completion_tokens"), text),
        )


def _raise_inner_error(data: Mapping[str, Any]) -> None:
    """A 200 whose error object carries a status of its own (429, 5xx) is that status."""
    error = data.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if str(code) in ("429", "500", "502", "503", "504", "529"):
        raise TransientError(f"the model endpoint answered 200 with error {code} inside", part="model")


def _text_of(message: Mapping[str, Any]) -> str:
    """`content`, as text or parts; a reasoning model that forgot to answer left it all in `reasoning_content`."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    elif isinstance(content, dict):
        content = json.dumps(content, ensure_ascii=False)
    if isinstance(content, str) and content.strip():
        return content
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name].strip():
            return str(message[name])
    return ""


def _count(value: Any, text: str) -> int:
    """The endpoint's own count; an estimate when it gives none."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return estimate_tokens(text)
