"""Judging in other processes: the rule channel and the noise filter are plain CPU work, and one interpreter has one core."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

from processors.exceptions import PoisonError
from processors.intake import Intake, Judged
from processors.noise import NoiseFilter
from processors.policy import PolicyGate
from processors.rules import RuleBook
from schemas import Role, Turn
from streams.collector import settle
from streams.grouping import is_little
from streams.reasons import reason_of

_SMALLEST = 3
"""Turns below which the way to another process and back costs more than judging them here."""


_SAID = (
    "记住我的储物柜号码是1234",
    "我叫李雷,住在上海,在腾讯工作",
    "我对花生过敏,不吃香菜",
    "以后都用中文回答我",
    "我喜欢爬山,不喜欢开会",
    "下周五提醒我交报告",
    "刚才说错了,当我没说",
    "Remember that my locker number is 1234",
    "My name is Ann, I live in Leeds and work at Arm.",
    "I'm allergic to peanuts and I don't eat meat.",
    "From now on answer in English.",
    "I like hiking, but I hate meetings.",
    "Remind me to call the dentist next Friday.",
    "Scratch that, I misspoke.",
)
"""Of each kind of rule a sentence, in both languages."""


def _typical() -> list[Turn]:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return [
        Turn(
            tenant="warm",
            conversation_id="warm",
            turn_id=str(number),
            user_id="warm",
            role=Role.USER,
            text=text,
            sent_at=at,
            timezone="UTC",
        )
        for number, text in enumerate(_SAID)
    ]


class JudgePool:
    """`processes` judges beside this one. A judge that dies breaks the pool, and with it the stage and the process."""

    def __init__(self, intake: Intake, make_gate: Callable[[], PolicyGate], processes: int) -> None:
        self._intake = intake
        self._processes = processes
        # Spawned, not forked: a fork copies locks of the consumer threads in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(make_gate, os.getpid()))

    async def judge(self, payloads: Sequence[bytes]) -> list[Judged | Exception]:
        """A verdict or the reason why there is none, per payload and in order."""
        if len(payloads) < _SMALLEST:
            if is_little(payloads):
                return [_outcome(item) for item in _judge_with(self._intake, payloads)]
            return [_outcome(item) for item in await asyncio.to_thread(_judge_with, self._intake, payloads)]
        loop = asyncio.get_running_loop()
        share = -(-len(payloads) // self._processes)
        parts = [payloads[start : start + share] for start in range(0, len(payloads), share)]
        judged = await asyncio.gather(*(loop.run_in_executor(self._pool, _judge_here, part) for part in parts))
        return [_outcome(item) for part in judged for item in part]

    async def warm(self) -> None:
        """Have every judge, this process included, load and compile now what most turns need.

        Patterns are compiled when they are first tried (`processors.rules.late`). Under the first turns that would be a
        second here and there; before a worker joins, its partitions are still somebody else's.
        """
        loop, payloads = asyncio.get_running_loop(), [turn.to_bytes() for turn in _typical()]
        judges = [loop.run_in_executor(self._pool, _judge_here, payloads) for _ in range(self._processes)]
        await asyncio.gather(asyncio.to_thread(_judge_with, self._intake, payloads), *judges)

    def close(self) -> None:
        """End the judges."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _outcome(item: Judged | tuple[str, str]) -> Judged | Exception:
    # As a pair on the way: not every exception survives being pickled.
    return PoisonError(*item) if isinstance(item, tuple) else item


def _judge_with(intake: Intake, payloads: Sequence[bytes]) -> list[Judged | tuple[str, str]]:
    found: list[Judged | tuple[str, str]] = []
    for payload in payloads:
        try:
            found.append(intake.judge(Turn.from_bytes(payload)))
        except (PoisonError, ValueError) as error:
            found.append(reason_of(error))
    return found


_intake: Intake | None = None


def _begin(make_gate: Callable[[], PolicyGate], parent: int) -> None:
    """Runs once in each judge: loads the rules, and watches that the parent lives."""
    global _intake
    _intake = Intake(RuleBook.load(), NoiseFilter.load(), make_gate())
    settle()
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    # A killed parent closes nothing that a pool's child would notice.
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _judge_here(payloads: Sequence[bytes]) -> list[Judged | tuple[str, str]]:
    assert _intake is not None  # the initialiser ran, or the pool is broken
    return _judge_with(_intake, payloads)
