"""Client tests: whatever is repeated, late or out of order, a replica ends with the highest version of each memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from memriver_client.model import Memory
from memriver_client.owners import Owner
from memriver_client.replica import Outcome, Place, ReplicaState, Scope
from memriver_client.replica.sequences import Sequences

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
ANN = Owner("user", "ann")


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def memory(name: str = "m", version: int = 1, **changed: Any) -> Memory:
    data = {
        "id": name,
        "version": version,
        "tenant": "acme",
        "owner_kind": "user",
        "owner": "ann",
        "namespace": "user/ann/profile",
        "status": "active",
        "text": f"{name} says {version}",
        "value": str(version),
        **changed,
    }
    return Memory.from_dict(data)


def held(state: ReplicaState) -> dict[str, tuple[int, str]]:
    return {item.id: (item.version, item.text) for item in state.held()}


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Memory], list[Memory]]:
    """All versions of some memories, some of them deleted; and the same in any order, any of them again and again."""
    versions = []
    for name in ("a", "b", "c"):
        for version in range(1, draw(st.integers(1, 5)) + 1):
            status = draw(st.sampled_from(["active", "superseded", "deleted"]))
            versions.append(memory(name, version, status=status))
    again = draw(st.lists(st.sampled_from(versions), max_size=12))
    return versions, draw(st.permutations(versions + again))


@given(deliveries())
def test_any_order_and_repetition_ends_with_the_highest_version(case: tuple[list[Memory], list[Memory]]) -> None:
    versions, delivered = case
    state = ReplicaState(Scope("acme"))

    outcomes = [state.apply(item, at(item.version), Place(0, n)).outcome for n, item in enumerate(delivered)]

    last = {item.id: item for item in versions}
    assert held(state) == {n: (m.version, m.text) for n, m in last.items() if m.status != "deleted"}
    assert Outcome.CONFLICT not in outcomes


@given(
    st.permutations([*(["a"] * 3), *(["b"] * 3), *(["c"] * 2)]),
    st.lists(st.integers(0, 7), max_size=5),
)
def test_every_rival_content_of_a_version_is_reported_once_and_never_applied(
    order: list[str], again: list[int]
) -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory("m", 2, text="first"), at(0), Place(0, 0))
    reported = []

    for n, text in enumerate([*order, *(order[i] for i in again)]):
        rival = memory("m", 2, text=text)
        if state.apply(rival, at(n), Place(0, n + 1)).outcome is Outcome.CONFLICT and state.report_once(rival):
            reported.append(text)

    assert sorted(reported) == ["a", "b", "c"]
    assert held(state) == {"m": (2, "first")}


class CrashingProducer(RuleBasedStateMachine):
    """A log as the service writes it: in order, with tombstones, repeated from the last mark after a crash; read over again."""

    STATES_VERSIONS = False
    """Whether tombstones name the version that they end, as a newer service's do."""

    def __init__(self) -> None:
        super().__init__()
        self.truth: dict[str, Memory] = {}
        self.log: list[tuple[str, Memory | int | None, datetime]] = []
        self.unmarked: list[tuple[str, Memory | int | None, datetime]] = []
        self.state = ReplicaState(Scope("acme"))
        self.read = 0
        self.clock = 0

    def _now(self) -> datetime:
        self.clock += 1
        return at(self.clock)

    def _repeat(self) -> None:
        """What a crash left unmarked is published again, all of it, before anything new."""
        now = self._now()
        self.log += [(name, item, when if isinstance(item, Memory) else now) for name, item, when in self.unmarked]
        self.unmarked = []

    @rule(name=st.sampled_from("abc"), status=st.sampled_from(["active", "superseded", "deleted", "deleted"]))
    def change(self, name: str, status: str) -> None:
        before = self.truth.get(name)
        self.truth[name] = now = memory(name, before.version + 1 if before else 1, status=status)
        written: list[tuple[str, Memory | int | None, datetime]] = [(name, now, self._now())]
        if status == "deleted":
            written.append((name, now.version if self.STATES_VERSIONS else None, self._now()))
        self.log += written
        self.unmarked += written

    @rule()
    def crash(self) -> None:
        self._repeat()

    @rule()
    def mark(self) -> None:
        self.unmarked = []

    @rule(name=st.sampled_from("abc"))
    def truth_is_read_beside_the_log(self, name: str) -> None:
        if name in self.truth and self.truth[name].status != "deleted":
            self.state.apply(self.truth[name], self._now())

    @rule(back=st.integers(0, 30))
    def read_again_and_on(self, back: int) -> None:
        for offset in range(max(0, self.read - back), len(self.log)):
            name, item, when = self.log[offset]
            if isinstance(item, Memory):
                self.state.apply(item, when, Place(0, offset))
            else:
                self.state.bury(name, when, Place(0, offset), item)
        self.read = len(self.log)

    @rule()
    def a_fresh_replica_reads_what_compaction_left(self) -> None:
        last = {name: offset for offset, (name, _item, _when) in enumerate(self.log)}
        fresh = ReplicaState(Scope("acme"))
        for offset in sorted(last.values()):
            name, item, when = self.log[offset]
            if isinstance(item, Memory):
                fresh.apply(item, when, Place(0, offset))
            else:
                fresh.bury(name, when, Place(0, offset), item)
        if not self.unmarked or self.log[-len(self.unmarked) :] == self.unmarked:
            assert held(fresh) == self._true()

    @invariant()
    def what_was_read_to_its_end_is_truth(self) -> None:
        if self.read == len(self.log):
            assert held(self.state) == self._true()

    def _true(self) -> dict[str, tuple[int, str]]:
        return {n: (m.version, m.text) for n, m in self.truth.items() if m.status != "deleted"}


