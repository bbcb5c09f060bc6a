"""The command line over a kept directory: what `process --json` tells, and looking further with the ordinary commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from streams.cli import main
from tests.pipeline.conftest import Demo

Ask = Callable[..., Any]


@pytest.fixture
def ask(demo: Demo, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """`ask(*arguments)`: the JSON that a command prints about the demo's directory."""
    monkeypatch.setenv("MEMRIVER_DATABASE_URL", f"sqlite:///{demo.data / 'memriver.db'}")

    def command(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["memriver", *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return json.loads(capfd.readouterr().out)

    return command


def test_the_result_has_what_programs_read(demo: Demo) -> None:
    assert {"memories", "turns", "events", "dead_letters", "reviews", "summary"} <= set(demo.result)
    memory = demo.result["memories"][0]
    assert {
        "id", "tenant", "owner", "namespace", "type", "category", "attribute", "value", "text", "language", "status",
        "version", "confidence", "sensitivity", "valid_from", "valid_to", "expires_at", "evidence", "evidence_count",
        "source_turn_ids", "provenance", "audit", "superseded_by",
    } <= set(memory)  # fmt: skip
    assert {"conversation_id", "turn_id", "user_id", "role", "sent_at", "outcome", "reason"} <= set(
        demo.result["turns"][0]
    )
    assert {"event_id", "change", "memory_id", "version", "owner", "owner_seq", "cause", "replaces"} <= set(
        demo.result["events"][0]
    )
    assert {"files", "turns", "outcomes", "filtered", "memories", "statuses", "events", "model_channel"} <= set(
        demo.result["summary"]
    )


def test_the_summary_counts_what_is_listed(demo: Demo) -> None:
    summary = demo.result["summary"]
    assert summary["turns"] == len(demo.result["turns"]) == sum(summary["outcomes"].values())
    assert summary["memories"] == len(demo.result["memories"]) == sum(summary["statuses"].values())
    assert summary["events"] == len(demo.result["events"])
    assert summary["model_channel"] == "off"


def test_json_on_stdout_and_nothing_else_is_said(demo: Demo) -> None:
    assert "Traceback" not in demo.stderr
    assert "WARNING" not in demo.stderr


def test_memories_are_listed_by_owner_and_status(demo: Demo, ask: Ask) -> None:
    found = ask("memories", "list", "--owner", "lilei", "--status", "active")
    assert {item["value"] for item in found if item["attribute"] == "residence"} == {"上海"}
    assert {item["owner"] for item in found} == {"lilei"}


def test_a_memory_is_shown_with_its_evidence_and_its_history(demo: Demo, ask: Ask) -> None:
    [old] = [item for item in demo.result["memories"] if (item["owner"], item["value"]) == ("lilei", "北京")]
    shown = ask("memories", "show", old["id"])
    assert shown["evidence"] == [{"turn_id": "li-setup-06", "quote": "我住在北京"}]
    history = ask("memories", "history", old["id"])
    assert [(row["version"], row["change"], row["memory"]["status"]) for row in history] == [
        (1, "created", "active"),
        (2, "superseded", "superseded"),
    ]


@pytest.mark.parametrize(
    ("turn_id", "outcome", "reason"),
    [
        ("li-setup-06", "remembered", None),
        ("li-setup-02", "filtered", "greeting"),
        ("li-move-05", "filtered", "retracted"),
        ("li-move-14", "filtered", "quarantined"),
        ("li-move-04", "batched", "model_off"),
    ],
)
def test_a_turns_outcome_can_be_looked_up(demo: Demo, ask: Ask, turn_id: str, outcome: str, reason: str | None) -> None:
    [row] = ask("turns", "status", turn_id)
    assert (row["outcome"], row["reason"]) == (outcome, reason)


def test_dead_letters_are_listed_with_reason_and_place_and_without_what_was_said(demo: Demo, ask: Ask) -> None:
    rows = {row["where"]: row for row in ask("dlq", "list")}
    assert rows["gateway.jsonl:62"]["reason"] == "unknown_role"
    assert "moderator" not in json.dumps(rows)
    letter = rows["gateway.jsonl:62"]["id"]
    assert "moderator" not in json.dumps(ask("dlq", "show", letter))
    assert "moderator" in ask("dlq", "show", letter, "--content")["content"]["text"]
    assert [row["where"] for row in ask("dlq", "list", "--reason", "not_json")] == ["gateway.jsonl:41"]
