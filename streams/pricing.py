"""Streams, model side: what the calls cost, and a budget that stops them (SPEC G6, FIELD_REPORTS 47)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from processors.exceptions import Outage, TransientError
from processors.ports import ChatReply


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens, in whatever currency the table is kept in."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True)
class Spending:
    """What has been spent so far; `cost` counts only models with a price."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def with_reply(self, reply: ChatReply, prices: Mapping[str, Price]) -> Spending:
        """The sum after one more reply. The price is looked up by the longest prefix of the model's name."""
        price = price_of(reply.model, prices)
        cost = (
            0.0
            if price is None
            else (reply.prompt_tokens * price.prompt + reply.completion_tokens * price.completion) / 1_000_000
        )
        return Spending(
            self.calls + 1,
            self.prompt_tokens + reply.prompt_tokens,
            self.completion_tokens + reply.completion_tokens,
            self.cost + cost,
        )


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """The entry whose key is the longest prefix of the name: providers answer with dated names (`…-2025-08-07`)."""
    fitting = [name for name in prices if model.startswith(name)]
    return prices[max(fitting, key=len)] if fitting else None


def estimate_tokens(text: str) -> int:
    """Tokens of a text, roughly and rather too many: one per CJK character, one per three of the others."""
    wide = sum(1 for character in text if ord(character) >= 0x2E80)
    return wide + (len(text) - wide + 2) // 3


class BudgetExhausted(TransientError):
    """The token budget is used up; `retry_after` is when enough of it comes back."""


class TokenBudget(Protocol):
    """A hook around each call."""

    def admit(self, tokens: int) -> None:
        """Before a call that will take about this many tokens.

        Raises:
            BudgetExhausted: not now; the batch waits.
        """

    def spend(self, tokens: int) -> None:
        """After a call that took this many."""


class RollingBudget:
    """At most `limit` tokens within any `window` seconds, for one process. `clock` is monotonic seconds."""

    def __init__(self, limit: int, window: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._window = window
        self._clock = clock
        self._spent: deque[tuple[float, int]] = deque()
        self._total = 0

    def admit(self, tokens: int) -> None:
        """See `TokenBudget`. A call larger than the whole budget passes when nothing was spent, or it never would."""
        self._drop_old()
        if self._total and self._total + tokens > self._limit:
            raise BudgetExhausted(
                "the token budget is used up", retry_after=self._wait_for(tokens), part="model", outage=Outage.LIMITING
            )

    def spend(self, tokens: int) -> None:
        """See `TokenBudget`."""
        self._spent.append((self._clock(), tokens))
        self._total += tokens

    def _drop_old(self) -> None:
        edge = self._clock() - self._window
        while self._spent and self._spent[0][0] <= edge:
            self._total -= self._spent.popleft()[1]

    def _wait_for(self, tokens: int) -> float:
        left = self._total
        for at, amount in self._spent:
            left -= amount
            if left + tokens <= self._limit:
                return max(0.0, at + self._window - self._clock())
        return self._window
