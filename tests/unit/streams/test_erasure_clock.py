"""A database that goes away makes the erasure clock wait; it does not end the worker with everything else that it does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from processors.exceptions import TransientError
from streams.erasing import clock as module
from streams.erasing.clock import ErasureClock
from streams.metrics import Metrics


async def test_the_clock_waits_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AFTER_TROUBLE_SECONDS", 0.0)
    tried, fatal = list[str](), list[str]()
    again = asyncio.Event()

    async def away(*_args: object, **_more: object) -> int:
        tried.append("once")
        if len(tried) > 3:
            again.set()
        await asyncio.sleep(0)
        raise TransientError("database away")

    eraser: Any = SimpleNamespace(step=away, let_go=away)
    delivery: Any = SimpleNamespace(drain=away, fatal=lambda stage, _error: fatal.append(stage))
    truth: Any = None
    task = asyncio.create_task(ErasureClock(eraser, delivery, truth, Metrics()).run())
    await asyncio.wait_for(again.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fatal == []
