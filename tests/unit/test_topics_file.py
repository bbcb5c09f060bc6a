"""Unit tests: the declared topics keep what the design needs of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.turn import MAX_TEXT

DECLARED: dict[str, Any] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "streams" / "topics.yaml").read_text(encoding="utf-8")
)
TOPICS: dict[str, dict[str, Any]] = {topic["name"]: topic for topic in DECLARED["topics"]}
DAY = 86_400_000

NAMES = {"turns", "turns.sealed", "batches", "candidates", "commands", "memory_updated", "feedback", "deadletters"}


def test_every_topic_of_the_design_is_declared_once() -> None:
    assert len(DECLARED["topics"]) == len(TOPICS)
    assert set(TOPICS) == NAMES


def test_candidates_and_commands_of_one_owner_reach_one_writer() -> None:
    assert TOPICS["candidates"]["partitions"] == TOPICS["commands"]["partitions"]
    assert TOPICS["candidates"]["key"] == TOPICS["commands"]["key"] == "owner"


def test_plain_text_is_kept_for_days_and_only_the_sealed_log_for_years() -> None:
    for_ever = {name for name, topic in TOPICS.items() if topic["config"].get("retention.ms") == -1}
    assert for_ever == {"turns.sealed"}
    assert TOPICS["turns"]["config"]["retention.ms"] == 7 * DAY


def test_an_erased_memory_leaves_the_compacted_log_within_a_day() -> None:
    config = TOPICS["memory_updated"]["config"]
    assert config["cleanup.policy"] == "compact"
    assert config["max.compaction.lag.ms"] <= DAY
    assert config["segment.ms"] <= config["max.compaction.lag.ms"]


def test_a_batch_of_five_turns_of_the_longest_text_fits() -> None:
    assert TOPICS["batches"]["config"]["max.message.bytes"] >= 5 * MAX_TEXT * len("𠮷".encode())


@pytest.mark.parametrize("name", sorted(NAMES - {"deadletters"}))
def test_a_message_of_any_topic_fits_wrapped_into_a_dead_letter(name: str) -> None:
    limit = TOPICS["deadletters"]["config"]["max.message.bytes"]
    assert TOPICS[name]["config"]["max.message.bytes"] * 4 / 3 + 65_536 <= limit
