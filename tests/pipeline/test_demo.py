"""The demo log: what must come of it comes, what must not does not, twice and in any order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import select

from processors.keywords import sparse
from schemas import Status, digest
from sinks.embedders import make_embedder
from sinks.truth import Truth, make_engine, memories, tables
from sinks.vectors import Scope, open_vectors
from tests.pipeline.conftest import DEMO, Demo
from tests.pipeline.river import Left

EXPECTED = yaml.safe_load((DEMO / "expected.yaml").read_text(encoding="utf-8"))


def expectation_id(row: dict[str, Any]) -> str:
    return "-".join(str(row.get(name, "any")) for name in ("owner", "attribute", "value"))


def says(memory: dict[str, Any], words: str) -> bool:
    """Whether a memory's value or text has the words."""
    return words.casefold() in f"{memory['value']}\n{memory['text']}".casefold()


def fits(memory: dict[str, Any], row: dict[str, Any]) -> bool:
    """As the head of expected.yaml defines it."""
    statuses = row["status"] if isinstance(row["status"], list) else [row["status"]]
    if memory["owner"] != row["owner"] or memory["status"] not in statuses:
        return False
    if row["attribute"] is not None and memory["attribute"] != row["attribute"]:
        return False
    if row.get("match") == "contains":
        return says(memory, str(row["value"]))
    return str(memory["value"]).casefold() == str(row["value"]).casefold()


@pytest.mark.parametrize("row", EXPECTED["memories"], ids=expectation_id)
def test_what_must_be_remembered_is(demo: Demo, row: dict[str, Any]) -> None:
    about = [item for item in demo.result["memories"] if item["owner"] == row["owner"]]
    assert any(fits(item, row) for item in about), [
        (item["attribute"], item["value"], item["status"]) for item in about
    ]


@pytest.mark.parametrize("row", EXPECTED["never_active"], ids=expectation_id)
def test_what_must_not_hold_does_not(demo: Demo, row: dict[str, Any]) -> None:
    active = [item for item in demo.result["memories"] if item["status"] == "active"]
    found = [item for item in active if row.get("owner") in (None, item["owner"]) and says(item, str(row["value"]))]
    assert found == []


@pytest.mark.parametrize("secret", EXPECTED["never_stored"])
def test_a_secret_is_in_no_memory_no_history_no_event_and_no_ledger(demo: Demo, secret: str) -> None:
    assert secret not in str(demo.result["memories"])
    assert secret not in str(demo.result["events"])
    truth = Truth(make_engine(f"sqlite:///{demo.data / 'memriver.db'}"))
    try:
        with truth.reading() as connection:
            for table in (tables.memories, tables.memory_versions, tables.claims, tables.cells, tables.reviews):
                assert secret not in str(connection.execute(select(table)).all()), table.name
    finally:
        truth.close()


def test_turns_that_never_reach_a_model_are_counted_by_reason(demo: Demo) -> None:
    counted = demo.result["summary"]["filtered"]
    assert {reason: counted.get(reason) for reason in EXPECTED["filtered"]} == EXPECTED["filtered"]


def test_every_line_has_an_outcome_and_the_broken_ones_a_place(demo: Demo) -> None:
    turns = demo.result["turns"]
    # The duplicate delivery and the two later revisions are no turns of their own.
    assert len(turns) == EXPECTED["lines"] - EXPECTED["duplicate_deliveries"] - 2
    assert all(row["outcome"] for row in turns)
    letters = demo.result["dead_letters"]
    assert {(row["where"], row["reason"]) for row in letters} == {
        ("gateway.jsonl:41", "not_json"),
        ("gateway.jsonl:62", "unknown_role"),
    }
    assert len(letters) == EXPECTED["dead_letters"]


def test_poisoned_turns_are_locked_up_whole_and_shown_to_a_person(demo: Demo) -> None:
    poisoned = ("li-move-14", "anna-move-06")
    caused = [item for item in demo.result["memories"] if set(item["source_turn_ids"]) & set(poisoned)]
    assert {item["owner"] for item in caused} == {"lilei", "anna"}
    assert {item["status"] for item in caused} == {"quarantined"}
    asked = {row["memory_id"] for row in demo.result["reviews"] if row["kind"] == "quarantine"}
    assert {item["id"] for item in caused} <= asked


def test_each_version_went_out_as_an_event_exactly_once_and_in_order(demo: Demo) -> None:
    events = demo.result["events"]
    assert max(Counter(event["event_id"] for event in events).values()) == 1
    versions: dict[str, list[int]] = {}
    for event in events:
        versions.setdefault(event["memory_id"], []).append(event["version"])
    assert all(found == list(range(1, len(found) + 1)) for found in versions.values())
    assert {key: found[-1] for key, found in versions.items()} == {
        item["id"]: item["version"] for item in demo.result["memories"]
    }
    sequences: dict[str, list[int]] = {}
    for event in events:
        sequences.setdefault(event["owner"], []).append(event["owner_seq"])
    assert all(found == list(range(1, len(found) + 1)) for found in sequences.values())


