"""Resolution, sameness: when two claims say one thing (merge), and when they are near enough to ask (SPEC W9).

Short values (a city, a food, a name) are compared as text: vectors of single nouns lie close together whatever they
mean, and "Leeds" must not become "Berlin". Sentences (notes, plans, instructions) are compared by vector, and merge only
if nothing in the words tells them apart: numbers, negations, and at least half of the content words in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import regex

from processors.keywords import tokens
from processors.slots import value_key
from schemas import Candidate, Category, Memory

Compare = Callable[[str, Sequence[str]], Sequence[float]]
"""Calibrated similarity of one sentence to each of others, in [0, 1]."""

_SENTENCES = frozenset(
    {Category.NOTE, Category.INSTRUCTION, Category.EVENT, Category.TASK, Category.LESSON, Category.GOAL}
)
_NUMBERS = regex.compile(r"\d+|[零〇一二两三四五六七八九十百千万]+(?=[点号日月年天周个次块元])")
_NEGATION = regex.compile(
    r"\b(?:not|no|never|none|without|don't|doesn't|didn't|won't|can't|isn't|stop)\b|[不没别勿无未]"
)


def is_sentence(category: Category) -> bool:
    """Whether values of this category are sentences and not names."""
    return category in _SENTENCES


def same_value(one: str, other: str) -> bool:
    """Whether two short values name the same thing, one of them more exactly: 上海 and 上海市, "Berlin" and "Berlin, Germany"."""
    short, long = sorted((value_key(one), value_key(other)), key=len)
    if short == long:
        return True
    if len(short) < 2 or not long.startswith(short):
        return False
    rest = long[len(short) :]
    return rest[0] in ",，(（" or bool(regex.fullmatch(r"[市省区县镇]", rest))


def same_in_slot(memory: Memory, claim: Candidate) -> bool:
    """`fold.Same` for single-valued slots."""
    return same_value(memory.value, claim.value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The nearest stored sentence: its cell, how near, and whether it is the same statement."""

    cell_key: str
    memory: Memory
    similarity: float
    same: bool


class Nearest:
    """Finds the stored sentence a new one repeats or may contradict."""

    def __init__(self, compare: Compare, *, dedupe: float = 0.92, conflict: float = 0.85) -> None:
        self._compare = compare
        self._dedupe = dedupe
        self._conflict = conflict

    def find(self, claim: Candidate, stored: Sequence[tuple[str, Memory]]) -> Verdict | None:
        """The best match at or above the conflict threshold, or None. Ties go to the older memory."""
        best: Verdict | None = None
        ordered = sorted(stored, key=lambda item: (item[1].first_stated_at, item[1].id))
        if not ordered:
            return None
        similarities = self._compare(claim.text, [memory.text for _key, memory in ordered])
        for (cell_key, memory), similarity in zip(ordered, similarities, strict=True):
            if similarity < self._conflict or (best is not None and similarity <= best.similarity):
                continue
            same = similarity >= self._dedupe and _nothing_tells_apart(memory.text, claim.text)
            best = Verdict(cell_key, memory, similarity, same)
        return best


def _nothing_tells_apart(one: str, other: str) -> bool:
    if sorted(_NUMBERS.findall(one)) != sorted(_NUMBERS.findall(other)):
        return False
    if len(_NEGATION.findall(one.casefold())) % 2 != len(_NEGATION.findall(other.casefold())) % 2:
        return False
    words, others = set(tokens(one)), set(tokens(other))
    return bool(words & others) and len(words & others) * 2 >= len(words | others)
