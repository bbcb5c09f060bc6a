"""A dead letter of a message that was too long to keep: it says so everywhere, and does not go out as if it were whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from processors.exceptions import PoisonError
from schemas import DeadLetter
from sinks.truth import Truth, deadletters
from streams.cli import app
from streams.deadletter import MAX_RAW_BYTES, dead_letter
from streams.delivery import Message
from streams.redrive import Redriver
from tests.doubles.records import at

WHOLE = b'{"conversation_id": "c", "text": "' + b"a" * (MAX_RAW_BYTES + 1000) + b'"}'
CUT = dead_letter("ingest", Message("turns", 0, 7, b"k", WHOLE, 0.0), ValueError(), at(1))
SHORT = dead_letter("ingest", Message("turns", 0, 8, b"k", b"{", 0.0), ValueError(), at(2))
MENDED = {
    "conversation_id": "c",
    "turn_id": "t",
    "user_id": "u",
    "role": "user",
    "text": "hi",
    "sent_at": "2026-03-02T01:00:00Z",
}


class Nobody:
    """A producer that must not be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: nothing is to be sent")


@pytest.fixture
def filed(truth: Truth) -> Truth:
    truth.run(lambda connection: deadletters.put(connection, [CUT, SHORT]))
    return truth


@pytest.mark.parametrize("anyway", [False, True])
def test_it_is_not_sent_again(filed: Truth, anyway: bool) -> None:
    redriver = Redriver(filed, Nobody(), by="eve", now=at(3))  # type: ignore[arg-type]  # nothing of it is used
    report = asyncio.run(redriver.redrive([CUT.dead_letter_id], anyway=anyway))
    assert (report.redriven, report.left) == ([], {})
    [(letter, why)] = report.refused.items()
    assert letter == CUT.dead_letter_id
    assert why.startswith(f"cut: only the first {MAX_RAW_BYTES} of {len(WHOLE)} bytes were kept")
    with filed.reading() as connection:
        assert deadletters.count(connection) == 2, "it waits for the whole message"


def test_its_topic_and_its_table_say_how_long_it_was(filed: Truth) -> None:
    assert DeadLetter.from_bytes(CUT.to_bytes()).original_bytes == len(WHOLE)
    with filed.reading() as connection:
        rows = {row["dead_letter_id"]: row for row in deadletters.listing(connection)}
    assert rows[CUT.dead_letter_id]["original_bytes"] == len(WHOLE)
    assert len(rows[CUT.dead_letter_id]["raw"]) == MAX_RAW_BYTES
    assert rows[SHORT.dead_letter_id]["original_bytes"] is None


def dlq(url: str, *arguments: str) -> Any:
    result = CliRunner().invoke(app, ["dlq", *arguments], env={"MEMRIVER_DATABASE_URL": url})
    if isinstance(result.exception, PoisonError):
        return result.exception.reason
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout + result.stderr


def test_the_command_shows_how_much_there_is(sqlite_truth: Truth, tmp_path: Any) -> None:
    sqlite_truth.run(lambda connection: deadletters.put(connection, [CUT, SHORT]))
    url = str(sqlite_truth.engine.url)
    sizes = {row["id"]: (row["bytes"], row["bytes_kept"]) for row in dlq(url, "list", "--json")}
    assert sizes == {CUT.dead_letter_id: (len(WHOLE), MAX_RAW_BYTES), SHORT.dead_letter_id: (1, 1)}
    shown = dlq(url, "show", CUT.dead_letter_id, "--json")
    assert (shown["bytes"], shown["bytes_kept"]) == (len(WHOLE), MAX_RAW_BYTES)
    assert f"{MAX_RAW_BYTES} of {len(WHOLE)}" in dlq(url, "show", CUT.dead_letter_id)
    assert "cut" not in dlq(url, "show", SHORT.dead_letter_id)
    refused = dlq(url, "redrive", CUT.dead_letter_id, "--anyway", "--dry-run", "--json")
    assert (refused["would"], list(refused["refused"])) == ([], [CUT.dead_letter_id])
    assert dlq(url, "fix", CUT.dead_letter_id, "--set", "role=user", "--dry-run", "--json") == "cut"
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(MENDED))
    fixed = dlq(url, "fix", CUT.dead_letter_id, "--file", str(whole), "--dry-run", "--json")
    assert fixed["would"] == [CUT.dead_letter_id]
