"""Tests: Slack workspace exports."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streams.importers import UnreadableFile
from streams.importers.slack_text import blocks_text, plain_text


def test_people_have_names_zones_and_readable_text(read: Any, slack_zip: Path) -> None:
    turn = read(slack_zip).turn("1714557601.000200")
    assert turn.text == "Hi @Bob Example, see the page (https://example.org/a?b=1&c=2) <now> in #general"
    assert (turn.user_id, turn.speaker_name, turn.timezone) == ("U1", "Ann", "Europe/Berlin")
    assert (turn.conversation_id, turn.group, turn.gateway, turn.reply_to) == ("C1", True, "slack", None)
    assert turn.sent_at == datetime(2024, 5, 1, 10, 0, 1, 200, tzinfo=UTC)


def test_a_thread_is_a_reply_to_its_first_message(read: Any, slack_zip: Path) -> None:
    assert read(slack_zip).turn("1714557602.000300").reply_to == "1714557601.000200"


def test_edits_come_with_growing_revisions_and_the_deletion_last(read: Any, slack_zip: Path) -> None:
    log = read(slack_zip)
    edits = [turn for turn in log.turns if turn.turn_id == "1714557603.000400"]
    assert [(turn.text, turn.revision) for turn in edits] == [("Lunch at 13", 1), ("Lunch at 14", 2)]
    assert edits[1].edited_at == datetime.fromtimestamp(1714557790, UTC)
    deleted = [turn for turn in log.turns if turn.turn_id == "1714557602.000300"][-1]
    assert (deleted.deleted, deleted.revision, deleted.user_id, deleted.text) == (True, 1, "U2", "")
    assert log.turn("1714557904.000500").deleted


def test_bots_are_assistants_and_people_behind_an_app_are_people(read: Any, slack_zip: Path) -> None:
    log = read(slack_zip)
    ci, helper = log.turn("1714557905.000600"), log.turn("1714557906.000700")
    assert (ci.role.value, ci.agent_id, ci.text) == ("assistant", "B9", "Build https://example.org/7 passed")
    assert (helper.role.value, helper.speaker_name) == ("assistant", "Helper")
    assert log.turn("1714557906.500700").role.value == "user"


def test_files_are_pointers(read: Any, slack_zip: Path) -> None:
    file = read(slack_zip).turn("1714557907.000800").attachments[0]
    assert (file.name, file.mime, file.url) == ("plan.pdf", "application/pdf", "https://files.example.org/plan.pdf")


def test_joins_and_bare_reactions_are_service_and_broken_messages_say_so(read: Any, slack_zip: Path) -> None:
    log = read(slack_zip)
    assert log.service == ["channel_join", "empty"]
    assert log.reasons == [(12, "missing_user_id"), (13, "bad_sent_at")]
    assert log.bad[0].where == "workspace.zip/general/2024-05-01.json:12"


def test_a_direct_chat_is_no_group(read: Any, slack_zip: Path) -> None:
    turn = read(slack_zip).turn("1714640000.000100")
    assert (turn.conversation_id, turn.group) == ("D0PAIR", False)


def test_a_day_that_ends_in_the_middle_costs_only_its_end(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "cut.zip"
    message = '{"type":"message","user":"U1","text":"%s","ts":"171455760%d.0"}'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("general/2024-05-01.json", f"[{message % ('one', 1)},{(message % ('two', 2))[:20]}")
        archive.writestr("general/2024-05-02.json", f"[{message % ('three', 3)}]")
    log = read(path)
    assert [turn.text for turn in log.turns] == ["one", "three"]
    assert log.reasons == [(2, "truncated")]


def test_a_damaged_member_costs_only_itself(read: Any, slack_zip: Path) -> None:
    content = bytearray(slack_zip.read_bytes())
    with zipfile.ZipFile(slack_zip) as archive:
        info = archive.getinfo("D0PAIR/2024-05-02.json")
    start = info.header_offset + 30 + len(info.filename)
    content[start : start + info.compress_size] = bytes(info.compress_size)
    slack_zip.write_bytes(content)
    log = read(slack_zip)
    assert log.bad[0].reason == "truncated"
    assert len(log.turns) == 10


def test_a_zip_that_is_cut_off_or_holds_no_messages_is_refused(read: Any, slack_zip: Path, tmp_path: Path) -> None:
    cut, other = tmp_path / "half.zip", tmp_path / "other.zip"
    cut.write_bytes(slack_zip.read_bytes()[:600])
    with pytest.raises(UnreadableFile, match="cut off"):
        read(cut, "slack")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.md", "hi")
    with pytest.raises(UnreadableFile, match="no Slack messages"):
        read(other, "slack")


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<@U9>", "@U9"),
        ("<@U9|zoe>", "@zoe"),
        ("<!here> <!subteam^S1|@team>", "@here @team"),
        ("<https://example.org|example.org>", "https://example.org"),
        ("<mailto:a@example.org|a@example.org>", "a@example.org"),
        ("&amp;lt;b&gt;", "&lt;b>"),
    ],
)
def test_markup_reads_as_people_see_it(markup: str, text: str) -> None:
    assert plain_text(markup, {}) == text


def _rich(*elements: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "rich_text", "elements": list(elements)}]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _section(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text_section", "elements": list(elements)}


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (_rich(_section(_text("我搬到"), _text("上海"), _text("了"))), "我搬到上海了"),
        (
            _rich(
                _section(
                    {"type": "user", "user_id": "U1"}, _text(" I "), {"type": "emoji", "name": "heart"}, _text(" it")
                ),
                {"type": "rich_text_list", "elements": [_section(_text("tea")), _section(_text("coffee"))]},
                {"type": "rich_text_quote", "elements": [_text("5 < 6")]},
            ),
            "@Ann I :heart: it\ntea\ncoffee\n5 < 6",
        ),
        (
            _rich(
                _section(
                    {"type": "link", "url": "https://a.example/x", "text": "the plan"},
                    {"type": "broadcast", "range": "here"},
                    {"type": "channel", "channel_id": "C1"},
                )
            ),
            "the plan (https://a.example/x)@here#C1",
        ),
        (
            [
                {"type": "header", "text": {"type": "plain_text", "text": "Trip"}},
                {"type": "divider"},
                {"type": "section", "text": {"type": "mrkdwn", "text": "with <@U1> &amp; me"}},
                {
                    "type": "section",
                    "fields": [{"type": "mrkdwn", "text": "May"}, {"type": "plain_text", "text": "Rome"}],
                },
                {
                    "type": "context",
                    "elements": [{"type": "image", "alt_text": "x"}, {"type": "mrkdwn", "text": "soon"}],
                },
            ],
            "Trip\nwith @Ann & me\nMay\nRome\nsoon",
        ),
        ([{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": "no list"}, 7, None]}], ""),
        ("no blocks", ""),
    ],
)
def test_blocks_read_as_people_see_them(blocks: Any, said: str) -> None:
    assert blocks_text(blocks, {"U1": "Ann"}) == said


def test_a_message_of_blocks_only_is_a_turn_and_the_text_beside_blocks_is_the_text(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "blocks.zip"
    blocks = _rich(_section(_text("I moved to Rome.")))
    messages = [
        {"type": "message", "user": "U1", "ts": "1714557601.0", "text": "", "blocks": blocks},
        {"type": "message", "user": "U1", "ts": "1714557602.0", "blocks": blocks},
        {"type": "message", "user": "U1", "ts": "1714557603.0", "text": "said once", "blocks": blocks},
        {"type": "message", "user": "U1", "ts": "1714557604.0", "text": "", "blocks": [{"type": "divider"}]},
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("general/2024-05-01.json", json.dumps(messages))
    log = read(path)
    assert [turn.text for turn in log.turns] == ["I moved to Rome.", "I moved to Rome.", "said once"]
    assert log.service == ["empty"]
