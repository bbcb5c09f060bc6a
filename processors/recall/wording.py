"""Recall, the wording: the reviewed word lists, compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import regex

from processors.documents import parse
from processors.slots import known_slots

_READ_AT_MOST = 4_000
"""Characters of a text that patterns look at; what a message is about stands near its beginning."""


@dataclass(frozen=True, slots=True)
class Words:
    """One list in both languages."""

    pattern: regex.Pattern[str]

    def within(self, text: str) -> bool:
        """Whether any of the words occurs."""
        return self.pattern.search(text[:_READ_AT_MOST]) is not None

    def first(self, text: str) -> str | None:
        """The first of the words that occurs, as written."""
        found = self.pattern.search(text[:_READ_AT_MOST])
        return found.group() if found else None


@dataclass(frozen=True, slots=True)
class Wording:
    """All lists of `wording.yaml`, by section and name."""

    asks: Mapping[str, Words]
    refers: Mapping[str, Words]
    text: Mapping[str, Words]


@lru_cache(maxsize=1)
def wording() -> Wording:
    """The word lists."""
    data = _read("wording.yaml")
    sections = {
        section: {name: Words(_compiled([*row["en"], *row["zh"]])) for name, row in data[section].items()}
        for section in ("asks", "refers", "text")
    }
    return Wording(**sections)


@lru_cache(maxsize=1)
def slot_words() -> Mapping[str, Words]:
    """How a question names a slot, by attribute: its labels and its aliases."""
    data = _read("aliases.yaml")
    found: dict[str, Words] = {}
    for attribute, slot in known_slots().items():
        row = data.get(attribute, {"en": [], "zh": []})
        english = [rf"\b(?:{word})\b" for word in [*row["en"], regex.escape(slot.label_en)]]
        found[attribute] = Words(_compiled([*english, *row["zh"], regex.escape(slot.label_zh)]))
    return found


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = parse(files("processors.recall").joinpath(name).read_text(encoding="utf-8"))
    return data


def _compiled(patterns: list[str]) -> regex.Pattern[str]:
    return regex.compile("|".join(f"(?:{pattern})" for pattern in patterns), regex.IGNORECASE)
