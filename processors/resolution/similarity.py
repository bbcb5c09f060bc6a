"""Resolution, sameness: when two claims say one thing (merge), and when they are near enough to ask (SPEC W9).

Short values are compared as text (`spelling`). Sentences (notes, plans, instructions) are compared by vector, and merge
only if nothing in the words tells them apart: numbers, negations, and at least half of the content words in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import regex

from processors.keywords import normalise, tokens
from schemas import Candidate, Category, Memory

Compare = Callable[[str, Sequence[str]], Sequence[float]]
"""Calibrated similarity of one sentence to each of others, in [0, 1]."""

_SENTENCES = frozenset(
    {Category.NOTE, Category.INSTRUCTION, Category.EVENT, Category.TASK, Category.LESSON, Category.GOAL}
)
# A Chinese numeral counts where a measure word or a weekday says that it is one: 一起 is no number.
_NUMBERS = regex.compile(
    r"\d+"
    r"|[零〇一二两三四五六七八九十百千万半]+(?=[点号日月年天周个次块元只条头匹杯瓶口人岁层楼斤里米度分秒小倍遍份本张台辆件位间套片粒颗顿场节门种双])"
    r"|(?<=周|星期|礼拜)[一二三四五六日天末]"
    r"|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half|dozen|once"
    r"|twice)\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
)
_NOT = regex.compile(r"(?<=\w)n't\b|(?<=\bcan)not\b")
_NEGATION = regex.compile(r"\b(?:not|no|never|none|nothing|nobody|neither|nor|without|stop(?:s|ped)?)\b|[不没别勿无未]")


def is_sentence(category: Category) -> bool:
    """Whether values of this category are sentences and not names."""
    return category in _SENTENCES


@dataclass(frozen=True, slots=True)
class Verdict:
    """The nearest stored sentence: its cell, how near, and whether it is the same statement."""

    cell_key: str
    memory: Memory
    similarity: float
    same: bool


class Nearest:
    """Finds the stored sentence a new one repeats or may contradict."""

    def __init__(
        self,
        compare: Compare,
        *,
        dedupe: float = 0.92,
        conflict: float = 0.85,
        renew: Callable[[], Compare] | None = None,
    ) -> None:
        """What is worked out of a sentence is kept as long as this object is: `afresh` for each group of claims.

        `renew` makes a new comparison, for one that keeps things as well.
        """
        self._compare = compare
        self._renew = renew
        self._dedupe = dedupe
        self._conflict = conflict
        self._marks: dict[str, tuple[list[str], list[str]]] = {}
        self._words: dict[str, frozenset[str]] = {}

    def afresh(self) -> Nearest:
        """The same, knowing nothing of any sentence."""
        compare = self._renew() if self._renew is not None else self._compare
        return Nearest(compare, dedupe=self._dedupe, conflict=self._conflict, renew=self._renew)

    def find(self, claim: Candidate, stored: Sequence[tuple[str, Memory]]) -> Verdict | None:
        """The best match at or above the conflict threshold, the same statement first, or None. Ties go to the older memory."""
        best: Verdict | None = None
        ordered = sorted(stored, key=lambda item: (item[1].first_stated_at, item[1].id))
        if not ordered:
            return None
        similarities = self._compare(claim.text, [memory.text for _key, memory in ordered])
        for (cell_key, memory), similarity in zip(ordered, similarities, strict=True):
            if similarity < self._conflict:
                continue
            same = similarity >= self._dedupe and self._nothing_tells_apart(memory.text, claim.text)
            # A repeated statement before one that only looks alike: calibrated scores saturate at 1.
            if best is None or (same, similarity) > (best.same, best.similarity):
                best = Verdict(cell_key, memory, similarity, same)
        return best

    def _nothing_tells_apart(self, one: str, other: str) -> bool:
        # The words themselves and not how many: 特别喜欢 has a 别 as 不喜欢 has a 不.
        if self._marks_of(one) != self._marks_of(other):
            return False
        words, others = self._words_of(one), self._words_of(other)
        return bool(words & others) and len(words & others) * 2 >= len(words | others)

    def _marks_of(self, text: str) -> tuple[list[str], list[str]]:
        marks = self._marks.get(text)
        if marks is None:
            marks = self._marks[text] = (_numbers(text), _negations(text))
        return marks

    def _words_of(self, text: str) -> frozenset[str]:
        words = self._words.get(text)
        if words is None:
            words = self._words[text] = frozenset(tokens(text))
        return words


def _numbers(text: str) -> list[str]:
    return sorted(_NUMBERS.findall(normalise(text)))


def _negations(text: str) -> list[str]:
    return sorted(_NEGATION.findall(_NOT.sub(" not", normalise(text))))
