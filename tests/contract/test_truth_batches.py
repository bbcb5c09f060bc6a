"""Truth, batches: what went to the model and how often, and what still has to be asked."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from processors.exceptions import ConflictError
from schemas import Turn, digest
from sinks.truth import Truth, batches, turns
from sinks.truth.tables import model_replies
from tests.doubles.records import at, batch, turn, turn_row

HELD = [turn(1), turn(2, text="我对花生过敏 🥜")]


def store(truth: Truth, *said: Turn) -> None:
    truth.run(lambda connection: turns.insert_turns(connection, [turn_row(item) for item in said]))


def waiting_batch(truth: Truth, *said: Turn) -> str:
    made = batch(list(said))
    with truth.begin() as connection:
        batches.insert(connection, [made])
        batches.finish(connection, made.batch_id, "waiting", 0)
    return made.batch_id


def test_a_closed_batch_is_known_and_has_no_attempt_yet(truth: Truth) -> None:
    made = batch(HELD)
    truth.run(lambda connection: batches.insert(connection, [made]))
    with truth.reading() as connection:
        assert batches.existing(connection, [made.batch_id, digest("other")]) == {made.batch_id}
        assert batches.states(connection, [made.batch_id, digest("other")]) == {made.batch_id: ("closed", 0)}


def test_a_batch_is_closed_once(truth: Truth) -> None:
    made = batch(HELD)
    truth.run(lambda connection: batches.insert(connection, [made]))
    with pytest.raises(ConflictError):
        truth.run(lambda connection: batches.insert(connection, [made]), attempts=1)


def test_an_attempt_counts_when_it_begins_and_is_uncounted_when_the_provider_was_away(truth: Truth) -> None:
    made = batch(HELD)
    truth.run(lambda connection: batches.insert(connection, [made]))
    for _ in range(3):
        truth.run(lambda connection: batches.count_attempts(connection, [made.batch_id, digest("other")]))
    truth.run(lambda connection: batches.count_attempts(connection, [made.batch_id], by=-1))
    with truth.reading() as connection:
        assert batches.states(connection, [made.batch_id]) == {made.batch_id: ("closed", 2)}


def test_attempts_of_a_worker_that_died_are_counted(truth: Truth) -> None:
    made = batch(HELD)
    truth.run(lambda connection: batches.insert(connection, [made]))
    truth.run(lambda connection: batches.count_attempts(connection, [made.batch_id]))
    with pytest.raises(KeyboardInterrupt), truth.begin() as connection:
        batches.finish(connection, made.batch_id, "extracted", 3)
        raise KeyboardInterrupt
    with truth.reading() as connection:
        assert batches.states(connection, [made.batch_id])[made.batch_id] == ("closed", 1)


def test_batches_are_counted_by_where_they_stand(truth: Truth) -> None:
    made = [batch([turn(number)]) for number in range(4)]
    with truth.begin() as connection:
        batches.insert(connection, made)
        batches.finish(connection, made[0].batch_id, "extracted", 2)
        batches.finish(connection, made[1].batch_id, "empty", 0)
        batches.finish(connection, made[2].batch_id, "waiting", 0)
        assert batches.count_by_status(connection) == {"closed": 1, "extracted": 1, "empty": 1, "waiting": 1}


def test_a_waiting_batch_is_rebuilt_as_it_was_closed(truth: Truth) -> None:
    store(truth, *HELD)
    waiting_batch(truth, *HELD)
    with truth.reading() as connection:
        assert batches.rebuild(connection) == ([batch(HELD)], [])


def test_waiting_batches_come_oldest_first_and_at_most_so_many(truth: Truth) -> None:
    said = [turn(number) for number in (3, 1, 2)]
    store(truth, *said)
    for item in said:
        waiting_batch(truth, item)
    with truth.reading() as connection:
        assert [item.turns[0].turn_id for item in batches.rebuild(connection)[0]] == ["t1", "t2", "t3"]
        assert [item.turns[0].turn_id for item in batches.rebuild(connection, limit=2)[0]] == ["t1", "t2"]


def test_what_was_deleted_or_edited_meanwhile_is_not_asked_about_as_it_was(truth: Truth) -> None:
    store(truth, *HELD)
    waiting_batch(truth, *HELD)
    deleted, edited = turn(1, deleted=True, text="", revision=1), turn(2, text="edited", revision=1)
    truth.run(lambda connection: turns.replace_turns(connection, [turn_row(deleted), turn_row(edited)]))
    with truth.reading() as connection:
        ((rebuilt,), _gone) = batches.rebuild(connection)
    assert [item.text for item in rebuilt.turns] == ["edited"]


def test_a_batch_of_which_nothing_is_left_is_not_rebuilt(truth: Truth) -> None:
    store(truth, turn(1))
    gone = [waiting_batch(truth, turn(1)), waiting_batch(truth, turn(2))]
    truth.run(
        lambda connection: turns.replace_turns(connection, [turn_row(turn(1, deleted=True, text="", revision=1))])
    )
    with truth.begin() as connection:
        made, empty = batches.rebuild(connection)
        assert (made, sorted(empty)) == ([], sorted(gone))
        batches.close_empty(connection, empty)
        assert batches.rebuild(connection) == ([], [])


def test_only_waiting_batches_are_opened_again(truth: Truth) -> None:
    store(truth, *HELD)
    waiting = waiting_batch(truth, *HELD)
    done = batch([turn(9)])
    with truth.begin() as connection:
        batches.insert(connection, [done])
        batches.finish(connection, done.batch_id, "extracted", 1)
        batches.reopen(connection, [waiting, done.batch_id])
        assert batches.states(connection, [waiting])[waiting] == ("closed", 0)
        assert batches.states(connection, [done.batch_id])[done.batch_id] == ("extracted", 0)
        assert batches.rebuild(connection) == ([], [])


def test_thousands_of_batches_are_looked_up_and_opened_in_one_call(truth: Truth) -> None:
    made = [batch([turn(number)]) for number in range(2500)]
    ids = [item.batch_id for item in made]
    with truth.begin() as connection:
        batches.insert(connection, made)
        for batch_id in ids[:3]:
            batches.finish(connection, batch_id, "waiting", 0)
        assert batches.existing(connection, ids) == set(ids)
        batches.reopen(connection, ids)
        assert batches.count_by_status(connection) == {"closed": 2500}


def test_the_models_own_words_are_kept_every_time_it_was_asked(truth: Truth) -> None:
    row = {
        "batch_id": digest("b"),
        "part": 0,
        "prompt_version": "extract_v1_zh",
        "model": "m",
        "finish_reason": "length",
        "outcome": "truncated",
        "prompt_tokens": 900,
        "completion_tokens": 80,
        "cost_usd": 0.000123456789,
        "reply": '{"memories": ["𠮷' + "x" * 100_000,
        "created_at": at(1),
    }
    truth.run(lambda connection: batches.keep_replies(connection, [row, row | {"part": 1}]))
    truth.run(lambda connection: batches.keep_replies(connection, [row]))
    with truth.reading() as connection:
        query = sa.select(model_replies).order_by(model_replies.c.id)
        found = [dict(item._mapping) for item in connection.execute(query)]
    assert len({item.pop("id") for item in found}) == 3
    assert found == [row, row | {"part": 1}, row]
