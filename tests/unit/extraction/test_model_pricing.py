"""Tests, model side: what calls cost, when the budget stops them, and how long a provider wants us to wait."""

from __future__ import annotations

import pytest

from processors.ports import ChatReply
from sinks.retry_after import retry_after
from streams.pricing import BudgetExhausted, Price, RollingBudget, Spending, estimate_tokens, price_of

PRICES = {"small": Price(1.0, 2.0), "small-pro": Price(10.0, 20.0)}


def test_the_longest_matching_name_gives_the_price() -> None:
    assert price_of("small-pro-2026-01-01", PRICES) == Price(10.0, 20.0)
    assert price_of("small-2026-01-01", PRICES) == Price(1.0, 2.0)
    assert price_of("unknown", PRICES) is None


def test_spending_adds_up_and_an_unpriced_model_costs_tokens_only() -> None:
    spent = Spending().with_reply(ChatReply("", "stop", "small", 1_000_000, 500_000), PRICES)
    spent = spent.with_reply(ChatReply("", "stop", "unknown", 10, 10), PRICES)
    assert spent == Spending(2, 1_000_010, 500_010, 2.0)


def test_a_chinese_character_is_a_token_and_three_letters_are_one() -> None:
    assert estimate_tokens("我住在成都") == 5
    assert estimate_tokens("abcdef") == 2
    assert estimate_tokens("") == 0


def test_the_budget_rolls() -> None:
    now = [0.0]
    budget = RollingBudget(100, 60.0, lambda: now[0])
    budget.admit(60)
    budget.spend(60)
    now[0] = 10.0
    budget.spend(30)
    with pytest.raises(BudgetExhausted) as caught:
        budget.admit(50)
    assert caught.value.retry_after == 50.0
    now[0] = 60.0
    budget.admit(50)


def test_a_call_larger_than_the_budget_passes_alone_so_that_it_passes_at_all() -> None:
    budget = RollingBudget(100, 60.0, lambda: 0.0)
    budget.admit(500)
    budget.spend(500)
    with pytest.raises(BudgetExhausted):
        budget.admit(1)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Wed, 04 Mar 2026 02:31:00 GMT", "date": "Wed, 04 Mar 2026 02:30:00 GMT"}, 60.0),
        ({"retry-after": "Wed, 04 Mar 2026 02:29:00 GMT", "date": "Wed, 04 Mar 2026 02:30:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 04 Mar 2026 02:31:00 GMT"}, None),
        ({"retry-after": "soon", "date": "Wed, 04 Mar 2026 02:30:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