def test_a_superseded_residence_names_its_successor_and_ends_when_that_begins(demo: Demo) -> None:
    of_lilei = {
        item["value"]: item
        for item in demo.result["memories"]
        if item["owner"] == "lilei" and item["attribute"] == "residence"
    }
    old, new = of_lilei["北京"], of_lilei["上海"]
    assert old["superseded_by"] == new["id"]
    assert old["valid_to"] == new["valid_from"] == "2026-01-31T16:00:00Z", "上个月 in Shanghai, said in March"
    assert new["evidence"] == [{"turn_id": "li-move-02", "quote": "我上个月搬到上海了"}]


def test_an_order_for_this_week_ends_with_the_week_in_the_speakers_zone(demo: Demo) -> None:
    [order] = [item for item in demo.result["memories"] if says(item, "提醒我开会")]
    assert order["expires_at"] == "2026-03-15T16:00:00Z", "Sunday midnight in Shanghai"


@pytest.mark.parametrize(("word", "value"), [("花生", "花生"), ("上海", "上海"), ("苏州", "苏州")])
def test_two_chinese_characters_find_the_memory(demo: Demo, word: str, value: str) -> None:
    embedder = make_embedder("hashing")
    store = open_vectors(
        f"edge:{demo.data / 'vectors'}", prefix="memories", model=embedder.model, dimension=embedder.dimension
    )
    store.ensure()
    try:
        owner = next(item["owner"] for item in demo.result["memories"] if item["value"] == value)
        scope = Scope("demo", (digest("demo", "user", owner),))
        hits = store.search_sparse(sparse(word), scope, 5)
        by_id = {item["id"]: item["value"] for item in demo.result["memories"]}
        assert hits and by_id[hits[0].id] == value
    finally:
        store.close()


def test_the_vector_store_has_every_memory_at_its_version_and_no_word_of_it(demo: Demo) -> None:
    embedder = make_embedder("hashing")
    store = open_vectors(
        f"edge:{demo.data / 'vectors'}", prefix="memories", model=embedder.model, dimension=embedder.dimension
    )
    store.ensure()
    try:
        points = {point.id: point for point in store.scroll()}
    finally:
        store.close()
    held = {item["id"]: (item["version"], item["status"]) for item in demo.result["memories"]}
    assert {key: (point.version, point.status) for key, point in points.items()} == held
    assert not any(item["text"] in str(points[item["id"]].payload) for item in demo.result["memories"] if item["text"])


class TestOnceMore:
    """The same log again, by another process, into the same directory."""

    def test_nothing_changes(self, demo: Demo, demo_again: Left) -> None:
        before = {item["id"]: item for item in demo.result["memories"]}
        assert {item.id: item.version for item in demo_again.memories} == {
            key: item["version"] for key, item in before.items()
        }
        assert {item.id: item.status.value for item in demo_again.memories} == {
            key: item["status"] for key, item in before.items()
        }
        assert {item.id: item.evidence_count for item in demo_again.memories} == {
            key: item["evidence_count"] for key, item in before.items()
        }
        assert len(demo_again.letters) == EXPECTED["dead_letters"]

    def test_no_event_is_sent(self, demo_again: Left) -> None:
        assert demo_again.events == []
        assert demo_again.unpublished == 0


class TestShuffled:
    """The same lines in another order, in a fresh directory."""

    def test_what_holds_is_the_same_to_the_version(self, demo: Demo, demo_again: Left, demo_shuffled: Left) -> None:
        assert demo_shuffled.current() == demo_again.current()

    def test_what_does_not_hold_is_the_same(self, demo_again: Left, demo_shuffled: Left) -> None:
        assert demo_shuffled.past() == demo_again.past()

    def test_each_version_went_out_once(self, demo_shuffled: Left) -> None:
        sent = [event.event_id for event in demo_shuffled.events]
        assert sorted(sent) == sorted(demo_shuffled.versions)


def test_the_directory_opens_with_the_ordinary_commands(demo: Demo, demo_again: Left) -> None:
    truth = Truth(make_engine(f"sqlite:///{demo.data / 'memriver.db'}"))
    try:
        with truth.reading() as connection:
            assert len(memories.listing(connection, owner="lilei", status=Status.ACTIVE)) == len(
                demo_again.of("lilei", Status.ACTIVE)
            )
    finally:
        truth.close()
    assert Path(demo.data / "vectors").is_dir()
