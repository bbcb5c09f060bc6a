"""Chaos, the model: answers by the words of each turn alone, so that batches of any cut give the same candidates."""

from __future__ import annotations

import re
from typing import Any

_LINE = re.compile(r"^\[(\d+)\] (.+?) \d{4}-\d{2}-\d{2} \S+ \d{2}:\d{2}: (.*)$", re.MULTILINE)
_LIKES = (
    re.compile(r"^No tea tops (?P<value>\w+), at least on desk \d+\.$"),
    re.compile(r"^要说茶还是(?P<value>\w+?)顺口，工位\d+$"),
)


def likes_found(user: str) -> list[dict[str, Any]]:
    """What a good model would list for this prompt: one item for each sentence about tea."""
    items = []
    for line in _LINE.finditer(user):
        for pattern in _LIKES:
            match = pattern.match(line[3])
            if match is not None:
                items.append(
                    {
                        "turn": int(line[1]),
                        "speaker": line[2],
                        "type": "semantic",
                        "category": "preference",
                        "attribute": "likes",
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