TestCrashingProducer = CrashingProducer.TestCase
TestCrashingProducer.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


class NewerProducer(CrashingProducer):
    """The same with tombstones that name a version."""

    STATES_VERSIONS = True


TestNewerProducer = NewerProducer.TestCase
TestNewerProducer.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


def test_a_tombstone_that_names_a_version_leaves_nothing_to_doubt() -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory(version=4), at(10))

    assert state.bury("m", at(11), Place(0, 2), 2).outcome is Outcome.LATE
    assert held(state) == {"m": (4, "m says 4")}
    assert state.bury("m", at(3), Place(1, 0), 5).outcome is Outcome.REMOVED
    assert state.apply(memory(version=5), at(12), Place(0, 3)).outcome is Outcome.LATE
    assert state.apply(memory(version=6), at(2), Place(0, 4)).outcome is Outcome.APPLIED


def test_a_memory_that_was_never_heard_of_stays_gone_up_to_the_version_of_its_tombstone() -> None:
    state = ReplicaState(Scope("acme"))

    assert state.bury("m", at(5), Place(0, 0), 3).outcome is Outcome.REMOVED
    assert state.apply(memory(version=3), at(9), Place(0, 1)).outcome is Outcome.LATE
    assert state.apply(memory(version=4), at(1), Place(0, 2)).outcome is Outcome.APPLIED


def test_nothing_late_comes_back_after_a_tombstone_whose_deletion_was_missed() -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory(version=1), at(1), Place(0, 0))

    assert state.bury("m", at(5), Place(0, 3)).outcome is Outcome.REMOVED
    assert state.apply(memory(version=2), at(2), Place(0, 4)).outcome is Outcome.LATE
    assert state.apply(memory(version=3, status="deleted"), at(4), Place(0, 5)).outcome is Outcome.REMOVED
    assert held(state) == {}
    assert state.apply(memory(version=4), at(9), Place(0, 6)).outcome is Outcome.APPLIED


def test_a_tombstone_for_an_unknown_memory_is_remembered_until_it_is_stated_anew() -> None:
    state = ReplicaState(Scope("acme"))
    state.bury("m", at(5), Place(0, 0))

    assert state.apply(memory(version=2), at(4), Place(0, 1)).outcome is Outcome.LATE
    assert state.apply(memory(version=4), at(6), Place(0, 2)).outcome is Outcome.APPLIED


def test_a_tombstone_ends_the_version_whose_deletion_it_follows_and_no_later_one() -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory(version=4), at(10))

    assert state.apply(memory(version=3, status="deleted"), at(3), Place(0, 0)).outcome is Outcome.LATE
    assert state.bury("m", at(4), Place(0, 1)).outcome is Outcome.LATE
    assert held(state) == {"m": (4, "m says 4")}


def test_a_tombstone_that_may_mean_an_older_version_asks_for_truth_instead_of_guessing() -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory(version=4), at(10))

    assert state.apply(memory(version=2), at(2), Place(0, 0)).outcome is Outcome.LATE
    assert state.bury("m", at(4), Place(0, 2)).outcome is Outcome.DOUBTFUL
    assert held(state) == {"m": (4, "m says 4")}


def test_deleted_and_active_under_one_version_is_a_conflict() -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory(version=2, status="deleted"), at(1), Place(0, 0))

    assert state.apply(memory(version=2), at(1), Place(0, 1)).outcome is Outcome.CONFLICT
    assert state.apply(memory(version=2, status="deleted", text=""), at(1), Place(0, 2)).outcome is Outcome.DUPLICATE
    assert held(state) == {}


