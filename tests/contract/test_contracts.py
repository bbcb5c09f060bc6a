"""Contracts: what one version has written every later one reads, and a hop that knows less strips nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import schemas
from schemas import Candidate, Command, Contract, Feedback, MemoryUpdated, Turn, digest, new_id

STORED = Path(__file__).resolve().parents[1] / "data" / "contracts"
EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(STORED.glob("*.json"))
}
NAMES = sorted(EXAMPLES)


def contract(name: str) -> type[Contract]:
    found: type[Contract] = getattr(schemas, name)
    return found


def example(name: str, kind: str = "complete", **changes: Any) -> dict[str, Any]:
    return {**EXAMPLES[name][kind], **changes}


def test_every_message_has_stored_examples() -> None:
    parts = {"Attachment", "Audit", "Evidence", "Interval", "Provenance"}  # stand inside the messages
    models = {
        name
        for name, value in vars(schemas).items()
        if isinstance(value, type) and issubclass(value, BaseModel) and value is not Contract
    }
    assert set(NAMES) == models - parts


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_example_sets_every_field(name: str) -> None:
    assert set(EXAMPLES[name]["complete"]) == set(contract(name).model_fields)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["complete", "newer_fields"])
def test_a_stored_message_is_written_again_as_it_was_read(name: str, kind: str) -> None:
    raw = orjson.dumps(example(name, kind))
    again = orjson.loads(contract(name).from_bytes(raw).to_bytes())
    assert again == _times_in_full(example(name, kind))


@pytest.mark.parametrize("name", NAMES)
def test_unknown_fields_survive_at_the_top_and_inside(name: str) -> None:
    raw = contract(name).from_dict(example(name, "newer_fields")).to_bytes()
    wanted = json.dumps(EXAMPLES[name]["newer_fields"]).count("from_the_future")
    assert raw.decode().count('"from_the_future"') == wanted


@pytest.mark.parametrize("name", NAMES)
def test_the_oldest_message_with_required_fields_only_is_understood(name: str) -> None:
    kind = contract(name)
    old = kind.from_dict(example(name, "oldest"))
    required = {field for field, info in kind.model_fields.items() if info.is_required()}
    assert required <= set(EXAMPLES[name]["oldest"])
    assert old.schema_version == 1
    assert kind.from_bytes(old.to_bytes()) == old


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("Turn", "ExtractionBatch")])
def test_a_required_field_that_is_missing_is_named(name: str) -> None:
    for field, info in contract(name).model_fields.items():
        if info.is_required():
            data = example(name)
            del data[field]
            with pytest.raises(ValueError, match=field):
                contract(name).from_dict(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_newer_schema_version_is_refused_with_both_numbers(name: str) -> None:
    newest = contract(name).CURRENT_VERSION
    with pytest.raises(ValueError, match=f"schema_version {newest + 1} is newer than {newest}"):
        contract(name).from_bytes(orjson.dumps(example(name, schema_version=newest + 1)))


def test_a_newer_schema_version_inside_a_message_is_refused_too() -> None:
    data = example("MemoryUpdated")
    data["memory"] = example("Memory", schema_version=2)
    with pytest.raises(ValueError, match="schema_version 2 is newer than 1"):
        MemoryUpdated.from_dict(data)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.5, None, []])
def test_a_schema_version_that_is_no_version_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match="schema_version must be a positive integer"):
        Turn.from_dict(example("Turn", schema_version=version))


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"text"', b"{", b"\xff\xfe", b'{"text": "\\ud83d"}', b"1e400"])
def test_bytes_that_are_no_json_object_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Turn.from_bytes(raw)


@pytest.mark.parametrize("name", NAMES)
def test_equal_messages_are_equal_bytes_whatever_the_order_of_their_fields(name: str) -> None:
    data = example(name, "newer_fields")
    turned: dict[str, Any] = _turned(data)
    one, other = contract(name).from_dict(data), contract(name).from_dict(turned)
    assert list(turned) != list(data)
    assert one == other
    assert one.to_bytes() == other.to_bytes()


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),
    st.integers(-23 * 60, 23 * 60),
)
def test_one_instant_is_the_same_bytes_in_every_offset(naive: datetime, minutes: int) -> None:
    instant = naive.replace(tzinfo=UTC)
    sign = "-" if minutes < 0 else "+"
    local = (instant + timedelta(minutes=minutes)).replace(tzinfo=None).isoformat()
    shifted = f"{local}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    one = Turn.from_dict(example("Turn", sent_at=instant.isoformat()))
    assert one.to_bytes() == Turn.from_dict(example("Turn", sent_at=shifted)).to_bytes()
    assert one.sent_at == instant


@given(st.text(min_size=1, max_size=40))
def test_any_unicode_text_survives(text: str) -> None:
    turn = Turn.from_dict(example("Turn", text=text))
    assert Turn.from_bytes(turn.to_bytes()).text == text


@pytest.mark.parametrize(
    "moment", ["2026-03-04T08:15:30", "2026-03-04", "yesterday", "", None, 1e30, "2026-02-30T00:00:00Z"]
)
def test_a_time_without_an_offset_or_meaning_is_refused(moment: object) -> None:
    with pytest.raises(ValueError, match="sent_at"):
        Turn.from_dict(example("Turn", sent_at=moment))


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_utc_cannot_hold_is_a_value_error_like_any_other(moment: str) -> None:
    with pytest.raises(ValueError, match="sent_at"):
        Turn.from_dict(example("Turn", sent_at=moment))


@pytest.mark.parametrize("container", [lambda inner: [inner], lambda inner: {"in": inner}])
def test_what_is_accepted_can_be_written_however_deep_it_is(container: Any) -> None:
    inner: Any = "deep"
    for _level in range(Turn.MAX_NESTING - 1):
        inner = container(inner)
    turn = Turn.from_dict(example("Turn", extra=inner))
    batch = schemas.ExtractionBatch.from_dict(example("ExtractionBatch", turns=[turn.model_dump(mode="json")] * 2))
    assert b'"deep"' in batch.to_bytes()
    with pytest.raises(ValueError, match="nested deeper"):
        Turn.from_dict(example("Turn", extra=container(inner)))


def test_nesting_that_would_break_the_writer_is_refused_by_the_reader() -> None:
    raw = orjson.dumps(example("Turn"))[:-1] + b',"extra":' + b"[" * 400 + b"]" * 400 + b"}"
    with pytest.raises(ValueError, match="nested deeper"):
        Turn.from_bytes(raw)


@pytest.mark.parametrize("taken", ["turn_key", "owner_key", "conversation_key", "to_bytes", "model_config"])
def test_an_unknown_field_cannot_stand_in_for_a_derived_one(taken: str) -> None:
    honest, crafted = Turn.from_dict(example("Turn")), Turn.from_dict(example("Turn") | {taken: "crafted"})
    assert crafted.turn_key == honest.turn_key
    assert crafted.owner_key == honest.owner_key
    assert crafted.conversation_key == honest.conversation_key
    assert Turn.from_bytes(crafted.to_bytes()) == crafted


def test_messages_do_not_change_once_made() -> None:
    turn = Turn.from_dict(example("Turn"))
    with pytest.raises(ValueError, match="frozen"):
        turn.text = "other"  # type: ignore[misc]  # what the type checker forbids is forbidden at run time as well


@pytest.mark.parametrize("field", ["tenant", "conversation_id", "turn_id", "user_id"])
@pytest.mark.parametrize("value", ["", "x" * 256, "a\nb", "a\x00b", "\x7f"])
def test_an_id_is_one_to_255_printable_characters(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=field):
        Turn.from_dict(example("Turn") | {field: value})


@pytest.mark.parametrize(
    ("kind", "field"), [(Command, "command_id"), (Candidate, "candidate_id"), (Feedback, "feedback_id")]
)
@pytest.mark.parametrize("value", ["", "x" * 37, "a b", "a ", "é", "\t"])
def test_an_id_that_truth_compares_has_no_blanks_and_fits(kind: type[Contract], field: str, value: str) -> None:
    with pytest.raises(ValueError, match=field):
        kind.from_dict(example(kind.__name__) | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", "n" * 1025),
        ("attribute", "a" * 65),
        ("subject", "s" * 256),
        ("language", "l" * 9),
        ("timezone", "z" * 65),
        ("turn_key", "k" * 33),
        ("owner", "o" * 256),
        ("tenant", ""),
        ("decision", "d" * 17),
        ("confidence", 1.01),
    ],
)
def test_a_candidate_that_truth_could_not_hold_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        Candidate.from_dict(example("Candidate") | {field: value})


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "UTC+8", "a" * 5000])
def test_a_zone_that_nobody_knows_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="timezone"):
        Turn.from_dict(example("Turn", timezone=zone))


def test_a_turn_without_words_needs_a_reason_to_be() -> None:
    silent = example("Turn", text="", attachments=[])
    with pytest.raises(ValueError, match="needs text"):
        Turn.from_dict(silent)
    assert Turn.from_dict(silent | {"deleted": True}).deleted
    assert Turn.from_dict(silent | {"conversation_end": True}).conversation_end


def test_a_dead_letter_gives_the_original_bytes_back() -> None:
    letter = schemas.DeadLetter.from_dict(example("DeadLetter"))
    assert letter.raw_bytes == b"\xff\x00not json"


def test_no_two_lists_of_parts_share_an_id() -> None:
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("1:a",), ("1", "a"), ("a", "1:a")]
    assert len({new_id(*parts) for parts in lists}) == len(lists)
    assert len({digest(*parts) for parts in lists}) == len(lists)


def test_ids_are_the_same_on_every_machine() -> None:
    assert new_id("turn", "上海") == "fd6eb5e3-0cbb-5d15-8e81-0d426d339a62"
    assert digest("acme", "c-1") == "bf454641d78ceea824bb15f2abcb87f5"


def test_case_blanks_and_composition_make_different_owners() -> None:
    owners = ["alice", "Alice", "alice ", " alice", "alicé", "alice\u0301"]
    keys = {Turn.from_dict(example("Turn", user_id=owner)).owner_key for owner in owners}
    assert len(keys) == len(owners)


def _turned(value: Any) -> Any:
    """The same data with every object's fields in the opposite order."""
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(list(value))}
    return [_turned(item) for item in value] if isinstance(value, list) else value


def _times_in_full(value: Any, key: str = "") -> Any:
    """Times are written with six decimals or none."""
    if isinstance(value, dict):
        return {name: _times_in_full(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_times_in_full(item, key) for item in value]
    return "2026-06-01T00:00:01.500000Z" if value == "2026-06-01T00:00:01.5Z" else value
