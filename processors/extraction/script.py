"""Extraction: whether a sentence is still in the language that was spoken (FIELD_REPORTS 13)."""

from __future__ import annotations

import regex

_HAN = regex.compile(r"\p{Han}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HANGUL = regex.compile(r"\p{Hangul}")
_LATIN = regex.compile(r"\p{Latin}")
_OTHER = regex.compile(r"[\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Thai}\p{Devanagari}\p{Greek}]")


def language_of(text: str, default: str) -> str:
    """`zh`, `ja`, `ko` or `en` by script, else `default`; a Chinese sentence with English words in it is Chinese."""
    if _KANA.search(text):
        return "ja"
    if _HANGUL.search(text):
        return "ko"
    if _HAN.search(text):
        return "zh"
    if _LATIN.search(text) and not _OTHER.search(text):
        return "en"
    return default


def same_language(spoken: str, written: str) -> bool:
    """Whether `written` may stand for `spoken`: Han stays Han, Latin gets no Han, no letters is fine."""
    if not regex.search(r"\p{L}", written):
        return True
    for pattern in (_KANA, _HANGUL, _OTHER):
        if pattern.search(written) and not pattern.search(spoken):
            return False
    if _HAN.search(spoken) or _HANGUL.search(spoken) or _KANA.search(spoken):
        return any(pattern.search(written) for pattern in (_HAN, _KANA, _HANGUL))
    if _HAN.search(written):
        return False
    return not _OTHER.search(spoken) or bool(_OTHER.search(written))
