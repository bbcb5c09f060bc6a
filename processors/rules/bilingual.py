"""Rules, bilingual word lists: one list for each language, of which only that of the text's own script is tried."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import regex

Found = regex.Match[str] | re.Match[str]
Engine = regex.Pattern[str] | re.Pattern[str]

_HAN: Final = regex.compile(r"\p{Han}")
_LATIN: Final = re.compile(r"[a-z]")
_FIRM: Final = re.compile(r"[*+?}]\+|\(\?>")
"""Possessive quantifiers and atomic groups; a literal plus after a star is taken for one, which costs a little time."""


class Bilingual:
    """A pattern over folded text. `patterns` are by language; every match of each must hold a letter of its own script.

    Behaves as the alternation of all of them, in the order of the mapping.

    Raises:
        regex.error: a pattern does not compile.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._both = engine("|".join(f"(?:{pattern})" for pattern in patterns.values()))
        self._one = {language: engine(pattern) for language, pattern in patterns.items()}

    def search(self, text: str) -> Found | None:
        """As of a compiled pattern."""
        return self._of(text).search(text)

    def match(self, text: str, start: int = 0, end: int = sys.maxsize) -> Found | None:
        """As of a compiled pattern, in this part of the text."""
        return self._of(text).match(text, start, end)

    def fullmatch(self, text: str) -> Found | None:
        """As of a compiled pattern."""
        return self._of(text).fullmatch(text)

    def _of(self, text: str) -> Engine:
        return self._one.get(_script(text), self._both)


@lru_cache(maxsize=64)
def _script(text: str) -> str:
    if _HAN.search(text) is None:
        return "en"
    return "" if _LATIN.search(text) else "zh"


def engine(pattern: str) -> Engine:
    """The standard library's engine where it knows the syntax: it gives up on a wrong beginning in half the time.

    Not for what keeps its first choice: CPython's before 3.11.5 finds other matches there than it should (its issue 106052).

    Raises:
        regex.error: neither engine takes it.
    """
    if _FIRM.search(pattern) is not None:
        return regex.compile(pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a set within a set, which the two read differently
            return re.compile(pattern)
    except (re.error, Warning):
        return regex.compile(pattern)
