"""Recall, triggers: when a message calls for memory, what to ask back, and what to say when nothing is known (SPEC R6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from processors.language import detect
from processors.recall.ranking import Ranked
from processors.recall.wording import wording

CLARIFY_BELOW = 0.72

_ASK = {
    "zh": "你指的是“{first}”，还是“{second}”？",
    "en": "Do you mean “{first}” or “{second}”?",
}
_ASK_ONE = {
    "zh": "你指的是“{first}”吗？",
    "en": "Do you mean “{first}”?",
}
_NOTHING = {
    "zh": "我没有关于这件事的记录。能再告诉我一次吗？",
    "en": "I have no record of that. Could you tell me again?",
}
_NEARLY = 0.75
_SHORT = 80


@dataclass(frozen=True, slots=True)
class Trigger:
    """A word that points at something said before; `kind` is time or pronoun."""

    kind: str
    word: str


@dataclass(frozen=True, slots=True)
class Clarification:
    """A question to ask back, and the units it offers."""

    question: str
    candidates: tuple[str, ...]


def triggers(text: str) -> tuple[Trigger, ...]:
    """Which words of a message call for a recall; none: it can be understood alone."""
    found = [(kind, words.first(text)) for kind, words in wording().refers.items()]
    return tuple(Trigger(kind, word) for kind, word in found if word is not None)


def clarify(text: str, ranked: Sequence[Ranked], *, floor: float, below: float = CLARIFY_BELOW) -> Clarification | None:
    """A question with the two best candidates, if the best is less relevant than `below`.

    A candidate may lie a little under the floor: offering what has nothing to do with the question would make people
    doubt the rest.
    """
    best = sorted(ranked, key=lambda item: -item.parts.relevance)
    if not best or best[0].parts.relevance >= below:
        return None
    offered = [item for item in best[:2] if item.parts.relevance >= _NEARLY * floor]
    if not offered:
        return None
    language = _language(text)
    first = _short(offered[0].unit.text)
    if len(offered) == 1:
        return Clarification(_ASK_ONE[language].format(first=first), (offered[0].unit.id,))
    question = _ASK[language].format(first=first, second=_short(offered[1].unit.text))
    return Clarification(question, tuple(item.unit.id for item in offered))


def fallback(text: str) -> str:
    """The honest sentence for an agent that was asked about something of which nothing is known."""
    return _NOTHING[_language(text)]


def _language(text: str) -> str:
    return "zh" if detect(text) in ("zh", "mixed") else "en"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"
