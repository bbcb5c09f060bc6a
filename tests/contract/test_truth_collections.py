"""Truth, collections and scanning: one live and at most one other, on every backend, whoever asks at once."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from processors.exceptions import ConflictError, PoisonError
from schemas import Status, new_id
from sinks.truth import Truth, collections, memories, scanning
from sinks.truth.collections import CollectionRow, Source, State, Task
from tests.doubles.records import at, memory

MINUTE = timedelta(minutes=1)


def live(truth: Truth, name: str = "old") -> None:
    truth.run(lambda connection: collections.register_live(connection, name, name, name, 8, at(0)))


def order(truth: Truth, name: str, source: Source = Source.TRUTH) -> CollectionRow:
    return truth.run(
        lambda connection: collections.request_build(
            connection, name, name, name, 8, source=source, rate=None, now=at(1)
        )
    )


def get(truth: Truth, name: str) -> CollectionRow:
    with truth.reading() as connection:
        found = collections.get(connection, name)
    assert found is not None
    return found


def built(truth: Truth, name: str) -> None:
    """Ordered, built and verified, without a vector."""
    row = order(truth, name)
    assert truth.run(lambda connection: collections.claim(connection, row, "me", at(2), MINUTE))
    assert truth.run(
        lambda connection: collections.finish(
            connection, name, "me", status="verified", built_at=at(3), report={"ok": 1}
        )
    )


def states(truth: Truth) -> dict[str, State]:
    with truth.reading() as connection:
        return {row.name: row.status for row in collections.listing(connection)}


def test_the_way_there_and_back_and_there_again(truth: Truth) -> None:
    live(truth)
    built(truth, "new")
    for step, expected in (
        (collections.switch, {"old": State.PREVIOUS, "new": State.LIVE}),
        (collections.rollback, {"old": State.LIVE, "new": State.VERIFIED}),
        (collections.switch, {"old": State.PREVIOUS, "new": State.LIVE}),
    ):
        truth.run(lambda connection, step=step: step(connection, at(4)))  # type: ignore[misc]  # bound here
        assert states(truth) == expected
    truth.run(lambda connection: collections.request(connection, Task.DROP, None, at(5)))
    with truth.reading() as connection:
        assert [row.name for row in collections.existing(connection)] == ["new", "old"]
    truth.run(lambda connection: collections.dropped(connection, "old", at(6)))
    with truth.reading() as connection:
        assert [row.name for row in collections.existing(connection)] == ["new"]
    order(truth, "old")
    assert states(truth) == {"old": State.BUILDING, "new": State.LIVE}


def test_of_many_that_start_at_once_one_begins(truth: Truth) -> None:
    live(truth)
    names = [f"new-{number}" for number in range(4)]
    gate = threading.Barrier(len(names))
    refused: list[str] = []

    def start(name: str) -> None:
        gate.wait()
        try:
            order(truth, name)
        except PoisonError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(names) - 1
    assert all("another collection" in words for words in refused)
    assert sorted(state.value for state in states(truth).values()) == ["building", "live"]


def test_a_second_live_one_is_impossible(truth: Truth) -> None:
    live(truth)
    with pytest.raises(ConflictError):
        truth.run(
            lambda connection: collections.register_live(connection, "other", "other", "other", 8, at(0)), attempts=1
        )
    assert states(truth) == {"old": State.LIVE}


def test_a_task_is_held_by_one_until_its_lease_runs_out(truth: Truth) -> None:
    live(truth)
    row = order(truth, "new")

    def claim(holder: str, minute: float) -> bool:
        return truth.run(lambda connection: collections.claim(connection, row, holder, at(minute), MINUTE))

    assert claim("one", 10)
    assert not claim("two", 10.5)
    assert truth.run(lambda connection: collections.keep(connection, "new", "one", at(10.9), MINUTE, done=5))
    assert not claim("two", 11.5)
    assert claim("two", 12)
    assert not truth.run(lambda connection: collections.keep(connection, "new", "one", at(12), MINUTE, done=6))
    assert not truth.run(lambda connection: collections.finish(connection, "new", "one", built_at=at(12)))
    assert get(truth, "new").done == 5
    truth.run(lambda connection: collections.fail(connection, "new", "two", "away", again=True))
    assert (get(truth, "new").task, get(truth, "new").error) == (Task.BUILD, "away")
    assert claim("one", 12.1)


def test_a_build_is_taken_up_from_the_same_source_and_begun_anew_from_another(truth: Truth) -> None:
    live(truth)
    row = order(truth, "new")
    truth.run(lambda connection: collections.claim(connection, row, "one", at(2), MINUTE))
    truth.run(lambda connection: collections.keep(connection, "new", "one", at(2), MINUTE, reached="abc", done=7))
    truth.run(lambda connection: collections.fail(connection, "new", "one", None, again=True))
    assert (order(truth, "new").reached, get(truth, "new").done) == ("abc", 7)
    assert (order(truth, "new", Source.EVENTS).reached, get(truth, "new").done) == ("", 0)


def test_a_miss_takes_the_verification_away_and_bars_both_ways(truth: Truth) -> None:
    live(truth)
    built(truth, "new")
    truth.run(lambda connection: collections.missed(connection, "new"))
    assert (get(truth, "new").status, get(truth, "new").owes) == (State.BUILDING, 1)
    with pytest.raises(PoisonError, match="not verified"):
        truth.run(lambda connection: collections.switch(connection, at(4)))


def test_a_report_and_times_come_back_as_they_were(truth: Truth) -> None:
    live(truth)
    built(truth, "new")
    found = get(truth, "new")
    assert (found.report, found.built_at, found.started_at) == ({"ok": 1}, at(3), at(1))


def test_scanning_goes_by_id_and_leaves_nothing_out(truth: Truth) -> None:
    rows = [
        memory("any", id=new_id("scan", str(number)), value=str(number), text=f"number {number}", status=status)
        for number, status in enumerate([*Status] * 4)
    ]
    truth.run(lambda connection: memories.save(connection, [(m, m.id[:32], m.id[:32]) for m in rows]))
    found: list[str] = []
    marked: list[str] = []
    with truth.reading() as connection:
        while page := scanning.entries_after(connection, found[-1] if found else "", 7):
            found += [entry.id for entry in page]
        while marks := scanning.marks_after(connection, marked[-1] if marked else "", 7):
            marked += [mark.id for mark in marks]
        assert found == marked == sorted(row.id for row in rows)
        assert scanning.size(connection) == len(rows)
        assert scanning.owners(connection) == 1
        entry = scanning.entries(connection, [rows[0].id])[rows[0].id]
        assert (entry.text, entry.status, entry.last_stated_at) == (rows[0].text, "active", rows[0].last_stated_at)
        assert scanning.marks(connection, [rows[1].id])[rows[1].id].status == rows[1].status.value
