"""Dead letters: a reason without the person's words, the whole of the bytes, and one letter however often it comes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from processors.exceptions import PoisonError
from schemas import DeadLetter, Turn
from sinks.truth.deadletters import Redriven
from streams.deadletter import HEADER, MAX_RAW_BYTES, dead_letter, header_of, redriven
from streams.reasons import reason_of
from streams.topics import declared
from tests.doubles.records import at

SECRET = "my diary"


@dataclass(frozen=True)
class Message:
    """A message and its place."""

    value: bytes | None
    topic: str = "turns"
    key: bytes | None = b"key"
    place: str = "turns:0:1"
    redriven: Redriven | None = None


def error_of(raw: bytes) -> Exception:
    with pytest.raises(ValueError, match=r".") as caught:
        Turn.from_bytes(raw)
    return caught.value


FIELDS = '"conversation_id": "c", "turn_id": "t", "user_id": "u", "sent_at": "2026-01-01T00:00:00Z"'


@pytest.mark.parametrize(
    ("raw", "reason", "detail"),
    [
        (b"{", "not_json", "the message is not valid UTF-8 JSON"),
        (b"\xff\xfe", "not_json", "the message is not valid UTF-8 JSON"),
        (b"[1]", "unreadable", "Turn must be a JSON object, not list"),
        (b'{"schema_version": 9}', "schema_version", "schema_version 9 is newer than 1, the newest known here"),
        (f'{{{FIELDS}, "role": "{SECRET}"}}'.encode(), "invalid_field", "role: enum"),
        (
            f'{{{FIELDS}, "role": "user", "text": 1, "timezone": "{SECRET}"}}'.encode(),
            "invalid_field",
            "text: string_type",
        ),
        (f'{{{FIELDS}, "role": "user"}}'.encode(), "invalid_field", "record: value_error"),
    ],
)
def test_the_reason_names_what_is_wrong_and_not_what_was_said(raw: bytes, reason: str, detail: str) -> None:
    code, sentence = reason_of(error_of(raw))
    assert code == reason
    assert detail in sentence
    assert SECRET not in sentence


def test_a_reason_given_on_purpose_is_kept() -> None:
    assert reason_of(PoisonError("too_large", "2 MB; a message may have 1")) == (
        "too_large",
        "2 MB; a message may have 1",
    )


@pytest.mark.parametrize("error", [ValueError(SECRET), KeyError(SECRET), UnicodeError(SECRET)])
def test_an_error_that_quotes_the_message_is_told_by_its_kind_only(error: Exception) -> None:
    assert reason_of(error) == ("unreadable", type(error).__name__)


def test_a_letter_has_the_place_the_key_and_the_bytes() -> None:
    letter = dead_letter("ingest", Message(b"\xff\x00", key="钥匙".encode()), ValueError(), at(1))
    assert (letter.stage, letter.topic, letter.where, letter.key) == ("ingest", "turns", "turns:0:1", "钥匙")
    assert (letter.raw_bytes, letter.failed_at) == (b"\xff\x00", at(1))
    assert DeadLetter.from_bytes(letter.to_bytes()) == letter


@pytest.mark.parametrize("key", [None, b"", b"\xff\xfe"])
@pytest.mark.parametrize("value", [None, b""])
def test_a_message_without_key_or_value_is_a_letter_too(key: bytes | None, value: bytes | None) -> None:
    letter = dead_letter("ingest", Message(value, key=key), ValueError(), at(1))
    assert letter.raw_bytes == b""


def test_a_redelivered_message_makes_the_same_letter() -> None:
    first, again = (dead_letter("ingest", Message(b"x"), ValueError(), at(minute)) for minute in (1, 9))
    assert first.dead_letter_id == again.dead_letter_id


def test_a_message_that_was_sent_again_makes_the_letter_it_came_from() -> None:
    letter = dead_letter("ingest", Message(b"x", redriven=Redriven("some-letter", 3)), ValueError(), at(1))
    assert (letter.dead_letter_id, letter.attempts) == ("some-letter", 3)


def test_the_header_says_whose_letter_it_is_and_which_attempt() -> None:
    assert redriven([("other", b"x"), header_of(Redriven("some-letter", 2))]) == Redriven("some-letter", 2)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"letter",
        b"letter:1",
        b"letter:0",
        b"letter:x",
        b":2",
        b"a b:2",
        b"letter:9999999",
        "钥匙:2".encode(),
        None,
    ],
)
def test_a_header_that_says_something_else_says_nothing(value: bytes | None) -> None:
    assert redriven([(HEADER, value)]) is None
    assert redriven(None) is None


def test_another_message_makes_another_letter_even_where_an_earlier_topic_had_one() -> None:
    message = Message(b"x")
    letters = [
        dead_letter("ingest", message, ValueError(), at(1)),
        dead_letter("resolve", message, ValueError(), at(1)),
        dead_letter("ingest", replace(message, place="turns:0:2"), ValueError(), at(1)),
        dead_letter("ingest", replace(message, value=b"y"), ValueError(), at(1)),
    ]
    assert len({letter.dead_letter_id for letter in letters}) == 4


def test_the_largest_message_of_a_stages_topic_is_kept_whole_and_fits_into_its_topic() -> None:
    limits = {spec.name: int(spec.config["max.message.bytes"]) for spec in declared()}
    assert max(limit for name, limit in limits.items() if name != "deadletters") <= MAX_RAW_BYTES
    letter = dead_letter("extract", Message(b"x" * MAX_RAW_BYTES), ValueError(), at(1))
    assert len(letter.raw_bytes) == MAX_RAW_BYTES
    assert letter.original_bytes is None
    assert len(letter.to_bytes()) < limits["deadletters"]


def test_a_larger_message_is_kept_in_part_and_the_letter_says_so() -> None:
    letter = dead_letter("extract", Message(b"x" * (MAX_RAW_BYTES + 3)), ValueError(), at(1))
    assert (len(letter.raw_bytes), letter.original_bytes) == (MAX_RAW_BYTES, MAX_RAW_BYTES + 3)
    assert DeadLetter.from_bytes(letter.to_bytes()) == letter
