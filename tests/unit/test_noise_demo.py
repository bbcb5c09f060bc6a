"""The demo log: what its lines are before any rule reads them, and that its expectations speak of people in it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from processors.noise import NoiseFilter
from processors.slots import known_slots
from schemas import Status, Turn

DEMO = Path(__file__).parents[2] / "ops" / "demo"
LINES = (DEMO / "gateway.jsonl").read_bytes().splitlines()
EXPECTED: dict[str, Any] = yaml.safe_load((DEMO / "expected.yaml").read_text(encoding="utf-8"))


def decoded() -> tuple[list[Turn], int]:
    turns, broken = [], 0
    for line in LINES:
        try:
            turns.append(Turn.from_bytes(line))
        except ValueError:
            broken += 1
    return turns, broken


TURNS, BROKEN = decoded()


def test_the_log_has_its_lines_its_broken_ones_and_its_repeated_one() -> None:
    assert len(LINES) == EXPECTED["lines"]
    assert EXPECTED["dead_letters"] == BROKEN
    deliveries = Counter((turn.turn_key, turn.revision) for turn in TURNS)
    assert sum(count - 1 for count in deliveries.values()) == EXPECTED["duplicate_deliveries"]


def test_the_log_has_an_edit_a_deletion_and_a_late_turn() -> None:
    assert {turn.revision for turn in TURNS} == {0, 1}
    assert sum(turn.deleted for turn in TURNS) == 1
    latest: dict[str, Turn] = {}
    late = []
    for turn in TURNS:
        before = latest.get(turn.conversation_id)
        if (
            before is not None
            and turn.sent_at < before.sent_at
            and turn.revision == 0
            and turn.turn_id.endswith("late")
        ):
            late.append(turn.turn_id)
        latest[turn.conversation_id] = turn
    assert late == ["mike-support-late"]


def test_the_filtered_turns_are_the_expected_ones() -> None:
    noise = NoiseFilter.load()
    counts = Counter(noise.judge(turn).reason for turn in TURNS)
    del counts[None]
    assert dict(counts) == EXPECTED["filtered"]


@pytest.mark.parametrize("row", EXPECTED["memories"], ids=lambda row: f"{row['owner']}-{row['value']}")
def test_an_expected_memory_was_said_by_its_owner(row: dict[str, Any]) -> None:
    said = "\n".join(turn.text for turn in TURNS if turn.user_id == row["owner"] and turn.role == "user")
    assert row["value"].replace("138****8000", "13800138000").casefold() in said.casefold()
    assert row["attribute"] is None or row["attribute"] in known_slots()
    statuses = row["status"] if isinstance(row["status"], list) else [row["status"]]
    assert all(Status(status) for status in statuses)
