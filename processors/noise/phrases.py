"""Noise, phrases: whether a turn consists of greetings, moods and momentary states and of nothing else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import regex

# The strongest comes first: "好的，今天下雨" is ephemeral.
REASONS: Final = ("ephemeral", "emotion", "greeting")
_STICKER: Final = regex.compile(r"\[[\p{Han}a-z]{1,8}\]|\p{Emoji_Presentation}|\p{Extended_Pictographic}")
_CUT: Final = regex.compile(r"[^\p{L}\p{N}\p{M}'+\-\s]+|\n")
_REPEAT: Final = regex.compile(r"(.{1,2}?)\1{2,}+")
_NAME: Final = regex.compile(r"<(\w+)>")
# A longer turn says more than its phrases. The bounds also keep hostile texts cheap.
_LONGEST_TEXT: Final = 160
_LONGEST_PIECE: Final = 60


@dataclass(frozen=True, slots=True)
class Phrases:
    """Patterns that a whole piece must match: one per reason, greetings with moods, and the assistant's courtesies."""

    by_reason: Mapping[str, re.Pattern[str]]
    mixture: re.Pattern[str]
    courtesies: re.Pattern[str]

    @classmethod
    def from_data(cls, languages: Iterable[Mapping[str, Any]]) -> Phrases:
        """From the decoded YAML of every language; they are tried together, since people mix them."""
        reasons: dict[str, list[str]] = {reason: [] for reason in REASONS}
        courtesies: list[str] = []
        for data in languages:
            words = {name: "|".join(alternatives) for name, alternatives in data["words"].items()}
            for reason, patterns in data["reasons"].items():
                reasons[reason] += [_expanded(pattern, words) for pattern in patterns]
            courtesies += [_expanded(pattern, words) for pattern in data["assistant"]]
        return cls(
            {reason: _sequence(patterns) for reason, patterns in reasons.items()},
            _sequence([*reasons["greeting"], *reasons["emotion"]]),
            _sequence(courtesies),
        )

    def reason(self, text: str, *, assistant: bool = False) -> str | None:
        """Why the text says nothing, or None when some piece of it does."""
        if len(text) > _LONGEST_TEXT:
            return None
        folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
        bare = _STICKER.sub("\n", folded)
        pieces = [_REPEAT.sub(r"\1\1", " ".join(piece.split())) for piece in _CUT.split(bare)]
        pieces = [piece for piece in pieces if any(char.isalnum() for char in piece) or "+" in piece]
        if not pieces:
            return "emotion" if bare != folded else None
        found: set[str] = set()
        # The longest piece is the likeliest to say something, and one that does settles it.
        for piece in sorted(pieces, key=len, reverse=True):
            kind = self._of_piece(piece, assistant=assistant)
            if kind is None:
                return None
            found.add(kind)
        return next(reason for reason in ("assistant_boilerplate", *REASONS) if reason in found)

    def _of_piece(self, piece: str, *, assistant: bool) -> str | None:
        if len(piece) > _LONGEST_PIECE:
            return None
        if assistant and self.courtesies.fullmatch(piece):
            return "assistant_boilerplate"
        if self.by_reason["ephemeral"].fullmatch(piece):
            return "ephemeral"
        # Whatever is a greeting or a mood is a mixture of them too: ordinary words are done after two patterns.
        if not self.mixture.fullmatch(piece):
            return None
        return "emotion" if self.by_reason["emotion"].fullmatch(piece) else "greeting"


def _expanded(pattern: str, words: Mapping[str, str]) -> str:
    # Three are enough for speech, and bound the ways in which one piece can be taken apart.
    bounded = _NAME.sub(lambda name: f"(?:{words[name[1]]})", pattern).replace(")*", "){0,3}")
    return f"(?:{bounded})"


def _sequence(patterns: Iterable[str]) -> re.Pattern[str]:
    one = "|".join(patterns)
    # The standard library's engine: lists of words need no more, and it gives up on a wrong beginning twice as fast.
    return re.compile(rf"(?:{one})(?: ?(?:{one})){{0,3}}")
