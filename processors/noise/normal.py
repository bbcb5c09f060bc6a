"""Noise, measures: the form in which two texts are the same text, and how much a text says."""

from __future__ import annotations

from typing import Final

import regex

from processors.slots import value_key

_DENSE: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_PLAIN: Final = regex.compile(r"[\p{L}\p{N}]")


def normal_text(text: str) -> str:
    """What repetitions share: NFKC, case-folded, single spaces, no punctuation at the edges."""
    return value_key(text)


def information(text: str) -> int:
    """How much a text says: a Chinese, Japanese or Korean character counts two, any other letter or digit one."""
    return len(_PLAIN.findall(text)) + len(_DENSE.findall(text))
