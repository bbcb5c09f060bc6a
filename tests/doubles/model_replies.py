"""Tests, doubles: the ways a model can answer, and the rule by which the double finds what a good one would list."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

Item = dict[str, Any]
Rule = Callable[[str], list[Item]]
"""From the user message (turn lines `[1] user 2026-01-01 …: words`) to the items that a good model would list."""


class Behaviour(StrEnum):
    """How one chat call is answered. All but the last group answer 200."""

    OK = "ok"
    FENCES = "fences"
    PROSE_AROUND = "prose_around"
    THINK = "think"
    THINK_UNCLOSED = "think_unclosed"
    THINK_INSIDE = "think_inside"
    REASONING_ONLY = "reasoning_only"
    TWO_ANSWERS = "two_answers"
    BARE_LIST = "bare_list"
    TRAILING_COMMA = "trailing_comma"
    DUPLICATES = "duplicates"
    WRONG_ALIAS = "wrong_alias"
    WRONG_LANGUAGE = "wrong_language"
    WRONG_TYPES = "wrong_types"
    ONE_BAD_ITEM = "one_bad_item"
    COPIED_EXAMPLE = "copied_example"
    EMPTY = "empty"
    PROSE = "prose"
    BLANK = "blank"
    TRUNCATED = "truncated"
    HUGE = "huge"
    NESTED = "nested"
    REFUSAL = "refusal"
    ERROR_WITH_200 = "error_with_200"
    RATE_LIMIT_WITH_200 = "rate_limit_with_200"
    HTML_WITH_200 = "html_with_200"
    SLOW_DRIP = "slow_drip"

    RATE_LIMITED = "rate_limited"
    RATE_LIMITED_SILENT = "rate_limited_silent"
    SERVER_ERROR = "server_error"
    UNAUTHORIZED = "unauthorized"
    NO_RESPONSE_FORMAT = "no_response_format"
    NO_JSON_SCHEMA = "no_json_schema"
    NO_MAX_TOKENS = "no_max_tokens"
    TOO_LONG = "too_long"
    CONTENT_POLICY = "content_policy"
    BAD_REQUEST = "bad_request"
    HANG = "hang"
    RESET = "reset"


_LINE = re.compile(r"^\[(\d+)\] (.+?) \d{4}-\d{2}-\d{2} \S+ \d{2}:\d{2}: (.*)$", re.MULTILINE)
_SENTENCES: tuple[tuple[re.Pattern[str], str, str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), attribute, kind, category)
    for pattern, attribute, kind, category in (
        (r"我(?:搬到了?|住在)(?P<value>[^，。！？,.\s了]+)", "residence", "semantic", "fact"),
        (r"我对(?P<value>[^，。！？,.\s]+?)过敏", "allergy", "semantic", "fact"),
        (r"我(?:最|很)?喜欢(?P<value>[^，。！？,.\s]+)", "likes", "semantic", "preference"),
        (r"我叫(?P<value>[^，。！？,.\s]+)", "name", "semantic", "fact"),
        (r"\bI (?:moved to|live in) (?P<value>[A-Z]\w+)", "residence", "semantic", "fact"),
        (r"\bI(?:'m| am) allergic to (?P<value>\w+)", "allergy", "semantic", "fact"),
        (r"\bI (?:like|love) (?P<value>\w+(?: \w+)?)", "likes", "semantic", "preference"),
        (r"\bmy name is (?P<value>[A-Z]\w+)", "name", "semantic", "fact"),
    )
)


def sentences_found(user: str) -> list[Item]:
    """The deterministic rule: sentences of a few known forms, in the order they stand there."""
    items: list[Item] = []
    for line in _LINE.finditer(user):
        for pattern, attribute, kind, category in _SENTENCES:
            for match in pattern.finditer(line[3]):
                items.append(
                    {
                        "turn": int(line[1]),
                        "speaker": line[2],
                        "type": kind,
                        "category": category,
                        "attribute": attribute,
                        "subject": "user",
                        "value": match["value"],
                        "text": match[0],
                        "quote": match[0],
                        "confidence": 0.9,
                        "operation": "assert",
                        "time": None,
                    }
                )
    return items


def spoiled(behaviour: Behaviour, items: list[Item]) -> str:
    """The good answer with these items, wrapped or damaged as ordered."""
    good = answer(items)
    match behaviour:
        case Behaviour.FENCES:
            return f"```json\n{good}\n```"
        case Behaviour.PROSE_AROUND:
            return f"Here is what {{I}} found:\n{good}\nLet me know [if] you need more."
        case Behaviour.THINK:
            return f'<think>\nperhaps {{"memories": []}}?\n</think>\n{good}'
        case Behaviour.THINK_UNCLOSED:
            return f"<think>\nlet me see\n{good}"
        case Behaviour.THINK_INSIDE:
            return f"<think>\nlet me see\n{good}\n</think>"
        case Behaviour.TWO_ANSWERS:
            return f"{answer([])}\nOn reflection:\n{good}"
        case Behaviour.BARE_LIST:
            return json.dumps(items, ensure_ascii=False)
        case Behaviour.TRAILING_COMMA:
            return good.removesuffix("]}") + ",]}"
        case Behaviour.DUPLICATES:
            return answer([item for item in items for _ in range(3)])
        case Behaviour.WRONG_ALIAS:
            return answer([{**item, "turn": 77} for item in items])
        case Behaviour.WRONG_LANGUAGE:
            return answer([{**item, "text": _other_language(str(item["text"]))} for item in items])
        case Behaviour.WRONG_TYPES:
            return answer([{**item, "turn": f"[{item['turn']}]", "confidence": "90%", "time": 5} for item in items])
        case Behaviour.ONE_BAD_ITEM:
            return answer([*items[:1], {"turn": {}, "value": ["x", "y"]}, "nonsense", *items[1:]])
        case Behaviour.COPIED_EXAMPLE:
            copied = {"turn": 1, "value": "⟨city⟩", "quote": "I moved to ⟨city⟩ ⟨time words⟩", "attribute": "residence"}
            return answer([copied, *items])
        case Behaviour.EMPTY:
            return answer([])
        case Behaviour.PROSE:
            return "I could not find anything of note, but it was a pleasant conversation."
        case Behaviour.BLANK:
            return "  \n"
        case Behaviour.HUGE:
            return f"<think>{'so ' * 350_000}</think>{good}"
        case Behaviour.NESTED:
            return '{"memories": [' + "[" * 1_000_000
        case _:
            return good


def _other_language(text: str) -> str:
    return "说话人的情况" if text.isascii() else "The speaker said something"


def answer(items: Iterable[Item | str]) -> str:
    """The text of a good answer."""
    return json.dumps({"memories": list(items)}, ensure_ascii=False)
