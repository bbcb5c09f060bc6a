"""The plan of faults follows from its seed alone, and a run of two minutes has every kind of them."""

from __future__ import annotations

from ops.chaos.house import SESSION_SECONDS
from ops.chaos.schedule import FaultKind, schedule


def test_the_same_seed_is_the_same_plan() -> None:
    assert list(schedule(7, 120, 3)) == list(schedule(7, 120, 3))
    assert list(schedule(7, 120, 3)) != list(schedule(8, 120, 3))


def test_two_minutes_have_every_kind() -> None:
    for seed in range(30):
        assert {fault.kind for fault in schedule(seed, 120, 3)} == set(FaultKind)


def test_faults_come_in_order_and_hit_workers_that_exist() -> None:
    plan = list(schedule(3, 300, 3))
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert {fault.worker for fault in plan} == {0, 1, 2}


def test_a_zombie_sleeps_past_its_session() -> None:
    sleeps = [
        f.seconds for seed in range(20) for f in schedule(seed, 300, 3) if f.kind.value.startswith("worker: SIGSTOP")
    ]
    assert min(sleeps) > SESSION_SECONDS
