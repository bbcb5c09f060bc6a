"""Tests: WhatsApp texts in their locales."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streams.importers import UnreadableFile
from streams.importers.whatsapp_header import HEADER, OrderVote, local_time


def test_an_android_chat_has_speakers_times_and_many_lined_messages(read: Any) -> None:
    log = read("whatsapp_android.txt", timezone="Europe/Berlin")
    assert [(turn.user_id, turn.text) for turn in log.turns] == [
        ("Ann", "Hi"),
        ("Ann", "Hi"),
        ("Bob", ""),
        ("Bob", "two lines\nand: a colon\n\nand a blank one"),
        ("Ann", ""),
        ("Ann", "at nine, not ten"),
        ("Bob", "our cat"),
    ]
    assert log.turns[0].sent_at == datetime(2024, 5, 13, 19, 1, tzinfo=UTC)
    assert (log.turns[0].group, log.turns[0].gateway, log.turns[0].timezone) == (False, "whatsapp", "Europe/Berlin")


def test_two_equal_messages_of_one_minute_are_two_turns(read: Any) -> None:
    first, second = read("whatsapp_android.txt").turns[:2]
    assert first.turn_id != second.turn_id


def test_media_deletions_and_edits_are_recognised(read: Any) -> None:
    turns = read("whatsapp_android.txt").turns
    assert turns[2].attachments[0].name == "media"
    assert (turns[4].deleted, turns[4].text) == (True, "")
    assert turns[5].revision == 1
    assert (turns[6].attachments[0].name, turns[6].attachments[0].mime) == ("IMG-20240514-WA0001.jpg", "image/jpeg")


def test_what_whatsapp_says_itself_is_service_even_with_a_colon_in_it(read: Any) -> None:
    log = read("whatsapp_android.txt")
    assert log.service == ["event", "event", "call"]
    assert log.reasons == [(15, "bad_sent_at")]


def test_an_ios_chat_in_chinese_is_read_through_its_marks(read: Any) -> None:
    log = read("whatsapp_ios.txt", timezone="Asia/Shanghai")
    assert log.service == ["encryption"]
    assert [(turn.user_id, turn.text, turn.deleted, turn.revision) for turn in log.turns] == [
        ("李雷", "我对花生过敏", False, 0),
        ("韩梅梅", "", False, 0),
        ("韩梅梅", "", True, 1),
        ("+86 138 0000", "好的", False, 1),
        ("李雷", "", False, 0),
    ]
    assert [turn.sent_at.strftime("%d %H:%M:%S") for turn in log.turns] == [
        "01 12:05:02",
        "01 12:05:03",
        "01 04:05:04",
        "01 16:05:05",
        "02 01:05:05",
    ]
    assert log.turns[1].attachments[0].mime == "image/*"
    assert log.turns[4].attachments[0].name == "00000012-PHOTO-2024-05-02.jpg"
    assert all(turn.group for turn in log.turns)


@pytest.mark.parametrize("year", ["%y", "%Y"])
@pytest.mark.parametrize("clock", ["%H:%M", "%I:%M %p", "%H:%M:%S", "%I:%M:%S\u202fa.\xa0m."])
@pytest.mark.parametrize("order", ["{y}{s}%m{s}%d", "{y}{s}%d{s}%m", "%d{s}%m{s}{y}", "%m{s}%d{s}{y}"])
@pytest.mark.parametrize("separator", ["-", "/", "."])
@pytest.mark.parametrize(
    "style", ["{date}, {time} - Ann: hi", "[{date} {time}] Ann: hi", "\u200e[{date}, {time}] Ann: hi"]
)
def test_every_order_of_day_and_month_is_found_from_the_whole_file(
    read: Any, tmp_path: Path, year: str, clock: str, order: str, separator: str, style: str
) -> None:
    start = datetime(2021, 3, 20, 8, 5)
    moments = [start + timedelta(days=3 * number) for number in range(12)]
    pattern = style.format(date=order.format(y=year, s=separator), time=clock)
    path = tmp_path / "chat.txt"
    path.write_text("\n".join(moment.strftime(pattern) for moment in moments), encoding="utf-8")
    assert [turn.sent_at.replace(tzinfo=None) for turn in read(path, "whatsapp").turns] == moments


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("12/31/20, 11:55 PM - Ann: hi", datetime(2020, 12, 31, 23, 55)),
        ("12/31/2020, 12:05 a. m. - Ann: hi", datetime(2020, 12, 31, 0, 5)),
        ("31.12.20 um 23:55 - Ann: hi", datetime(2020, 12, 31, 23, 55)),
        ("2020. 12. 31. 오후 11:55 - Ann: hi", datetime(2020, 12, 31, 23, 55)),
        ("2020年12月31日 下午11:55 - Ann: hi", datetime(2020, 12, 31, 23, 55)),
        ("٣١/١٢/٢٠٢٠، ١١:٥٥ م - Ann: hi", datetime(2020, 12, 31, 23, 55)),
        ("[31.12.20, 23:55:01] Ann: hi", datetime(2020, 12, 31, 23, 55, 1)),
    ],
)
def test_locales_write_the_same_minute_in_many_ways(header: str, expected: datetime) -> None:
    match = HEADER.fullmatch(header)
    assert match is not None
    vote = OrderVote()
    vote.add(match)
    assert local_time(match, vote.winner("auto")) == expected
    assert match["rest"] == "Ann: hi"


def test_the_asked_order_decides_where_nothing_else_does(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "chat.txt"
    path.write_text("05/06/2020, 12:00 - Ann: hi\n")
    assert read(path, date_order="dmy").turns[0].sent_at.month == 6
    assert read(path, date_order="mdy").turns[0].sent_at.month == 5


@pytest.mark.parametrize(
    "line",
    ["<Medien ausgeschlossen>", "<Multimedia omitido>", "<Médias omis>", "<Mídia oculta>", "<Media omessi>",
     "<Без медиафайлов>", "<省略多媒体文件>", "<미디어 파일 제외됨>", "\u200eimage omitted", "\u200eBild weggelassen"],
)  # fmt: skip
def test_omitted_media_are_attachments_in_many_languages(read: Any, tmp_path: Path, line: str) -> None:
    path = tmp_path / "chat.txt"
    path.write_text(f"05/06/2020, 12:00 - Ann: {line}\n", encoding="utf-8")
    turn = read(path).turns[0]
    assert (turn.text, len(turn.attachments)) == ("", 1)


def test_a_later_export_of_the_same_chat_repeats_the_ids(read: Any, samples: Path, tmp_path: Path) -> None:
    first, later = tmp_path / "WhatsApp Chat with Bob.txt", tmp_path / "WhatsApp Chat with Bob (1).txt"
    content = (samples / "whatsapp_android.txt").read_text(encoding="utf-8")
    first.write_text(content, encoding="utf-8")
    later.write_text(content.replace("31/02/24", "15/05/24"), encoding="utf-8")
    old, new = read(first).turns, read(later).turns
    assert new[:-1] == old
    assert {turn.conversation_id for turn in new} == {"Bob"}


def test_the_zip_that_whatsapp_packs_is_read_under_the_zips_name(read: Any, samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "WhatsApp Chat - Bob.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(samples / "whatsapp_android.txt", "_chat.txt")
        archive.writestr("00000012-PHOTO.jpg", b"")
    log = read(path)
    assert len(log.turns) == 7
    assert log.turns[0].conversation_id == "Bob"


def test_a_text_without_headers_is_refused(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("Dear diary,\nnothing happened.\n")
    with pytest.raises(UnreadableFile, match="no line like"):
        read(path, "whatsapp")
