"""Session, what was said: a turn that stands, its speaker's own words in one line, and the sentences in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import regex

from processors.noise.attachments import describe_attachments
from processors.spans import own_words
from schemas import Role, Turn

Mask = Callable[[str], str]
"""The policy gate's masking as text to text; whatever is stored or shown in short form has gone through it."""

Suspect = Callable[[str], bool]
"""Whether a text tries to steer agents (`ThreatScanner`); such a sentence is never carried into a summary."""

MAX_WORDS: Final = 4_000
"""Characters of a turn that are looked at; the rest is a pasted file."""
MAX_SENTENCE: Final = 160

_SPACE: Final = regex.compile(r"[\s\p{Z}\p{Cc}]+")
_LINE: Final = regex.compile(r"[^\n\r\v\f\x85\u2028\u2029]+")
_CUT: Final = regex.compile(
    r"(?<=[。！？!?；;])(?=[^。！？!?；;）)”」』\"'])"
    r"|(?<=[\p{L}\p{N})\]”\"]\.)(?<!\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|No|a\.m|p\.m)\.)\s+(?=\S)"
)


@dataclass(frozen=True, slots=True)
class Said:
    """A turn that stands. `filtered` is why the noise filter took it out, None when it may be used for a summary."""

    turn: Turn
    filtered: str | None = None

    @property
    def nobodys(self) -> bool:
        """Whether nobody said it: a system prompt, or recalled memories that a framework put into the turn."""
        return self.turn.role is Role.SYSTEM or self.filtered == "injected"

    @property
    def by_assistant(self) -> bool:
        """Whether the agent speaks."""
        return self.turn.role is Role.ASSISTANT

    @property
    def by_user(self) -> bool:
        """Whether a person speaks."""
        return self.turn.role is Role.USER


def one_line(text: str) -> str:
    """All white space and control characters as single spaces."""
    return _SPACE.sub(" ", text).strip()


def words_of(turn: Turn) -> str:
    """The speaker's own words in one line: no quotations, code, or memories that a framework put into the turn."""
    return one_line(own_words(turn.text[:MAX_WORDS]))


def shown(turn: Turn) -> str:
    """One line that stands for the turn: its own words, else its text, else its attachments."""
    return words_of(turn) or one_line(turn.text[:MAX_WORDS]) or one_line(describe_attachments(turn))


def sentences(turn: Turn) -> list[str]:
    """The sentences of the speaker's own words, in order; none of them longer than `MAX_SENTENCE` characters."""
    found: list[str] = []
    for line in _LINE.findall(own_words(turn.text[:MAX_WORDS])):
        for piece in _CUT.split(line):
            sentence = one_line(piece or "")
            if sentence and len(sentence) <= MAX_SENTENCE:
                found.append(sentence)
            elif sentence:
                # What stands in the middle of a run-on text cannot be cut well; its first clause still says what it is about.
                found.append(clip(sentence, MAX_SENTENCE))
    return found


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, with … for what is missing; a letter and its marks, or a joined emoji, stay together."""
    if len(text) <= limit:
        return text
    kept = ""
    for cluster in regex.findall(r"\X", text[: limit + 16]):
        if len(kept) + len(cluster) > limit - 1:
            break
        kept += cluster
    return kept.rstrip() + "…"
