"""Rules, channel: hits become candidates with stable identities, evidence and provenance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from processors.rules import RuleBook, candidates_from
from schemas import Candidate, Channel, Operation, Role, Sensitivity, SourceKind, Turn

SENT = datetime(2025, 6, 11, 4, 0, tzinfo=UTC)


def turn(text: str, **changes: Any) -> Turn:
    fields: dict[str, Any] = {
        "tenant": "acme",
        "conversation_id": "c1",
        "turn_id": "t1",
        "user_id": "u/1",
        "role": Role.USER,
        "text": text,
        "sent_at": SENT,
        "timezone": "Asia/Shanghai",
        "agent_id": "a1",
        "trace_id": "trace",
        "consent": True,
    }
    return Turn(**{**fields, **changes})


def candidates(text: str, **changes: Any) -> tuple[Candidate, ...]:
    said = turn(text, **changes)
    return candidates_from(said, RuleBook.load().match(said))


def test_a_candidate_carries_its_turn_its_slot_and_its_source() -> None:
    said = turn("记住我对花生过敏")
    (one,) = candidates("记住我对花生过敏")
    assert (one.operation, one.attribute, one.value) == (Operation.ASSERT, "allergy", "花生")
    assert (one.tenant, one.owner, one.namespace) == ("acme", "u/1", "user/u%2F1/health")
    assert (one.channel, one.source_kind, one.explicit) == (Channel.RULE, SourceKind.USER_STATEMENT, True)
    assert (one.source_turn_ids, one.turn_key, one.conversation_id) == (("t1",), said.turn_key, "c1")
    assert (one.event_time, one.stated_at, one.timezone) == (SENT, SENT, "Asia/Shanghai")
    assert one.sensitivity is Sensitivity.CONFIDENTIAL
    assert (one.agent_id, one.trace_id, one.consent) == ("a1", "trace", True)
    assert one.writer == f"rules:{RuleBook.load().version}"
    assert one.language == "zh"


def test_the_evidence_is_verbatim() -> None:
    text = "ＡＩ助手，我对花生、虾过敏！谢谢"
    for one in candidates(text):
        (evidence,) = one.evidence
        assert evidence.quote in text
        assert evidence.turn_id == "t1"


def test_each_stated_field_names_the_rule_it_comes_from() -> None:
    (moved,) = candidates("我上个月搬到上海了")
    assert set(moved.provenance) == {"attribute", "value", "text", "event_time"}
    assert {source.method for source in moved.provenance.values()} == {"rule:zh.residence_moved"}
    assert moved.event_time == datetime(2025, 4, 30, 16, tzinfo=UTC)

    (bounded,) = candidates("这周不要提醒我开会")
    assert bounded.valid_to == datetime(2025, 6, 15, 16, tzinfo=UTC)
    assert "valid_to" in bounded.provenance

    (plain,) = candidates("我住在上海")
    assert "event_time" not in plain.provenance


def test_the_same_turn_gives_the_same_identities_and_another_turn_others() -> None:
    text = "我叫李雷，住在上海，对花生和虾过敏"
    first = [one.candidate_id for one in candidates(text)]
    assert first == [one.candidate_id for one in candidates(text)]
    assert len(set(first)) == len(first) == 4
    assert not set(first) & {one.candidate_id for one in candidates(text, turn_id="t2")}
    assert not set(first) & {one.candidate_id for one in candidates(text, revision=1)}
    assert not set(first) & {one.candidate_id for one in candidates(text, tenant="other")}


def test_a_retraction_is_a_command_and_no_candidate() -> None:
    assert candidates("刚才说错了当我没说") == ()


def test_an_order_to_forget_clears_its_slot() -> None:
    (one,) = candidates("忘掉我的地址")
    assert (one.operation, one.attribute, one.value) == (Operation.CLEAR, "residence", "")
    assert one.namespace == "user/u%2F1/profile"


def test_an_open_attribute_is_a_single_fact_of_the_profile() -> None:
    (one,) = candidates("我的车牌号是浙A12345")
    assert (one.attribute, one.value, one.cardinality.value) == ("license_plate", "浙A12345", "single")
    assert one.namespace == "user/u%2F1/profile"


def test_a_slots_time_to_live_travels_with_the_candidate() -> None:
    (task,) = candidates("提醒我明天交报告")
    (home,) = candidates("我住在上海")
    assert (task.ttl_days, home.ttl_days) == (7, None)
    assert task.event_time == datetime(2025, 6, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize("text", ["Remind me to renew my passport in three months", "三个月后提醒我续签护照"])
def test_a_task_is_due_when_it_says_in_either_language(text: str) -> None:
    (task,) = candidates(text)
    assert (task.attribute, task.event_time) == ("task", datetime(2025, 9, 10, 16, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("My goal is to run a marathon next year", 2026),
        ("明年的目标是跑完马拉松", 2026),
        ("我今年的目标是存够十万块", 2025),
        ("I want to learn Spanish this year", 2025),
    ],
)
def test_a_goal_holds_from_now_until_the_time_it_names_is_over(text: str, year: int) -> None:
    (goal,) = candidates(text)
    assert (goal.attribute, goal.event_time) == ("goal", SENT)
    assert goal.valid_to == datetime(year, 12, 31, 16, tzinfo=UTC)


def test_a_goal_without_a_coming_time_names_no_end() -> None:
    for text in ("My goal is to run a marathon", "I've been training for a marathon since last year"):
        (goal,) = candidates(text)
        assert (goal.attribute, goal.valid_to) == ("goal", None)


def test_a_version_of_ones_own_names_the_writer() -> None:
    said = turn("我住在上海")
    (one,) = candidates_from(said, RuleBook.load().match(said), version="v7")
    assert one.writer == "rules:v7"


def test_a_deleted_turn_and_a_turn_without_words_say_nothing() -> None:
    assert candidates("我住在上海", deleted=True) == ()
    assert candidates("", conversation_end=True) == ()
    assert candidates("我住在上海", role=Role.ASSISTANT) == ()
