"""Truth, memories: the present state, a history that is never rewritten, and questions that are asked once."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from processors.exceptions import ConflictError
from schemas import ChangeKind, Interval, Status, digest, new_id
from sinks.truth import Truth, memories
from sinks.truth.tables import decisions, reviews
from sinks.truth.tables import memories as rows_of_memories
from tests.doubles.records import at, change, claim, memory

SLOT, CELL = digest("slot"), digest("cell")


def save(truth: Truth, *states: Any) -> None:
    truth.run(lambda connection: memories.save(connection, [(state, SLOT, CELL) for state in states]))


def question(**fields: Any) -> dict[str, Any]:
    return {
        "kind": "conflict",
        "owner_key": memory().owner_key,
        "memory_id": memory().id,
        "detail": "two homes",
    } | fields


def test_a_memory_comes_back_whole_with_its_cell(truth: Truth) -> None:
    state = memory(value="上海 🏙️", intervals=(Interval(start=at(1), end=at(2)), Interval(start=at(3))), ttl_days=180)
    save(truth, state)
    with truth.reading() as connection:
        assert memories.get(connection, state.id) == state
        assert memories.fetch(connection, [state.id, new_id("other")]) == {state.id: state}
        assert memories.cell_of(connection, state.id) == (SLOT, CELL)
        assert memories.get(connection, new_id("other")) is None
        assert memories.cell_of(connection, new_id("other")) is None


def test_a_newer_state_takes_the_place_of_the_older_in_every_column(truth: Truth) -> None:
    save(truth, memory(expires_at=at(9), superseded_by=None))
    newer = memory(version=2, status="superseded", superseded_by=new_id("heir"), intervals=(), text="moved")
    save(truth, newer)
    with truth.reading() as connection:
        (row,) = connection.execute(sa.select(rows_of_memories))
        assert memories.listing(connection) == [newer]
    assert (row.status, row.version, row.text, row.superseded_by) == ("superseded", 2, "moved", newer.superseded_by)
    assert (row.expires_at, row.valid_from, row.valid_to) == (None, None, None)


def test_the_columns_say_what_the_memory_says(truth: Truth) -> None:
    state = memory(intervals=(Interval(start=at(1), end=at(2)),), expires_at=at(9), evidence_count=4, confidence=0.9625)
    save(truth, state)
    with truth.reading() as connection:
        (row,) = connection.execute(sa.select(rows_of_memories))
    assert (row.valid_from, row.valid_to, row.expires_at) == (at(1), at(2), at(9))
    assert (row.confidence, row.evidence_count, row.owner_key) == (0.9625, 4, state.owner_key)
    assert (row.owner_kind, row.type, row.category, row.sensitivity) == ("user", "semantic", "fact", "personal")


def test_a_listing_is_narrowed_by_status_and_bounded(truth: Truth) -> None:
    save(truth, *(memory(str(number), first_stated_at=at(number)) for number in range(3)))
    save(truth, memory("gone", status="deleted"))
    with truth.reading() as connection:
        assert [item.first_stated_at for item in memories.listing(connection, status=Status.ACTIVE)] == [
            at(0),
            at(1),
            at(2),
        ]
        assert len(memories.listing(connection, limit=2)) == 2
        assert memories.count_by_status(connection) == {"active": 3, "deleted": 1}


def test_what_is_over_is_found_longest_over_first(truth: Truth) -> None:
    save(truth, *(memory(str(minute), expires_at=at(minute)) for minute in (5, 3, 9)))
    save(truth, memory("for ever"), memory("gone", status="expired", expires_at=at(1)))
    with truth.reading() as connection:
        assert [item.expires_at for item in memories.expired(connection, at(5), 10)] == [at(3), at(5)]
        assert [item.expires_at for item in memories.expired(connection, at(5), 1)] == [at(3)]


def test_the_history_has_every_version_oldest_first(truth: Truth) -> None:
    first, second, third = memory(), memory(version=2, text="two"), memory(version=3, text="three")
    with truth.begin() as connection:
        memories.append_versions(connection, [change(third, ChangeKind.DELETED, "later"), change(first)], at(5))
        memories.append_versions(connection, [change(second, ChangeKind.UPDATED, "c" * 300)], at(6))
        memories.append_versions(connection, [change(memory("other"))], at(6))
    with truth.reading() as connection:
        rows = memories.history(connection, first.id)
        ids = memories.version_ids(connection)
    assert [row["memory"] for row in rows] == [first, second, third]
    assert [row["change"] for row in rows] == ["created", "updated", "deleted"]
    assert [row["recorded_at"] for row in rows] == [at(5), at(6), at(5)]
    assert [len(row["cause"]) for row in rows] == [4, 128, 5]
    assert ids == {f"{first.id}:{number}" for number in (1, 2, 3)} | {f"{memory('other').id}:1"}


def test_a_version_that_exists_is_never_rewritten(truth: Truth) -> None:
    truth.run(lambda connection: memories.append_versions(connection, [change(memory())], at(1)))
    rewritten = [change(memory(version=2)), change(memory(text="another past"))]
    with pytest.raises(ConflictError):
        truth.run(lambda connection: memories.append_versions(connection, rewritten, at(2)), attempts=1)
    with truth.reading() as connection:
        assert [row["memory"] for row in memories.history(connection, memory().id)] == [memory()]


def test_thousands_of_memories_and_versions_go_through_one_call(truth: Truth) -> None:
    many = [memory(str(number)) for number in range(2500)]
    save(truth, *many)
    truth.run(lambda connection: memories.append_versions(connection, [change(item) for item in many], at(1)))
    with truth.reading() as connection:
        assert len(memories.fetch(connection, [item.id for item in many])) == 2500
        assert len(memories.version_ids(connection)) == 2500


def test_the_same_question_is_in_the_queue_once(truth: Truth) -> None:
    for minute in (1, 2):
        with truth.begin() as connection:
            memories.open_reviews(connection, [question(), question(detail="worded otherwise")], at(minute))
    with truth.reading() as connection:
        (row,) = memories.reviews_open(connection)
    assert (row["opened_at"], row["status"], row["kind"], row["memory_id"]) == (at(1), "open", "conflict", memory().id)


def test_a_question_that_was_answered_is_not_asked_again(truth: Truth) -> None:
    with truth.begin() as connection:
        memories.open_reviews(connection, [question()], at(1))
        connection.execute(sa.update(reviews).values(status="approved"))
        memories.open_reviews(connection, [question()], at(2))
        assert memories.reviews_open(connection) == []


def test_different_questions_about_one_memory_are_all_asked_oldest_first(truth: Truth) -> None:
    asked = [
        question(),
        question(kind="potential"),
        question(other_memory_id=new_id("other")),
        question(candidate_id=new_id("claim")),
        question(memory_id=None, candidate_id=new_id("claim"), body='{"k": "𠮷"}'),
    ]
    with truth.begin() as connection:
        for minute, row in reversed(list(enumerate(asked))):
            memories.open_reviews(connection, [row], at(minute))
    with truth.reading() as connection:
        rows = memories.reviews_open(connection)
        assert len(memories.reviews_open(connection, limit=2)) == 2
    assert [row["opened_at"] for row in rows] == [at(minute) for minute in range(5)]
    assert rows[4]["body"] == '{"k": "𠮷"}'


def test_every_verdict_is_recorded_once_without_what_was_said(truth: Truth) -> None:
    secret = claim(1, value="my diary", text="my diary", decision="refuse", decision_reasons=("secret", "x" * 600))
    with truth.begin() as connection:
        memories.record_decisions(connection, "ingest", [secret, secret, claim(2)], at(1))
        memories.record_decisions(connection, "ingest", [secret], at(2))
        memories.record_decisions(connection, "ingest", [], at(2))
    with truth.reading() as connection:
        rows = {row.candidate_id: row for row in connection.execute(sa.select(decisions))}
    assert len(rows) == 2
    row = rows[secret.candidate_id]
    assert (row.decision, row.stage, row.channel, row.attribute) == ("refuse", "ingest", "rule", "residence")
    assert row.reasons.startswith("secret x")
    assert len(row.reasons) == 512
    assert "diary" not in str(row)
