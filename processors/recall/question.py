"""Recall, the question: its keywords, what it asks for, and which slots and kinds of memory it names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from processors.keywords import normalise, tokens
from processors.language import detect
from processors.recall.wording import slot_words, wording
from schemas import MemoryType

_OPEN_SLOTS = frozenset({"note", "event", "lesson", "instruction"})
"""Slots whose labels are everyday words; they hold anything and are found by their content."""


class Wish(StrEnum):
    """What a question is after."""

    WHEN = "when"
    VALUE = "value"
    COMPARISON = "comparison"
    PAST = "past"
    CODE = "code"
    ANSWER_STYLE = "answer_style"


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the ranker reads it.

    `keywords` are distinct and in order; `language` is a code of `processors.language`; `slots` are attributes that the
    question names; `types` are the kinds of memory that answer it best, empty for any.
    """

    text: str
    keywords: tuple[str, ...]
    language: str
    wishes: frozenset[Wish]
    slots: tuple[str, ...]
    types: tuple[MemoryType, ...]

    @classmethod
    def of(cls, text: str) -> Question:
        """Read a question."""
        plain = normalise(text).strip()
        wishes = frozenset(wish for wish in Wish if wording().asks[wish].within(plain))
        slots = tuple(name for name, words in slot_words().items() if name not in _OPEN_SLOTS and words.within(plain))
        if "dislikes" in slots and "likes" in slots and ("不喜欢" in plain or "dislike" in plain):
            slots = tuple(name for name in slots if name != "likes")
        return cls(text, tuple(dict.fromkeys(tokens(text))), detect(text), wishes, slots, _types(wishes))

    @property
    def plain(self) -> str:
        """The text, normalised, to look for names in."""
        return normalise(self.text)

    @property
    def wants_newest(self) -> bool:
        """Whether one present value is asked for, so that of two statements about it the later one holds."""
        return Wish.VALUE in self.wishes and Wish.COMPARISON not in self.wishes


def _types(wishes: frozenset[Wish]) -> tuple[MemoryType, ...]:
    if Wish.PAST in wishes:
        return (MemoryType.EPISODIC,)
    if Wish.CODE in wishes:
        return (MemoryType.PROCEDURAL, MemoryType.SEMANTIC)
    if Wish.ANSWER_STYLE in wishes:
        return (MemoryType.PROCEDURAL,)
    return ()
