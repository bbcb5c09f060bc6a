"""Judgement of size: how many model tokens a text will cost, estimated on the high side and without a tokenizer."""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<number>\d+)"
    r"|(?P<space>\s+)"
    # Without the full-width space and digits, which are taken above.
    r"|(?P<cjk>[\u3001-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff0f\uff1a-\uffef]+)"
    r"|(?P<symbol>[!-/:-@\[-`{-~]+)"
    r"|(?P<letter>[\u0080-\u2fff])"
    r"|(?P<rare>.)",
    re.DOTALL,
)
# Longer runs of letters are identifiers, base64 or hashes, which tokenizers cut into short pieces.
_LONGEST_WORD: Final = 16


def estimate(text: str) -> int:
    """Tokens of `text`, rounded up: about 1 per Chinese character, 4 characters of English, 3 of code.

    Byte-pair vocabularies differ by some 30 %; this stays near the upper one of those in use, since the number guards a
    hard limit. It is additive to within one token per cut.
    """
    total = 0
    for match in _PIECE.finditer(text):
        kind, length = match.lastgroup, match.end() - match.start()
        if kind == "cjk":
            total += length
        elif kind == "word":
            total += -(-length // 6) if length <= _LONGEST_WORD else -(-length // 2)
        elif kind == "number":
            total += -(-length // 3)
        elif kind == "space":
            # One space belongs to the word after it; indentation and blank lines are tokens of their own.
            total += length // 4 + ("\n" in match[0])
        elif kind == "symbol":
            total += -(-length // 2)
        elif kind == "rare":
            total += 3
        else:
            total += 1
    return total
