"""Tests: memriver's own JSON Lines, and foreign ones under a mapping."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schemas import Role
from streams.importers import UnreadableFile


def test_every_good_line_is_a_turn_and_every_bad_one_says_where_and_why(read: Any) -> None:
    log = read("native.jsonl", "jsonl", now=datetime(2024, 6, 1, tzinfo=UTC))
    assert [turn.turn_id for turn in log.turns] == ["t1", "t2", "t9"]
    assert log.reasons == [
        (4, "missing_sent_at"),
        (5, "unknown_role"),
        (6, "unknown_schema_version"),
        (7, "lone_surrogate"),
        (8, "future_sent_at"),
        (9, "not_an_object"),
        (10, "bad_sent_at"),
        (11, "not_json"),
        (13, "truncated"),
    ]
    assert log.bad[0].where == "native.jsonl:4"
    assert log.bad[7].raw == b"this is not JSON\n"


def test_unknown_fields_and_zones_are_kept_and_missing_ones_come_from_the_options(read: Any) -> None:
    log = read("native.jsonl", "jsonl", tenant="other", timezone="Europe/Madrid")
    first, second = log.turns[:2]
    assert (first.tenant, first.timezone, first.model_extra) == ("acme", "Asia/Shanghai", {"mood": "calm"})
    assert first.sent_at == datetime(2024, 5, 1, 2, tzinfo=UTC)
    assert (second.tenant, second.timezone, second.agent_id) == ("other", "Europe/Madrid", "mail")


def test_without_a_clock_the_future_is_not_checked(read: Any) -> None:
    assert read("native.jsonl", "jsonl").turns[2].turn_id == "t7"


def test_no_value_of_a_bad_record_appears_in_its_detail(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = {"conversation_id": "c", "turn_id": "t", "user_id": "u", "role": "sekret", "text": "", "sent_at": "sekret"}
    path.write_text(json.dumps(line) + "\n" + json.dumps({**line, "role": "user", "sent_at": "2024-01-01T00:00:00Z"}))
    log = read(path, "jsonl")
    assert [record.reason for record in log.bad] == ["unknown_role", "empty_turn"]
    assert not any("sekret" in record.detail for record in log.bad)


def test_a_line_over_eight_mebibytes_is_skipped_and_only_its_beginning_kept(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    good = b'{"conversation_id":"c","turn_id":"%d","user_id":"u","role":"user","text":"x","sent_at":"2024-01-01T00:00:00Z"}\n'
    path.write_bytes(good % 1 + b'{"text":"' + b"y" * (9 * 1024 * 1024) + b'"}\n' + good % 2)
    log = read(path, "jsonl")
    assert [turn.turn_id for turn in log.turns] == ["1", "2"]
    assert log.reasons == [(2, "line_too_long")]
    assert len(log.bad[0].raw) == 64 * 1024


def test_one_line_in_another_encoding_costs_only_itself(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    line = '{"conversation_id":"c","turn_id":"%d","user_id":"u","role":"user","text":"%s","sent_at":"2024-01-01T00:00:00Z"}\n'
    lines = [(line % (number, "ascii")).encode() for number in range(5)]
    path.write_bytes(b"".join([*lines[:2], (line % (9, "上海")).encode("gb18030"), *lines[2:]]))
    log = read(path, "jsonl")
    assert len(log.turns) == 5
    assert log.reasons == [(3, "encoding")]


def test_a_file_in_another_encoding_is_refused_until_the_encoding_is_named(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "gb.jsonl"
    turn = {"conversation_id": "c", "turn_id": "1", "user_id": "u", "role": "user", "sent_at": "2024-01-01T00:00:00Z"}
    line = json.dumps({**turn, "text": "我住在上海"}, ensure_ascii=False)
    path.write_bytes(line.encode("gb18030"))
    with pytest.raises(UnreadableFile, match="--encoding"):
        read(path, "jsonl")
    assert read(path, "jsonl", encoding="gb18030").turns[0].text == "我住在上海"
    path.write_bytes(line.encode("utf-16"))
    assert read(path, "jsonl").turns[0].text == "我住在上海"


def test_a_json_array_of_native_turns_is_read_as_well(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "array.json"
    turn = {"conversation_id": "c", "turn_id": "1", "user_id": "u", "role": "user", "text": "x", "sent_at": 1714557600}
    path.write_text(json.dumps([turn, {**turn, "role": "?"}], indent=1))
    log = read(path)
    assert [turn.sent_at for turn in log.turns] == [datetime(2024, 5, 1, 10, tzinfo=UTC)]
    assert log.reasons == [(2, "unknown_role")]


def test_a_mapping_with_dotted_paths_makes_foreign_lines_turns(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "foreign.jsonl"
    rows = [
        {"meta": {"who": 7, "at": "2024-05-01T10:00:00"}, "body": [{"t": "hi"}], "kind": "AI", "lang": "en"},
        {"meta": {"who": 7, "at": 1714557600123}, "body": [{"t": "hi"}]},
        {"meta": {"who": 7, "at": "some day"}, "body": [{"t": "hi"}]},
        {"meta": {"who": 7}, "body": [{"t": "hi"}]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    mapping = {"user_id": "meta.who", "sent_at": "meta.at", "text": "body.0.t", "role": "kind"}
    log = read(path, mapping=mapping, timezone="Asia/Shanghai", conversation_id="room")
    assert [(turn.user_id, turn.text, turn.role, turn.conversation_id) for turn in log.turns] == [
        ("7", "hi", Role.ASSISTANT, "room"),
        ("7", "hi", Role.USER, "room"),
    ]
    assert log.turns[0].sent_at == datetime(2024, 5, 1, 2, tzinfo=UTC)
    assert log.turns[1].sent_at == datetime(2024, 5, 1, 10, 0, 0, 123000, tzinfo=UTC)
    assert (log.turns[0].model_extra or {})["lang"] == "en"
    assert log.reasons == [(3, "bad_sent_at"), (4, "missing_sent_at")]


def test_equal_foreign_lines_get_distinct_ids_that_stay(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    path.write_text('{"u":"a","m":"hi","at":1714557600}\n' * 3)
    mapping = {"user_id": "u", "text": "m", "sent_at": "at"}
    ids = [turn.turn_id for turn in read(path, mapping=mapping).turns]
    assert len(set(ids)) == 3
    assert ids == [turn.turn_id for turn in read(path, mapping=mapping).turns]
