"""Chaos, the verdict on stops: one that had to be forced is a violation, unless a server was away at that time."""

from __future__ import annotations

import pytest

from ops.chaos.house import FORCED
from ops.chaos.run import Done, forced
from ops.chaos.schedule import Fault, FaultKind

KILLED = f"{FORCED} within 30 s and was killed"


def done(kind: FaultKind, began: float, ended: float, outcome: str = "over") -> Done:
    return Done(began, ended, Fault(began, kind, ended - began, 0), outcome)


STOP = done(FaultKind.TERM, 10.0, 40.0, KILLED)


@pytest.mark.parametrize(
    "beside",
    [
        [],
        [done(FaultKind.ZOMBIE, 5.0, 15.0), done(FaultKind.KILL, 12.0, 12.1)],
        [done(FaultKind.DATABASE_FREEZE, 1.0, 9.9), done(FaultKind.BROKER_STOP, 40.1, 44.0)],
    ],
    ids=["alone", "beside other workers", "before and after servers were away"],
)
def test_a_forced_stop_while_every_server_was_there_is_a_violation(beside: list[Done]) -> None:
    [wrong] = forced([STOP, *beside], [])
    assert wrong == f"10.0–40.0 {FaultKind.TERM.value}: {KILLED}"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in FaultKind if kind.value.startswith(("broker", "database", "vector", "model"))],
)
def test_a_server_that_was_away_meanwhile_explains_it(kind: FaultKind) -> None:
    assert forced([done(kind, 39.0, 45.0), STOP], []) == []
    assert forced([done(kind, 2.0, 10.0), STOP], []) == []


def test_a_worker_that_leaves_again_is_asked_to_stop_too() -> None:
    assert len(forced([done(FaultKind.JOIN, 10.0, 45.0, KILLED)], [])) == 1


def test_when_all_is_over_nothing_explains_it() -> None:
    beside = [done(FaultKind.DATABASE_FREEZE, 1.0, 9.9)]
    assert forced(beside, ["stopped after 0.4 s, code 0", KILLED, "was not running"]) == [f"after the faults: {KILLED}"]


def test_a_stop_that_was_only_late_is_none() -> None:
    assert forced([done(FaultKind.TERM, 1.0, 15.0, "stopped after 14.0 s, code 0")], []) == []
