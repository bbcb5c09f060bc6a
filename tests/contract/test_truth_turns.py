"""Truth, turns: each is there once, waits in the order in which it was said, and keeps the last word about itself."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from processors.exceptions import ConflictError
from schemas import Outcome, Turn, digest
from sinks.truth import Truth, turns
from sinks.truth.turns import RECENT, Conversation, Stored
from tests.doubles.records import at, turn, turn_row


def store(truth: Truth, *said: Turn, **fields: Any) -> list[str]:
    truth.run(lambda connection: turns.insert_turns(connection, [turn_row(item, **fields) for item in said]))
    return [item.turn_key for item in said]


def outcome(truth: Truth, key: str) -> tuple[str, str | None, bool]:
    with truth.reading() as connection:
        stored = turns.known(connection, [key])[key]
        reasons = {row["turn_id"]: row["reason"] for row in turns.outcomes(connection)}
        body = turns.bodies(connection, [key])[key]
    return stored.outcome, reasons[body.turn_id], stored.pending


def conversation(name: str = "c1", **fields: Any) -> Conversation:
    said = turn(conversation_id=name)
    return Conversation(said.conversation_key, "acme", name, said.sent_at, **fields)


def test_a_turn_that_was_stored_is_known_with_what_was_judged(truth: Truth) -> None:
    said = turn(revision=2)
    store(truth, said, tokens=7, content_hash=digest("words"))
    with truth.reading() as connection:
        assert turns.known(connection, [said.turn_key, turn(2).turn_key]) == {
            said.turn_key: Stored(said.turn_key, 2, digest("words"), said.sent_at, True, "stored", 7)
        }
        assert turns.bodies(connection, [said.turn_key]) == {said.turn_key: said}


def test_a_turn_that_another_worker_stored_meanwhile_is_a_conflict(truth: Truth) -> None:
    store(truth, turn())
    with pytest.raises(ConflictError):
        store(truth, turn(2), turn())
    with truth.reading() as connection:
        assert set(turns.known(connection, [turn().turn_key, turn(2).turn_key])) == {turn().turn_key}


def test_one_turn_id_in_two_conversations_is_two_turns(truth: Truth) -> None:
    store(truth, turn(conversation_id="c1", text="one"), turn(conversation_id="c2", text="two"))
    with truth.reading() as connection:
        assert sorted(row["text"] for row in turns.status(connection, "t1")) == ["one", "two"]


def test_a_newer_revision_takes_the_place_of_the_older(truth: Truth) -> None:
    (key,) = store(truth, turn(text="I live in Leeds"), outcome=Outcome.REMEMBERED, pending=False)
    edited = turn(text="I live in Berlin", revision=1)
    truth.run(lambda connection: turns.replace_turns(connection, [turn_row(edited)]))
    with truth.reading() as connection:
        assert turns.bodies(connection, [key]) == {key: edited}
        assert turns.known(connection, [key])[key].revision == 1
    assert outcome(truth, key) == ("stored", None, True)


def test_turns_wait_in_the_order_in_which_they_were_said_by_conversation(truth: Truth) -> None:
    store(truth, *(turn(number) for number in (4, 1, 3)), turn(2, conversation_id="c2"))
    store(truth, turn(5), pending=False)
    keys = [turn().conversation_key, turn(conversation_id="c2").conversation_key, digest("unknown")]
    with truth.reading() as connection:
        waiting = turns.waiting(connection, keys)
    assert {key: [item.turn.turn_id for item in items] for key, items in waiting.items()} == {
        keys[0]: ["t1", "t3", "t4"],
        keys[1]: ["t2"],
    }
    first = waiting[keys[0]][0]
    assert (first.turn, first.tokens, first.arrived_at) == (turn(1), 3, at(1))


def test_a_batched_turn_waits_no_more_and_keeps_what_it_has_already_come_to(truth: Truth) -> None:
    fresh, remembered = store(truth, turn(1), turn(2))
    with truth.begin() as connection:
        turns.mark(connection, [remembered], Outcome.REMEMBERED)
        turns.mark_batched(connection, [fresh, remembered])
    assert outcome(truth, fresh) == ("batched", None, False)
    assert outcome(truth, remembered) == ("remembered", None, False)


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([Outcome.BATCHED, Outcome.EXTRACTED], "extracted"),
        ([Outcome.EXTRACTED, Outcome.BATCHED], "extracted"),
        ([Outcome.EXTRACTED, Outcome.REMEMBERED], "remembered"),
        ([Outcome.REMEMBERED, Outcome.BATCHED], "remembered"),
        ([Outcome.REMEMBERED, Outcome.EXTRACTED], "remembered"),
        ([Outcome.REMEMBERED, Outcome.DEAD_LETTERED], "remembered"),
        ([Outcome.EXTRACTED, Outcome.DEAD_LETTERED], "extracted"),
        ([Outcome.BATCHED, Outcome.DEAD_LETTERED], "dead_lettered"),
        ([Outcome.DEAD_LETTERED, Outcome.EXTRACTED], "dead_lettered"),
        ([Outcome.DEAD_LETTERED, Outcome.REMEMBERED], "remembered"),
    ],
)
def test_a_later_outcome_is_never_replaced_by_an_earlier_one(truth: Truth, steps: list[Outcome], last: str) -> None:
    (key,) = store(truth, turn())
    for step in steps:
        with truth.begin() as connection:
            turns.mark(connection, [key, key], step)
    assert outcome(truth, key)[0] == last


@pytest.mark.parametrize("later", [Outcome.BATCHED, Outcome.EXTRACTED, Outcome.DEAD_LETTERED, Outcome.REMEMBERED])
def test_what_its_speaker_took_back_stays_taken_back(truth: Truth, later: Outcome) -> None:
    (key,) = store(truth, turn())
    with truth.begin() as connection:
        turns.take_back(connection, key)
        turns.mark(connection, [key], later)
        turns.mark_batched(connection, [key])
    assert outcome(truth, key) == ("filtered", "retracted", False)


def test_a_deleted_turn_stays_deleted(truth: Truth) -> None:
    (key,) = store(truth, turn(deleted=True), outcome=Outcome.FILTERED, reason="deleted", pending=False)
    truth.run(lambda connection: turns.mark(connection, [key], Outcome.REMEMBERED))
    assert outcome(truth, key) == ("filtered", "deleted", False)


def test_a_turn_taken_back_while_it_waits_gives_its_tokens_back_once(truth: Truth) -> None:
    waiting, done = store(truth, turn(1), turn(2), tokens=7)
    with truth.begin() as connection:
        turns.mark_batched(connection, [done])
        assert turns.take_back(connection, waiting) == 7
        assert turns.take_back(connection, waiting) == -1
        assert turns.take_back(connection, done) == -1
        assert turns.take_back(connection, digest("unknown")) == -1
    with truth.reading() as connection:
        assert turns.waiting(connection, [turn().conversation_key]) == {}


def test_only_what_was_taken_back_is_given_back(truth: Truth) -> None:
    taken, filtered = store(truth, turn(1), turn(2))
    with truth.begin() as connection:
        turns.mark(connection, [filtered], Outcome.FILTERED, "greeting")
        turns.take_back(connection, taken)
        turns.give_back(connection, [taken, filtered], at(9))
    assert outcome(truth, taken) == ("stored", None, True)  # it has no claims: it never reached the model
    assert outcome(truth, filtered)[:2] == ("filtered", "greeting")


def test_a_note_says_why_batched_turns_go_no_further_and_touches_no_other(truth: Truth) -> None:
    batched, stored = store(truth, turn(1), turn(2))
    with truth.begin() as connection:
        turns.mark_batched(connection, [batched])
        turns.note(connection, [batched, stored], "model_off")
    assert outcome(truth, batched) == ("batched", "model_off", False)
    assert outcome(truth, stored) == ("stored", None, True)


def test_a_speakers_turns_around_one_are_nearest_first_and_nobody_elses(truth: Truth) -> None:
    store(truth, *(turn(number) for number in (1, 2, 3, 5, 6)))
    store(truth, turn(7), retracts=True)
    store(truth, turn(8, user_id="bob"), turn(9, role="assistant"), turn(10, conversation_id="c2"))
    store(truth, turn(11, tenant="other"))
    with truth.reading() as connection:
        earlier, later = turns.user_turns_around(connection, turn(4))
        few, _ = turns.user_turns_around(connection, turn(4), limit=2)
        here, _ = turns.user_turns_around(connection, turn(3))
    assert [item.turn_id for item in earlier] == ["t3", "t2", "t1"]
    assert [(item.turn_id, item.retracts) for item in later] == [("t5", False), ("t6", False), ("t7", True)]
    assert [item.turn_id for item in few] == ["t3", "t2"]
    assert [item.turn_id for item in here] == ["t2", "t1"]


def test_turns_of_the_same_instant_are_on_both_sides(truth: Truth) -> None:
    store(truth, turn(1, sent_at=at(4)), turn(2, sent_at=at(4)))
    with truth.reading() as connection:
        earlier, later = turns.user_turns_around(connection, turn(3, sent_at=at(4)))
    assert {item.turn_id for item in earlier} == {item.turn_id for item in later} == {"t1", "t2"}


def test_the_last_turns_of_a_conversation_come_oldest_first_with_the_filtered_ones(truth: Truth) -> None:
    store(truth, *(turn(number) for number in range(1, 6)))
    store(truth, turn(6), outcome=Outcome.FILTERED, reason="greeting", pending=False)
    store(truth, turn(7, conversation_id="c2"))
    with truth.reading() as connection:
        found = turns.recent(connection, turn().conversation_key, limit=3)
    assert [item.turn_id for item in found] == ["t4", "t5", "t6"]


def test_outcomes_say_what_became_of_every_turn(truth: Truth) -> None:
    store(truth, turn(2, text="你好"), outcome=Outcome.FILTERED, reason="greeting", pending=False)
    store(truth, turn(1))
    with truth.reading() as connection:
        first, second = turns.outcomes(connection)
    assert (first["turn_id"], first["outcome"], first["role"], first["sent_at"]) == ("t1", "stored", "user", at(1))
    assert (second["text"], second["outcome"], second["reason"]) == ("你好", "filtered", "greeting")
    assert (second["tenant"], second["user_id"], second["conversation_id"], second["revision"]) == (
        "acme",
        "ann",
        "c1",
        0,
    )


def test_thousands_of_keys_are_no_problem_for_one_call(truth: Truth) -> None:
    said = [turn(number) for number in range(2500)]
    keys = store(truth, *said)
    rooms = [conversation(f"c{number}", first_pending_at=at(number)) for number in range(2500)]
    with truth.begin() as connection:
        turns.save_conversations(connection, rooms)
        assert len(turns.known(connection, keys)) == 2500
        assert len(turns.bodies(connection, keys)) == 2500
        assert set(turns.lock_conversations(connection, [room.conversation_key for room in rooms])) == {
            room.conversation_key for room in rooms
        }
        assert (
            len(turns.waiting(connection, [room.conversation_key for room in rooms])[turn().conversation_key]) == 2500
        )
        turns.mark_batched(connection, keys)
        turns.note(connection, keys, "model_off")
        turns.mark(connection, keys, Outcome.EXTRACTED)
        assert {stored.outcome for stored in turns.known(connection, keys).values()} == {"extracted"}


def test_a_conversation_comes_back_whole(truth: Truth) -> None:
    row = conversation(turn_count=9, pending_count=2, pending_tokens=30, first_pending_at=at(3), ended=True)
    row.recent = tuple(digest(str(number)) for number in range(RECENT + 3))
    truth.run(lambda connection: turns.save_conversations(connection, [row]))
    with truth.begin() as connection:
        found = turns.lock_conversations(connection, [row.conversation_key, digest("unknown")])
    row.recent = row.recent[-RECENT:]
    assert found == {row.conversation_key: row}


def test_due_are_the_conversations_that_have_waited_long_enough_oldest_first(truth: Truth) -> None:
    rows = [conversation(f"c{minute}", first_pending_at=at(minute)) for minute in (5, 1, 9, 3)]
    rows += [conversation("idle", first_pending_at=None)]
    with truth.begin() as connection:
        turns.save_conversations(connection, rows)
        due = turns.lock_due(connection, at(5), 10)
        first = turns.lock_due(connection, at(5), 2)
        assert turns.oldest_unextracted(connection) == at(1)
        assert turns.lock_due(connection, at(1) - timedelta(microseconds=1), 10) == {}
    assert [row.conversation_id for row in due.values()] == ["c1", "c3", "c5"]
    assert [row.conversation_id for row in first.values()] == ["c1", "c3"]


def test_nothing_waits_in_an_empty_truth(truth: Truth) -> None:
    with truth.begin() as connection:
        assert turns.oldest_unextracted(connection) is None
        assert turns.lock_due(connection, at(0), 10) == {}
        assert turns.known(connection, []) == {}


@pytest.mark.services
def test_two_clocks_never_claim_the_same_conversation(mariadb_truth: Truth) -> None:
    rows = [conversation(f"c{number}", first_pending_at=at(number)) for number in range(40)]
    mariadb_truth.run(lambda connection: turns.save_conversations(connection, rows))
    both_hold = threading.Barrier(4, timeout=30)

    def claim(_clock: int) -> set[str]:
        with mariadb_truth.begin() as connection:
            mine = set(turns.lock_due(connection, at(100), 10))
            both_hold.wait()
        return mine

    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(claim, range(4)))
    assert sum(len(mine) for mine in claimed) == len(set().union(*claimed))
    assert set().union(*claimed) <= {row.conversation_key for row in rows}
    assert all(claimed)


@pytest.mark.services
def test_a_clock_skips_what_the_ingest_stage_holds_and_does_not_wait(mariadb_truth: Truth) -> None:
    rows = [conversation(f"c{number}", first_pending_at=at(number)) for number in range(3)]
    mariadb_truth.run(lambda connection: turns.save_conversations(connection, rows))
    with mariadb_truth.begin() as ingest:
        turns.lock_conversations(ingest, [rows[0].conversation_key])
        with mariadb_truth.begin() as clock:
            assert set(turns.lock_due(clock, at(100), 10)) == {row.conversation_key for row in rows[1:]}
    with mariadb_truth.begin() as clock:
        assert len(turns.lock_due(clock, at(100), 10)) == 3
