"""Truth, dead letters: one letter however often its message fails, and everything that people did about it on record."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from schemas import DeadLetter, new_id
from sinks.truth import Truth, deadletters
from sinks.truth.deadletters import LetterFilter, LetterStatus, Redriven, letter_id
from tests.doubles.records import at, letter

RAW = letter().raw_bytes


@pytest.fixture
def put(truth: Truth) -> Callable[..., list[DeadLetter]]:
    """Write letters in one transaction."""
    return lambda *letters: truth.run(lambda connection: deadletters.put(connection, letters))


def row_of(truth: Truth, dead_letter_id: str | None = None) -> dict[str, Any]:
    with truth.reading() as connection:
        row = deadletters.get(connection, dead_letter_id or letter().dead_letter_id)
    assert row is not None
    return row


def happened(truth: Truth, dead_letter_id: str | None = None) -> list[tuple[str, int, str, str]]:
    """Action, attempt, actor and note of every entry."""
    with truth.reading() as connection:
        entries = deadletters.log(connection, dead_letter_id or letter().dead_letter_id)
    return [(entry["action"], entry["attempt"], entry["actor"], entry["note"]) for entry in entries]


def redrive(truth: Truth, raw: bytes = RAW, *, mended: bool = False, by: str = "eve") -> int | None:
    return truth.run(
        lambda connection: deadletters.redrive(
            connection, letter().dead_letter_id, raw, mended=mended, by=by, now=at(5)
        )
    )


def again(attempt: int = 2, raw: bytes = RAW, **fields: Any) -> DeadLetter:
    """The same letter, failed at a later attempt and another place."""
    given = {"attempts": attempt, "where": f"turns:0:{attempt}00", "failed_at": at(attempt * 10)}
    return letter().model_copy(update=given | {"raw": base64.b64encode(raw).decode()} | fields)


def resolve(truth: Truth, attempt: int = 2, raw: bytes = RAW) -> None:
    item = Redriven(letter().dead_letter_id, attempt)
    truth.run(lambda connection: deadletters.resolve(connection, "ingest", [(item, raw)], at(30)))


def test_a_dead_letter_keeps_the_bytes_that_could_not_be_read(truth: Truth, put: Callable[..., Any]) -> None:
    sent = letter(key="k" * 100, where="t:" + "9" * 600, topic="p" * 249, detail="第 𠮷 行")
    put(sent)
    row = row_of(truth, sent.dead_letter_id)
    assert (row["raw"], row["detail"], row["attempts"]) == (b"\xff\x00 raw", "第 𠮷 行", 1)
    assert (row["status"], row["mended"], row["sent_at"]) == ("waiting", None, None)
    assert (len(row["message_key"]), len(row["place"]), len(row["topic"])) == (64, 512, 249)
    with truth.reading() as connection:
        assert deadletters.get(connection, new_id("other")) is None


def test_a_redelivered_dead_letter_is_there_once_and_says_what_it_said(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter(), letter())
    put(letter(detail="again", failed_at=at(9)), letter("2"))
    assert row_of(truth)["detail"] == letter().detail
    assert happened(truth) == [("failed", 1, letter().stage, letter().reason)]
    with truth.reading() as connection:
        assert deadletters.count(connection) == 2


@pytest.mark.parametrize("final", ["resolved", "dropped"])
def test_a_letter_that_is_done_with_stays_so_when_its_message_comes_again(
    truth: Truth, put: Callable[..., Any], final: str
) -> None:
    """Scenario: the whole topic is read again from offset 0. We expect nothing to wait for a person twice."""
    put(letter())
    if final == "resolved":
        redrive(truth)
        resolve(truth)
    else:
        truth.run(
            lambda connection: deadletters.drop(
                connection, [letter().dead_letter_id], why="a test", by="eve", now=at(6)
            )
        )
    put(letter())
    put(again())
    assert row_of(truth)["status"] == final
    with truth.reading() as connection:
        assert deadletters.count(connection) == 0


def test_a_redriven_letter_that_fails_again_is_the_same_letter_with_one_attempt_more(
    truth: Truth, put: Callable[..., Any]
) -> None:
    put(letter())
    assert redrive(truth) == 2
    [filed] = put(again(reason="invalid_field"))
    row = row_of(truth)
    assert (filed.dead_letter_id, filed.attempts) == (letter().dead_letter_id, 2)
    assert (row["status"], row["attempts"], row["reason"], row["place"]) == (
        "waiting",
        2,
        "invalid_field",
        "turns:0:200",
    )
    assert (row["first_failed_at"], row["failed_at"]) == (letter().failed_at, at(20))
    with truth.reading() as connection:
        assert deadletters.count(connection) == 1
    assert [entry[:3] for entry in happened(truth)] == [
        ("failed", 1, letter().stage),
        ("redriven", 2, "eve"),
        ("failed", 2, letter().stage),
    ]


def test_the_third_attempt_is_numbered_three(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter())
    for attempt in (2, 3):
        assert redrive(truth) == attempt
        put(again(attempt))
    assert row_of(truth)["attempts"] == 3


def test_a_failure_that_is_delivered_twice_counts_once(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter())
    redrive(truth)
    for _delivery in range(2):
        put(again())
    assert (row_of(truth)["attempts"], len(happened(truth))) == (2, 3)


def test_a_second_copy_of_a_redriven_message_is_no_letter_of_its_own(truth: Truth, put: Callable[..., Any]) -> None:
    """Scenario: a command died before it knew that the broker had the message, and was given again."""
    put(letter())
    redrive(truth)
    assert redrive(truth) == 2, "not confirmed yet: taken once more"
    put(again())
    put(again(where="turns:0:201"))
    with truth.reading() as connection:
        assert deadletters.count(connection) == 1
    assert row_of(truth)["attempts"] == 2


def test_a_letter_is_taken_once_however_many_ask(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter())
    attempt = redrive(truth)
    assert attempt is not None
    item = Redriven(letter().dead_letter_id, attempt)
    truth.run(lambda connection: deadletters.sent(connection, [item], at(6)))
    assert redrive(truth, by="mallory") is None
    resolve(truth)
    assert redrive(truth, by="mallory") is None
    assert [entry[2] for entry in happened(truth)] == [letter().stage, "eve", "ingest"]


def test_what_was_taken_and_not_sent_can_only_be_taken_again_with_the_same_bytes(
    truth: Truth, put: Callable[..., Any]
) -> None:
    put(letter())
    redrive(truth)
    assert redrive(truth, b"other bytes", mended=True) is None


def test_a_mended_message_resolves_its_letter_and_both_are_kept(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter())
    redrive(truth, b"better", mended=True)
    resolve(truth, raw=b"better")
    row = row_of(truth)
    assert (row["status"], row["raw"], row["mended"]) == ("resolved", RAW, b"better")
    assert [entry[0] for entry in happened(truth)] == ["failed", "mended", "redriven", "resolved"]


@pytest.mark.parametrize(
    ("attempt", "raw"), [(3, RAW), (2, b"forged")], ids=["another attempt", "other bytes than were sent"]
)
def test_a_header_that_lies_resolves_nothing(truth: Truth, put: Callable[..., Any], attempt: int, raw: bytes) -> None:
    put(letter())
    redrive(truth)
    resolve(truth, attempt, raw)
    assert row_of(truth)["status"] == "redriven"


def test_a_letter_that_nobody_redrove_is_not_resolved_by_a_header(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter())
    resolve(truth)
    assert row_of(truth)["status"] == "waiting"


def test_a_message_with_a_foreign_header_is_a_letter_of_its_own(truth: Truth, put: Callable[..., Any]) -> None:
    """Scenario: two broken messages bear the id of somebody else's letter. We expect to find both of them."""
    put(letter())
    redrive(truth)
    forged = [again(raw=b"forged one", where="turns:0:7"), again(raw=b"forged two", where="turns:0:8")]
    filed = [item for one in forged for item in put(one)]
    assert [item.dead_letter_id for item in filed] == [
        letter_id(letter().stage, "turns:0:7", b"forged one"),
        letter_id(letter().stage, "turns:0:8", b"forged two"),
    ]
    assert {item.attempts for item in filed} == {1}
    assert row_of(truth)["status"] == "redriven"
    with truth.reading() as connection:
        assert {row["raw"] for row in deadletters.listing(connection)} == {b"forged one", b"forged two"}


