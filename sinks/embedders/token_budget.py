"""Sinks, embedders: how many tokens a text may cost, and cutting it to fit, without any model's tokenizer.

Characters are not tokens: a Chinese character is one to two, an English word one and a bit, a symbol in code one. The
costs lean to the high side; a text that a model still refuses is cut again by the adapter (FIELD_REPORTS 42).
"""

from __future__ import annotations

from functools import lru_cache

_BREAKS = frozenset(" \t\r\n。！？；，、.!?;,")
# How far back from the limit a natural break is looked for.
_SLACK = 0.2


def estimate_tokens(text: str) -> float:
    """Tokens that a byte-pair tokenizer is unlikely to exceed."""
    return sum(_cost(character) for character in text)


def split(text: str, limit: float) -> list[str]:
    """Consecutive pieces of the text, each within `limit` estimated tokens, cut at a break where one is near."""
    if limit < 4:
        raise ValueError("a piece needs room for at least one character")
    pieces: list[str] = []
    start = 0
    spent = 0.0
    last_break = 0
    for position, character in enumerate(text):
        cost = _cost(character)
        if spent + cost > limit:
            end = last_break if last_break > start else position
            pieces.append(text[start:end])
            start, last_break = end, 0
            spent = estimate_tokens(text[start:position])
        spent += cost
        if character in _BREAKS and spent >= limit * (1 - _SLACK):
            last_break = position + 1
    if start < len(text) or not pieces:
        pieces.append(text[start:])
    return pieces


@lru_cache(maxsize=8_192)
def _cost(character: str) -> float:
    if character.isascii():
        if character.isalpha() or character.isspace():
            return 0.35
        return 0.5 if character.isdigit() else 1.0
    if "\u2e80" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7af" or "\uff00" <= character <= "\uffef":
        return 1.5
    # Latin with accents costs less, rare scripts and emoji cost up to their UTF-8 bytes.
    return 1.0 if character < "\u0250" else min(3.0, float(len(character.encode("utf-8", "replace"))))
