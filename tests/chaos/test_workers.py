"""Chaos, the workers: one of the three runs as it would by default."""

from __future__ import annotations

import pytest

from ops.chaos.house import judging
from ops.chaos.run import WORKERS
from streams.settings import Settings


def test_one_worker_judges_as_the_default_is_and_the_others_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = []
    for number in range(1, WORKERS + 2):
        with monkeypatch.context() as environment:
            environment.delenv("MEMRIVER_JUDGE_PROCESSES", raising=False)
            for name, value in judging(f"worker {number}").items():
                environment.setenv(name, value)
            beside.append(Settings(_env_file=None).judge_processes)
    default = Settings.model_fields["judge_processes"].default
    assert default > 0
    assert beside == [default, *[0] * WORKERS]
