"""Unit tests, scenes: every scene knows its examples, and what is surfaced is what a friend would bring up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest
import yaml

from processors.context.scenes import Surfaced, scene_book, surfaced
from processors.slots import known_slots, slot_for
from schemas import Audit, Interval, Memory, new_id

NOW = datetime(2026, 3, 10, 4, 0, tzinfo=UTC)
DATA: dict[str, Any] = yaml.safe_load(files("processors.context").joinpath("scenes.yaml").read_text(encoding="utf-8"))
BELONGS = [(name, text) for name, row in DATA["scenes"].items() for text in row["examples"]]
DOES_NOT = [(name, text) for name, row in DATA["scenes"].items() for text in row["not"]]


def held(attribute: str, text: str, *, days_ago: float = 3, **fields: Any) -> Memory:
    """An active memory of the owner, stated some days ago."""
    slot, stated = slot_for(attribute), NOW - timedelta(days=days_ago)
    given: dict[str, Any] = {
        "id": new_id(attribute, text),
        "tenant": "acme",
        "owner": "ann",
        "namespace": f"user/ann/{slot.namespace}",
        "type": slot.type,
        "category": slot.category,
        "subject": "user",
        "attribute": attribute,
        "value": text,
        "cardinality": slot.cardinality,
        "text": text,
        "language": "zh",
        "status": "active",
        "version": 1,
        "confidence": 0.95,
        "sensitivity": slot.sensitivity,
        "source_kind": "user_statement",
        "intervals": (Interval(start=stated),),
        "first_stated_at": stated,
        "last_stated_at": stated,
        "timezone": "Asia/Shanghai",
        "audit": Audit(writer="rules:1", decision="accept", policy_version="1"),
    }
    return Memory.model_validate(given | fields)


def found(question: str, *memories: Memory, most: int = 5) -> list[str]:
    return [item.memory.text for item in surfaced(question, memories, now=NOW, timezone="Asia/Shanghai", most=most)]


@pytest.mark.parametrize(("name", "text"), BELONGS)
def test_a_question_of_a_scene_is_recognised(name: str, text: str) -> None:
    assert name in {scene.name for scene in scene_book().of(text)}


@pytest.mark.parametrize(("name", "text"), DOES_NOT)
def test_a_question_of_another_kind_is_not(name: str, text: str) -> None:
    assert name not in {scene.name for scene in scene_book().of(text)}


def test_a_scene_names_only_attributes_and_topics_that_exist() -> None:
    for scene in scene_book().scenes:
        assert {*scene.attributes, *scene.matching} <= set(known_slots())
        assert set(scene.plans) <= set(scene_book().topics)
    assert scene_book().safety <= set(known_slots())


def test_an_allergy_comes_up_when_food_is_asked_for_and_not_when_code_is() -> None:
    allergy = held("allergy", "对花生过敏", days_ago=800)
    assert found("推荐一家餐厅", allergy) == ["对花生过敏"]
    assert found("Where should we have dinner?", allergy) == ["对花生过敏"]
    assert found("这个函数怎么写", allergy) == []


def test_moving_next_month_comes_up_when_asked_for_restaurants() -> None:
    moving = held("plan", "下个月搬家到杭州")
    assert found("附近有什么好餐厅", moving) == ["下个月搬家到杭州"]
    assert found("any good restaurants near me?", held("plan", "Moving to Leeds next month")) == [
        "Moving to Leeds next month"
    ]


def test_a_move_that_is_over_does_not_come_up() -> None:
    assert found("附近有什么好餐厅", held("plan", "下周搬家到杭州", days_ago=60)) == []
    assert found("附近有什么好餐厅", held("plan", "打算搬家", days_ago=90)) == []


def test_an_order_for_a_time_holds_whatever_is_asked_and_only_while_it_runs() -> None:
    order = held("instruction", "这周不要提醒我开会", expires_at=NOW + timedelta(days=2))
    assert found("写一首诗", order) == ["这周不要提醒我开会"]
    assert found("写一首诗", order.model_copy(update={"expires_at": NOW})) == []
    assert found("写一首诗", held("instruction", "回答简短一点")) == []


def test_a_plan_near_the_day_that_is_named_comes_up() -> None:
    plan = held("plan", "3月13日要去体检")
    assert found("3月14日我们去哪里吃火锅", plan) == ["3月13日要去体检"]
    assert found("3月25日我们去哪里吃火锅", plan) == []
    assert found("schedule a call on 2026-03-12", plan) == ["3月13日要去体检"]


def test_the_calendar_shows_the_coming_week_without_a_day_being_named() -> None:
    assert found("帮我安排一下日程", held("plan", "3月13日要去体检"), held("plan", "5月1日结婚")) == [
        "3月13日要去体检",
        # A wedding matters to a calendar however far off it is.
        "5月1日结婚",
    ]


def test_tastes_come_up_only_if_they_are_about_the_scene() -> None:
    assert found("今晚吃什么好", held("dislikes", "不喜欢吃香菜"), held("dislikes", "不喜欢开早会")) == ["不喜欢吃香菜"]


def test_what_is_superseded_expired_or_over_never_comes_up() -> None:
    allergy = held("allergy", "对花生过敏")
    for update in (
        {"status": "superseded"},
        {"status": "quarantined"},
        {"expires_at": NOW - timedelta(seconds=1)},
        {"intervals": (Interval(start=NOW - timedelta(days=9), end=NOW - timedelta(days=1)),)},
    ):
        assert found("推荐一家餐厅", Memory.model_validate(allergy.model_dump() | update)) == []


def test_what_must_not_be_missed_has_room_beyond_the_limit_and_comes_first() -> None:
    tastes = [held("likes", f"喜欢吃第{number}种菜") for number in range(6)]
    allergies = [held("allergy", text, days_ago=400) for text in ("对花生过敏", "对虾过敏", "对芒果过敏")]
    assert set(found("推荐一家餐厅", *tastes, *allergies, most=4)[:3]) == {"对花生过敏", "对虾过敏", "对芒果过敏"}
    assert len(found("推荐一家餐厅", *tastes, *allergies, most=4)) == 4
    assert len(found("推荐一家餐厅", *allergies, most=0)) == 3


def test_the_order_in_which_memories_are_held_does_not_matter() -> None:
    memories = [
        held("allergy", "对花生过敏"),
        held("diet", "吃素"),
        held("likes", "喜欢吃辣"),
        held("plan", "明天搬家"),
    ]
    assert found("推荐一家餐厅", *memories) == found("推荐一家餐厅", *reversed(memories))


def test_each_memory_comes_once_with_its_strongest_reason() -> None:
    (only,) = surfaced("感冒了吃什么药", [held("allergy", "对青霉素过敏")], now=NOW, timezone="Asia/Shanghai")
    assert only == Surfaced(only.memory, "scene:food", True)
