"""Unit tests, open loops: what is asked, promised or left open stays open until it is answered, done or settled."""

from __future__ import annotations

import pytest

from processors.session import LoopKind, Said, follow
from tests.unit.session.talk import same, talk


def left(*lines: str) -> list[tuple[LoopKind, str]]:
    return [(loop.kind, loop.text) for loop in follow([], talk(*lines), same)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("u: 明天几点开会？", LoopKind.QUESTION),
        ("u: 这个方案可行吗", LoopKind.QUESTION),
        ("u: What time is the meeting", LoopKind.QUESTION),
        ("a: 请问您想要几点出发？", LoopKind.QUESTION),
        ("u: 帮我查一下航班", LoopKind.REQUEST),
        ("u: Please translate this page into German.", LoopKind.REQUEST),
        ("u: 我下周把合同发给你", LoopKind.PROMISE),
        ("a: 稍后给您回复报价", LoopKind.PROMISE),
        ("u: I'll send you the guest list on Friday.", LoopKind.PROMISE),
        ("u: 合同的事待确认", LoopKind.PENDING),
        ("u: TODO 更新文档", LoopKind.PENDING),
        ("u: The venue is still to be confirmed", LoopKind.PENDING),
        ("u: 预算还没定", LoopKind.PENDING),
        ("u: We're waiting for legal.", LoopKind.PENDING),
    ],
)
def test_a_sentence_opens_a_loop(line: str, kind: LoopKind) -> None:
    assert [found for found, _ in left(line)] == [kind]


@pytest.mark.parametrize(
    "line",
    [
        "u: 我会开车",
        "u: 我去过北京",
        "u: I will be thirty in May.",
        "u: 好吗？",
        "u: 谢谢推荐，我会去看一看",
        "a: 我们明天再聊",
        "u: Thanks, I'll check it out!",
        "u: How are you?",
        "a: Anything else I can help with?",
        "a: 还有什么可以帮您的吗？",
        "u: 今天天气不错",
        "-u: 在吗？",
        "t: status pending",
        "s: Ask the user what they need?",
        "u: 他问：“明天几点开会？”",
        "u: ???",
        "a: Let me check.",
    ],
)
def test_a_sentence_opens_none(line: str) -> None:
    assert left(line) == []


@pytest.mark.parametrize(
    "lines",
    [
        ("u: 明天几点开会？", "a: 下午三点。"),
        ("u: 明天几点开会？", "a: 我查一下", "a: 下午三点。"),
        ("a: 请问您想要几点出发？", "u: 九点"),
        ("a: Which size?", "u: M"),
        ("a: Which size?", "-u: ok"),
        ("u: 帮我查一下航班", "a: 有三班：8点、10点、12点。"),
        ("u: What time is it?", "bob: Nine."),
        ("u: 我下周把合同发给你", "u: 合同已经发给你了"),
        ("u: I'll send you the guest list on Friday.", "u: The guest list is sent."),
        ("u: 合同的事待确认", "u: 合同已经确认了"),
        ("u: The venue is still to be confirmed", "a: The venue is confirmed: Nopa."),
        ("u: 帮我订餐厅", "u: 餐厅不用了"),
        ("u: 我来处理", "u: 搞定了"),
        ("u: I'll fix it.", "u: Done."),
    ],
)
def test_an_answer_or_a_deed_closes_it(lines: tuple[str, ...]) -> None:
    assert left(*lines) == []


@pytest.mark.parametrize(
    ("lines", "open_"),
    [
        (("u: 明天几点开会？", "a: 我查一下"), ["明天几点开会？"]),
        (("u: 明天几点开会？", "t: 15:00"), ["明天几点开会？"]),
        (("u: 明天几点开会？", "u: 快点"), ["明天几点开会？"]),
        (("u: Which hotel?", "a: Which city?"), ["Which hotel?", "Which city?"]),
        (("u: 合同的事待确认", "u: 发票已经确认了"), ["合同的事待确认"]),
        (("u: 合同的事待确认", "u: 合同还没确认"), ["合同的事待确认", "合同还没确认"]),
        (("u: I'll send you the list.", "a: Great, the table is booked."), ["I'll send you the list."]),
    ],
)
def test_anything_else_leaves_it_open(lines: tuple[str, ...], open_: list[str]) -> None:
    assert [text for _, text in left(*lines)] == open_


def test_an_answer_closes_the_last_question_and_older_ones_only_if_it_is_about_them() -> None:
    asked = ("u: Which hotel did they recommend?", "a: Let me check.", "u: What's the weather like?")
    assert [text for _, text in left(*asked, "a: It will be sunny.")] == ["Which hotel did they recommend?"]
    assert left(*asked, "a: Sunny. The hotel they recommend is the Ritz.") == []


def test_a_reply_closes_the_turn_it_answers() -> None:
    said = talk("u: Which hotel?", "u: And when?", "a: The Ritz.")
    answer = Said(said[2].turn.model_copy(update={"reply_to": "t1"}))
    assert follow([], [*said[:2], answer], same) == []


def test_loops_are_followed_on_from_where_they_were() -> None:
    before = follow([], talk("u: 明天几点开会？", "u: 合同的事待确认"), same)
    assert [loop.text for loop in follow(before, talk("a: 会议是下午三点。", start=3), same)] == ["合同的事待确认"]


def test_an_edited_turn_opens_what_it_says_now() -> None:
    said = talk("u: 明天几点开会？")
    edited = Said(said[0].turn.model_copy(update={"text": "后天几点开会？", "revision": 1}))
    assert [(loop.text, loop.revision) for loop in follow(follow([], said, same), [edited], same)] == [
        ("后天几点开会？", 1)
    ]


def test_a_loop_is_masked_before_it_is_kept() -> None:
    (loop,) = follow([], talk("u: 能打 13800138000 吗？"), lambda text: text.replace("13800138000", "138****8000"))
    assert loop.text == "能打 138****8000 吗？"


def test_a_conversation_keeps_a_bounded_number_of_loops_the_newest() -> None:
    loops = follow([], talk(*(f"u: 第{number}件事待确认" for number in range(50))), same)
    assert len(loops) == 20
    assert loops[-1].text == "第49件事待确认"