def test_what_moves_out_of_the_namespaces_leaves_and_an_older_version_does_not_bring_it_back() -> None:
    state = ReplicaState(Scope("acme", namespaces=["user/ann/profile"]))
    state.apply(memory(version=1), at(1), Place(0, 0))

    step = state.apply(memory(version=3, namespace="user/ann/profile2"), at(3), Place(0, 1))

    assert (step.outcome, step.before and step.before.version) == (Outcome.REMOVED, 1)
    assert state.apply(memory(version=2), at(2), Place(0, 2)).outcome is Outcome.LATE
    assert state.apply(memory(version=4), at(4), Place(0, 3)).outcome is Outcome.APPLIED


@pytest.mark.parametrize("other", [{"tenant": "other"}, {"owner": "bob"}, {"owner_kind": "org"}])
def test_nobody_elses_memory_is_held(other: dict[str, str]) -> None:
    state = ReplicaState(Scope("acme", owners=["ann"]))

    assert state.apply(memory(**other), at(1), Place(0, 0)).outcome is Outcome.OUTSIDE
    assert state.entries == {}


@pytest.mark.parametrize("missing", ["tenant", "owner", "owner_kind", "namespace", "status", "id", "version"])
def test_a_memory_that_does_not_say_whose_it_is_is_refused(missing: str) -> None:
    raw = {key: value for key, value in memory().raw.items() if key != missing}
    with pytest.raises(ValueError, match=missing):
        Memory.from_dict(raw)


@pytest.mark.parametrize(
    "choice",
    [
        {"tenant": ""},
        {"owners": []},
        {"owners": [""]},
        {"owners": "ann"},
        {"namespaces": []},
        {"namespaces": ["/"]},
        {"namespaces": "user/ann"},
    ],
)
def test_an_empty_choice_is_refused_and_never_means_all(choice: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Scope(**{"tenant": "acme", **choice})


def test_a_sweep_removes_what_the_log_no_longer_has_and_keeps_what_came_later_or_from_elsewhere() -> None:
    state = ReplicaState(Scope("acme"))
    state.apply(memory("gone"), at(1), Place(0, 1))
    state.apply(memory("seen"), at(1), Place(0, 2))
    state.apply(memory("later"), at(1), Place(0, 9))
    state.apply(memory("other"), at(1), Place(1, 1))
    state.apply(memory("asked"), at(1))

    steps = state.sweep(0, 5, {"seen"}, at(20))

    assert [step.memory_id for step in steps] == ["gone"]
    assert set(held(state)) == {"seen", "later", "other", "asked"}
    # A higher version was only compacted into what has not been read yet.
    assert state.apply(memory("gone", 2), at(2), Place(0, 6)).outcome is Outcome.APPLIED


def test_a_memory_read_over_http_is_the_same_as_its_event() -> None:
    times = {
        "intervals": [{"start": "2026-03-01T09:00:00Z", "end": None}],
        "expires_at": "2026-04-01T00:00:00Z",
        "source_kind": "user_statement",
        "cardinality": "single",
    }
    event = memory(**times)
    view = {key: value for key, value in event.raw.items() if key not in (*times, "tenant")} | {
        "valid_from": "2026-03-01T09:00:00+00:00",
        "valid_to": "2026-04-01T00:00:00+00:00",
        "expires_at": "2026-04-01T00:00:00+00:00",
        "source": "user_statement",
    }
    state = ReplicaState(Scope("acme"))
    state.apply(Memory.from_view(view, "acme"), at(5))

    assert state.apply(event, at(1), Place(0, 0)).outcome is Outcome.DUPLICATE


def test_what_a_person_said_is_not_in_the_representation() -> None:
    assert "says" not in repr(memory(evidence=[{"turn_id": "t", "quote": "he says"}]))


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8), max_size=6))
def test_holes_close_when_all_numbers_have_come_in_any_order(order: list[int], again: list[int]) -> None:
    sequences = Sequences()
    for now, number in enumerate([*order, *again]):
        sequences.observe(ANN, number, float(now))
    assert sequences.missing(100.0) == {}
    assert sequences.last(ANN) == 8


def test_a_hole_counts_only_in_the_tail_and_after_its_grace() -> None:
    sequences = Sequences()
    sequences.catch_up(ANN, 3)
    sequences.catch_up(ANN, 10)
    assert sequences.missing(100.0) == {}

    sequences.observe(ANN, 13, 50.0)
    assert sequences.missing(49.0) == {}
    assert sequences.missing(50.0) == {ANN: 12}

    sequences.observe(ANN, 12, 51.0)
    assert sequences.missing(60.0) == {ANN: 11}
    sequences.settle(ANN, 11)
    assert (sequences.missing(60.0), sequences.open) == ({}, 0)


def test_a_tombstone_met_again_while_reading_back_does_not_touch_what_came_after_it() -> None:
    state = ReplicaState(Scope("acme"))
    state.bury("m", at(2), Place(0, 1))
    state.apply(memory(version=4), at(3), Place(0, 2))

    assert state.bury("m", at(2), Place(0, 1)).outcome is Outcome.LATE
    assert held(state) == {"m": (4, "m says 4")}
