"""Judgement of language: Chinese, English or both, by counting scripts; no model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

_LINK: Final = re.compile(r"\S*://\S+|\S+@\S+\.\S+")
_HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_KANA: Final = re.compile(r"[\u3041-\u30fa\u30fd-\u30ff\uff66-\uff9d]")
_LATIN_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+(?:['’][A-Za-z]+)*")
_OTHER_LETTER: Final = re.compile(r"[^\W\d_A-Za-z\u00aa\u00ba\u00c0-\u024f]")

# One English word carries about as much as two Chinese characters.
_WORD_WEIGHT: Final = 2
# A Chinese sentence with a product name stays Chinese, an English one with a Chinese name stays English.
_CHINESE_FROM: Final = 0.7
_ENGLISH_TO: Final = 0.3


def detect(text: str) -> str:
    """One of zh, en, mixed, other (another script, such as kana, hangul or Cyrillic) and und (no letters at all).

    Links and mail addresses do not count. Any Latin script is "en": what is told apart here is which rules to try.
    """
    han, words, other = _counts(text)
    if other > (han + words * _WORD_WEIGHT) / 4:
        return "other"
    total = han + words * _WORD_WEIGHT
    if total == 0:
        return "und"
    share = han / total
    if share >= _CHINESE_FROM:
        return "zh"
    return "en" if share <= _ENGLISH_TO else "mixed"


def of_conversation(texts: Iterable[str]) -> Literal["zh", "en"]:
    """The language most turns are in; a tie goes to the one with more text, and no text at all is "en"."""
    chinese = english = han_total = word_total = 0
    for text in texts:
        language = detect(text)
        chinese += language == "zh"
        english += language == "en"
        han, words, _ = _counts(text)
        han_total += han
        word_total += words
    if chinese != english:
        return "zh" if chinese > english else "en"
    return "zh" if han_total > word_total * _WORD_WEIGHT else "en"


def _counts(text: str) -> tuple[int, int, int]:
    """Han characters, Latin words and letters of other scripts."""
    if "://" in text or "@" in text:
        text = _LINK.sub(" ", text)
    words = len(_LATIN_WORD.findall(text))
    if text.isascii():
        return 0, words, 0
    han, kana = len(_HAN.findall(text)), len(_KANA.findall(text))
    if kana:
        # Japanese writes with both; its Han characters are no sign of Chinese.
        return 0, words, han + kana
    return han, words, len(_OTHER_LETTER.findall(text)) - han