def test_a_header_that_names_no_letter_makes_one_of_its_own(truth: Truth, put: Callable[..., Any]) -> None:
    for place in ("turns:0:7", "turns:0:8"):
        put(again(where=place, dead_letter_id=new_id("nobody's")))
    with truth.reading() as connection:
        assert deadletters.count(connection) == 2


def test_a_dropped_letter_keeps_its_bytes_the_reason_and_who_dropped_it(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter(), letter("2"))
    wanted = [letter().dead_letter_id, new_id("unknown")]
    for expected in ([letter().dead_letter_id], []):
        done = truth.run(
            lambda connection: deadletters.drop(connection, wanted, why="a gateway's test", by="eve", now=at(6))
        )
        assert done == expected
    assert (row_of(truth)["status"], row_of(truth)["raw"]) == ("dropped", RAW)
    assert happened(truth)[1:] == [("dropped", 1, "eve", "a gateway's test")]
    assert redrive(truth) is None


def of(number: int, **fields: Any) -> DeadLetter:
    """The letter that failed in minute `number`."""
    tenant = fields.pop("tenant", "acme")
    raw = base64.b64encode(orjson.dumps({"tenant": tenant})).decode()
    return letter(str(number), failed_at=at(number), raw=raw, **fields)


def test_letters_are_found_by_what_is_known_of_them(truth: Truth, put: Callable[..., Any]) -> None:
    put(
        of(3),
        of(1),
        of(2, stage="extract", topic="p.batches"),
        of(4, reason="invalid_field"),
        of(5, tenant="Acme"),
        letter("bytes", failed_at=at(6)),
    )
    every = {"reason": letter().reason, "stage": letter().stage, "topic": letter().topic}

    def minutes(**chosen: Any) -> list[int]:
        with truth.reading() as connection:
            rows = deadletters.listing(connection, LetterFilter(**chosen))
            assert deadletters.ids(connection, LetterFilter(**chosen), limit=99) == [r["dead_letter_id"] for r in rows]
            assert sum(deadletters.kinds(connection, LetterFilter(**chosen)).values()) == len(rows)
        return [int((row["first_failed_at"] - at(0)).total_seconds() // 60) for row in rows]

    assert minutes() == [1, 2, 3, 4, 5, 6]
    assert minutes(stage="extract") == minutes(topic="p.batches") == [2]
    assert minutes(reason="invalid_field") == [4]
    assert minutes(tenant="acme") == [1, 2, 3, 4]
    assert minutes(tenant="Acme") == [5]
    assert minutes(failed_before=at(3)) == [1, 2]
    assert minutes(failed_after=at(5)) == [5, 6]
    assert minutes(**every) == [1, 3, 5, 6]
    assert minutes(status=LetterStatus.DROPPED) == []


def test_a_page_begins_after_the_last_of_the_page_before_also_if_that_one_failed_again(
    truth: Truth, put: Callable[..., Any]
) -> None:
    put(*(letter(str(number), failed_at=at(3)) for number in range(2, 7)), letter())
    seen: list[str] = []
    after = None
    while True:
        with truth.reading() as connection:
            page = [row["dead_letter_id"] for row in deadletters.listing(connection, after=after, limit=1)]
        if not page:
            break
        seen += page
        after = page[-1]
        if after == letter().dead_letter_id:
            redrive(truth)
            put(again())
    assert len(seen) == len(set(seen)) == 6


def test_letters_that_a_dead_command_took_are_among_those_to_be_sent(truth: Truth, put: Callable[..., Any]) -> None:
    put(letter(), letter("2"))
    redrive(truth)
    with truth.reading() as connection:
        assert len(deadletters.ids(connection, LetterFilter(), limit=9)) == 1
        assert len(deadletters.ids(connection, LetterFilter(), limit=9, unsent=True)) == 2
        other = LetterFilter(stage="another")
        assert deadletters.ids(connection, other, limit=9, unsent=True) == []


def test_thousands_of_dead_letters_are_no_problem(truth: Truth, put: Callable[..., Any]) -> None:
    letters = [letter(str(number)) for number in range(2500)]
    for _ in range(2):
        put(*letters)
    with truth.reading() as connection:
        assert deadletters.count(connection) == 2500
        chosen = deadletters.ids(connection, LetterFilter(), limit=10_000)
    dropped = truth.run(lambda connection: deadletters.drop(connection, chosen, why="many", by="eve", now=at(6)))
    assert len(dropped) == 2500
