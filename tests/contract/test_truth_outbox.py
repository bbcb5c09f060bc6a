"""Truth, inbox and outbox: nothing is processed twice, nothing that must go out is forgotten."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from processors.exceptions import ConflictError
from schemas import new_id
from sinks.truth import Truth, deadletters, outbox
from sinks.truth.outbox import Outgoing
from tests.doubles.records import at, letter


def message(number: int, partition: int = 0) -> Outgoing:
    return Outgoing("candidates", f"key {number}", f"owner {number}", f"payload {number} 𠮷".encode(), partition)


def payloads(rows: list[Outgoing]) -> list[str]:
    return [row.key for row in rows]


def test_messages_leave_in_the_order_in_which_they_were_committed(truth: Truth) -> None:
    for first in (0, 3, 6):
        with truth.begin() as connection:
            outbox.put(connection, "ingest", [message(first), message(first + 1), message(first + 2)], at(first))
    with truth.reading() as connection:
        rows = outbox.leftover(connection, "ingest", 100)
        assert payloads(outbox.leftover(connection, "ingest", 4)) == ["key 0", "key 1", "key 2", "key 3"]
    assert payloads(rows) == [f"key {number}" for number in range(9)]
    assert len({row.id for row in rows}) == 9


def test_what_was_put_is_what_is_left(truth: Truth) -> None:
    tombstone = Outgoing("memory_updated", "m", "owner", None, 7)
    binary = Outgoing("turns", "k", "k", bytes(range(256)) * 5000, 1)
    with truth.begin() as connection:
        put = outbox.put(connection, "resolve", [tombstone, binary], at(1))
    with truth.reading() as connection:
        assert outbox.leftover(connection, "resolve", 10) == put
    assert [row.payload for row in put] == [None, binary.payload]
    assert all(row.id > 0 for row in put)


def test_leftovers_are_those_of_one_stage_and_of_its_partitions(truth: Truth) -> None:
    with truth.begin() as connection:
        outbox.put(connection, "ingest", [message(number, number % 3) for number in range(6)], at(1))
        outbox.put(connection, "extract", [message(9)], at(1))
    with truth.reading() as connection:
        assert payloads(outbox.leftover(connection, "ingest", 10, partitions={0, 2})) == [
            "key 0",
            "key 2",
            "key 3",
            "key 5",
        ]
        assert outbox.leftover(connection, "ingest", 10, partitions=set()) == []
        assert outbox.leftover(connection, "ingest", 10, partitions={9}) == []
        assert len(outbox.leftover(connection, "ingest", 10)) == 6


def test_leftovers_can_be_narrowed_to_what_is_old(truth: Truth) -> None:
    with truth.begin() as connection:
        for minute in (1, 2, 3):
            outbox.put(connection, "ingest", [message(minute)], at(minute))
    with truth.reading() as connection:
        assert payloads(outbox.leftover(connection, "ingest", 10, before=at(3))) == ["key 1", "key 2"]
        assert payloads(outbox.leftover(connection, "ingest", 10, before=at(3), partitions={0})) == ["key 1", "key 2"]
        assert outbox.oldest(connection) == at(1)
        assert outbox.size(connection) == 3


def test_what_was_published_is_gone_and_nothing_else(truth: Truth) -> None:
    with truth.begin() as connection:
        put = outbox.put(connection, "ingest", [message(number) for number in range(3)], at(1))
        outbox.done(connection, [put[0].id, put[2].id])
        outbox.done(connection, [put[0].id])
    with truth.reading() as connection:
        assert payloads(outbox.leftover(connection, "ingest", 10)) == ["key 1"]
        assert outbox.size(connection) == 1


def test_an_empty_outbox_has_no_oldest(truth: Truth) -> None:
    with truth.begin() as connection:
        assert outbox.put(connection, "ingest", [], at(1)) == []
        outbox.done(connection, [])
        assert outbox.oldest(connection) is None
        assert outbox.size(connection) == 0


def test_messages_of_a_transaction_that_failed_never_leave(truth: Truth) -> None:
    with pytest.raises(RuntimeError), truth.begin() as connection:
        outbox.put(connection, "ingest", [message(1)], at(1))
        outbox.receive(connection, "ingest", ["m1"], at(1))
        deadletters.put(connection, [letter()])
        raise RuntimeError
    with truth.reading() as connection:
        assert outbox.size(connection) == 0
        assert outbox.seen(connection, "ingest", ["m1"]) == set()
        assert deadletters.count(connection) == 0


def test_thousands_of_messages_leave_in_order(truth: Truth) -> None:
    with truth.begin() as connection:
        put = outbox.put(connection, "ingest", [message(number) for number in range(2500)], at(1))
        assert outbox.leftover(connection, "ingest", 5000) == put
        outbox.done(connection, [row.id for row in put])
        assert outbox.size(connection) == 0


def test_threads_that_put_at_once_never_share_an_id(truth: Truth) -> None:
    together = threading.Barrier(4, timeout=30)

    def put(number: int) -> list[int]:
        together.wait()
        rows = truth.run(lambda connection: outbox.put(connection, "ingest", [message(number)] * 50, at(1)))
        return [row.id for row in rows]

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(put, range(4)))
    assert all(mine == sorted(mine) for mine in ids)
    assert len({item for mine in ids for item in mine}) == 200


def test_a_message_is_received_once_by_each_stage(truth: Truth) -> None:
    with truth.begin() as connection:
        outbox.receive(connection, "resolve", ["m1", "m2"], at(1))
        outbox.receive(connection, "extract", ["m1"], at(1))
        assert outbox.seen(connection, "resolve", ["m1", "m2", "m3"]) == {"m1", "m2"}
        assert outbox.seen(connection, "extract", ["m1", "m2"]) == {"m1"}
    with pytest.raises(ConflictError), truth.begin() as connection:
        outbox.receive(connection, "resolve", ["m3", "m2"], at(2))
    with truth.reading() as connection:
        assert outbox.seen(connection, "resolve", ["m3"]) == set()


def test_ids_that_differ_by_case_are_different_messages(truth: Truth) -> None:
    with truth.begin() as connection:
        outbox.receive(connection, "resolve", ["abc"], at(1))
        outbox.receive(connection, "resolve", ["ABC"], at(1))
        assert outbox.seen(connection, "resolve", ["abc", "Abc"]) == {"abc"}


def test_the_inbox_forgets_what_no_broker_can_deliver_again(truth: Truth) -> None:
    with truth.begin() as connection:
        outbox.receive(connection, "resolve", [f"old {number}" for number in range(3)], at(1))
        outbox.receive(connection, "resolve", ["new"], at(5))
        assert outbox.forget_older_than(connection, at(5)) == 3
        assert outbox.seen(connection, "resolve", ["old 0", "new"]) == {"new"}
        assert outbox.forget_older_than(connection, at(5)) == 0


def test_thousands_of_message_ids_are_looked_up_in_one_call(truth: Truth) -> None:
    ids = [new_id(str(number)) for number in range(2500)]
    with truth.begin() as connection:
        outbox.receive(connection, "resolve", ids, at(1))
        assert outbox.seen(connection, "resolve", [*ids, "other"]) == set(ids)
