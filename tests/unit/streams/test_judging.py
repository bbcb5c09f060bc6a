"""Judges in processes of their own: they say what this process would say, and have compiled what most turns need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from processors.intake import Intake, Judged
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.rules import RuleBook, loading
from schemas import Turn
from streams.judging import JudgePool
from tests.doubles.compiling import compiled_from_now_on
from tests.doubles.records import turn


def make_gate() -> PolicyGate:
    return PolicyGate(PolicySettings(), b"a key for tests only")


@pytest.fixture
async def pool() -> AsyncIterator[JudgePool]:
    made = JudgePool(Intake(RuleBook.load(), NoiseFilter.load(), make_gate()), make_gate, 1)
    yield made
    made.close()


async def test_a_judge_says_what_this_process_says(pool: JudgePool) -> None:
    said = [
        turn(number, text=text) for number, text in enumerate(("记住我的储物柜号码是7", "I live in Leeds.", "ok", "嗯"))
    ]
    payloads = [item.to_bytes() for item in said] + [b"{", b""]
    beside = await pool.judge(payloads)
    here = [answer for payload in payloads for answer in await pool.judge([payload])]
    assert beside[:4] == here[:4]
    assert [len(item.verdicts) for item in beside[:4] if isinstance(item, Judged)] == [1, 1, 0, 0]
    assert [type(item) for item in beside[4:]] == [type(item) for item in here[4:]]
    assert [str(item) for item in beside[4:]] == [str(item) for item in here[4:]]
    assert all(isinstance(item, Exception) for item in beside[4:])


async def test_a_long_turn_is_judged_like_a_short_one(pool: JudgePool) -> None:
    long = turn(1, text="I live in Leeds. " + "This is about nothing at all. " * 1_000)
    [judged] = await pool.judge([long.to_bytes()])
    assert isinstance(judged, Judged)
    assert [verdict.candidate.value for verdict in judged.verdicts] == ["Leeds"]


@pytest.fixture
def nothing_compiled() -> None:
    """As in a new process: other tests have tried these patterns."""
    loading.packaged_rules.cache_clear()
    loading._compiled.cache_clear()


async def test_what_most_turns_need_is_compiled_before_the_first_one(
    nothing_compiled: None, pool: JudgePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compiled_from_now_on(monkeypatch)
    await pool.warm()
    before = len(made)
    assert before > 50
    texts = ("记住我的储物柜号码是99", "我住在杭州", "Remember that my locker is 99", "I live in York.")
    said: list[Turn] = [turn(number, text=text) for number, text in enumerate(texts)]
    for item in said:
        [judged] = await pool.judge([item.to_bytes()])
        assert isinstance(judged, Judged)
        assert judged.verdicts
    assert len(made) - before <= 3, "a second under the first turns"
