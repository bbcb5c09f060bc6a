"""Modelling: the model channel of these settings, for whoever asks: the extract stage, summaries, a replay."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from processors.ports import ChatReply
from streams.breaker import Breaker
from streams.extraction import RawReply
from streams.pricing import Price, RollingBudget, price_of
from streams.settings import Settings

if TYPE_CHECKING:
    from streams.model import OpenAIChatModel

_DAY_SECONDS = 86_400.0


def make_models(settings: Settings, *schemas: dict[str, Any]) -> list[OpenAIChatModel]:
    """One for each schema of an answer: one endpoint and one purse, so they share breaker and budget."""
    # The SDK takes a second to import; a process without the model channel need not wait for it.
    from streams.model import ModelConfig, OpenAIChatModel, OutputMode

    config = ModelConfig(
        base_url=settings.model_base_url,
        model=settings.model_name,
        api_key=settings.model_api_key.get_secret_value() or "none",
        output=OutputMode(settings.model_structured),
        timeout=settings.model_timeout_seconds,
        prices=_prices(settings),
    )
    budget = None
    if settings.model_token_budget_per_day:
        budget = RollingBudget(settings.model_token_budget_per_day, _DAY_SECONDS, time.monotonic)
    breaker, rng = Breaker(time.monotonic), random.Random()
    return [OpenAIChatModel(config, json_schema=schema, breaker=breaker, rng=rng, budget=budget) for schema in schemas]


def pricing(settings: Settings) -> Callable[[RawReply | ChatReply], float]:
    """What a reply cost, in US dollars; 0 where no price is known."""
    prices = _prices(settings)

    def cost(reply: RawReply | ChatReply) -> float:
        price = price_of(reply.model, prices)
        if price is None:
            return 0.0
        return (reply.prompt_tokens * price.prompt + reply.completion_tokens * price.completion) / 1_000_000

    return cost


def _prices(settings: Settings) -> dict[str, Price]:
    if not settings.model_price_prompt and not settings.model_price_completion:
        return {}
    return {settings.model_name: Price(settings.model_price_prompt, settings.model_price_completion)}
