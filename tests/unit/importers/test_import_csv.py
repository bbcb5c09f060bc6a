"""Tests: CSV under a header and a mapping."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streams.importers import UnreadableFile

MAPPING = {"sent_at": "date", "user_id": "author", "text": "message", "conversation_id": "room"}


def test_rows_become_turns_with_local_times_and_kept_columns(read: Any) -> None:
    log = read("table.csv", "csv", mapping=MAPPING, timezone="Asia/Shanghai")
    assert [(turn.user_id, turn.text, turn.conversation_id) for turn in log.turns] == [
        ("ann", "I like tea,\nand cake", "kitchen"),
        ("bob", "好的", "kitchen"),
        ("ann", "with a zone", "kitchen"),
    ]
    assert [turn.sent_at for turn in log.turns] == [
        datetime(2024, 5, 1, 2, tzinfo=UTC),
        datetime(2024, 5, 13, 1, 30, tzinfo=UTC),
        datetime(2024, 5, 3, 10, tzinfo=UTC),
    ]
    assert log.turns[0].model_extra == {"stars": "5"}
    assert log.reasons == [(5, "bad_sent_at"), (6, "wrong_width")]


@pytest.mark.parametrize(("order", "month"), [("dmy", 2), ("mdy", 1)])
def test_an_ambiguous_date_is_read_in_the_order_that_is_asked_for(read: Any, order: str, month: int) -> None:
    log = read("table.csv", "csv", mapping=MAPPING, date_order=order)
    assert [turn.sent_at.month for turn in log.turns if turn.text == "which day?"] == [month]


def test_a_mapping_to_a_column_that_is_not_there_stops_before_the_first_row(read: Any) -> None:
    with pytest.raises(UnreadableFile, match="no column nick"):
        read("table.csv", "csv", mapping={**MAPPING, "speaker_name": "nick"})


def test_a_foreign_header_without_mapping_is_refused_with_its_columns(read: Any) -> None:
    with pytest.raises(UnreadableFile, match="date, author, message"):
        read("table.csv", "csv")


def test_turn_field_names_need_no_mapping_and_cells_have_types(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(
        b"\xef\xbb\xbfconversation_id,turn_id,user_id,role,text,sent_at,deleted,revision,attachments,schema_version\r\n"
        b"c,1,u,user,,2024-05-01T10:00:00Z,true,2,,1\r\n"
        b"c,2,u,assistant,look,2024-05-01T10:00:00Z,,,https://example.org/a.png,\r\n"
        b"c,3,u,user,x,2024-05-01T10:00:00Z,,,,9\r\n"
    )
    log = read(path)
    assert [(turn.turn_id, turn.deleted, turn.revision) for turn in log.turns] == [("1", True, 2), ("2", False, 0)]
    assert log.turns[1].attachments[0].url == "https://example.org/a.png"
    assert log.reasons == [(4, "unknown_schema_version")]


def test_a_quote_that_is_never_closed_ends_in_a_bad_record(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text('user_id,text,sent_at\nann,hi,2024-05-01T10:00:00Z\nann,"never closed,2024-05-01T10:00:00Z\n')
    log = read(path)
    assert [turn.text for turn in log.turns] == ["hi"]
    assert log.reasons == [(3, "truncated")]


def test_a_malformed_quote_costs_one_row(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "quote.csv"
    path.write_text('user_id,text,sent_at\nann,"hi"there,2024-05-01T10:00:00Z\nann,ok,2024-05-01T10:00:00Z\n')
    log = read(path)
    assert [turn.text for turn in log.turns] == ["ok"]
    assert log.reasons == [(2, "not_csv")]


def test_gb18030_is_read_only_when_it_is_named(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "gb.csv"
    path.write_bytes("user_id;text;sent_at\n李雷;我住在上海;2024-05-01T10:00:00+08:00\n".encode("gb18030"))
    with pytest.raises(UnreadableFile, match="--encoding"):
        read(path)
    assert read(path, encoding="gb18030").turns[0].text == "我住在上海"
    with pytest.raises(UnreadableFile, match="not known"):
        read(path, encoding="klingon")
