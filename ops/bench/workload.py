"""Benchmarks, the load: bilingual turns in the proportions of ordinary chat, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from schemas import Role, Turn

_USER = (
    "帮我看一下明天的会议安排，下午那场能不能往后挪半个小时",
    "The export job failed again last night, can you look at the log and tell me which step broke?",
    "这个方案的报价需要再核对一遍，客户那边希望周五之前给到最终版本",
    "I think we should compare both vendors on price and on how quickly they answer tickets",
    "哈哈哈好的",
    "thanks!",
    "接口返回的字段和文档对不上，user_name 变成了 nickname，前端已经报错了",
    "Could you draft a short reply that says we need two more days for the review?",
)
_FACTS = (
    "记住我对{x}过敏",
    "我住在{x}",
    "I live in {x}",
    "I'm allergic to {x}",
    "以后回答简短一点",
    "Remember that my desk number is {x}",
    "我喜欢{x}",
)
_VALUES = ("花生", "芒果", "上海", "杭州", "Leeds", "Berlin", "shellfish", "penicillin", "42", "爬山", "摄影")
_ASSISTANT = (
    "好的，我把会议改到三点半，并且通知了其他人。",
    "The third step failed because the disk was full; I have freed space and started it again.",
    "已经整理好了，您看一下附件里的第二版。",
)
_START = datetime(2026, 3, 2, 1, tzinfo=UTC)


def turns(
    count: int, *, conversations: int = 2_000, facts: float = 0.1, seed: int = 7, first: int = 0
) -> Iterator[Turn]:
    """`count` turns over `conversations` people; a share of `facts` of them states something for the rule channel.

    `first` numbers the first turn, so that several calls make one long log of the same people.
    """
    rng = random.Random(seed)
    for number in range(first, first + count):
        person = rng.randrange(conversations)
        speaks = rng.random()
        if speaks < facts:
            role, text = Role.USER, rng.choice(_FACTS).format(x=rng.choice(_VALUES))
        elif speaks < 0.65:
            role, text = Role.USER, f"{rng.choice(_USER)} #{number}"
        else:
            role, text = Role.ASSISTANT, f"{rng.choice(_ASSISTANT)} #{number}"
        yield Turn(
            tenant="bench",
            conversation_id=f"c{person}",
            turn_id=f"t{number}",
            user_id=f"u{person}",
            role=role,
            text=text,
            sent_at=_START + timedelta(seconds=number / 10),
            timezone="Asia/Shanghai",
        )
