"""Rules, notes: what was ordered to be remembered and no statement rule could read."""

from __future__ import annotations

from typing import Final

import regex

from processors.rules.model import HitKind, Rule, RuleHit
from processors.rules.passage import Passage, language_of
from processors.rules.timing import bounded, due
from processors.rules.values import trimmed
from schemas import Operation

_STATES: Final = regex.compile(r"\b(?:is|are|was|were|has|have|needs?|must|should|will|starts?|ends?)\b|\d|是|在")
_SHORTEST: Final = {"zh": 2, "en": 4}
"""Characters below which an order has no object ("记住啊", "note it")."""


def note(passage: Passage, order: Rule, spans: list[tuple[int, int]], *, claimed: bool) -> RuleHit | None:
    """The clauses at `spans` as one note, or as a task or an instruction when they read so.

    `claimed`: other clauses under the same order were statements, so that a question among the rest is left out.
    """
    words, folded = passage.words, passage.folded
    kept = [(a, b) for a, b in spans if not words.courtesy.fullmatch(folded[a:b])]
    if claimed:
        kept = [(a, b) for a, b in kept if not words.asks.search(folded[a:b])]
    if not kept:
        return None
    start, end = kept[0][0], kept[-1][1]
    if order.polite and _STATES.search(folded, start, end) is None:
        # "Can you remember things?" is a question.
        return None
    left, right = trimmed(passage.text, start, end, folded, times=False)
    piece = folded[left:right]
    if len(piece) < _SHORTEST[language_of(piece)] or words.unworthy.match(piece):
        return None
    attribute = "note"
    if chore := words.chores.match(piece):
        attribute, left = "task", left + chore.end("skip")
    elif steer := words.steers.match(piece):
        attribute, left = "instruction", left + steer.end("skip")
    value = passage.text[left:right].strip()
    if len(value) < _SHORTEST[language_of(piece)]:
        # "记住提醒我": to be reminded of nothing.
        return None
    hit = RuleHit(
        rule_id=order.id,
        kind=HitKind.CLAIM,
        operation=Operation.ASSERT,
        attribute=attribute,
        value=value,
        text=value,
        quote=passage.quote(start, end),
        explicit=True,
        confidence=order.confidence,
        language=language_of(value),
    )
    if not words.timely.search(piece):
        return hit
    if attribute == "task":
        # Read with the words before it: "remember to" looks ahead, "December" alone does not.
        begun = max(folded.rfind(mark, 0, start) for mark in ".!?\n。！？") + 1
        found = passage.times(begun, right, hit.language)
        hit = due(passage, hit, [span for span in found if begun + span.offset >= start])
    else:
        hit = bounded(passage, hit, passage.times(left, right, hit.language), left, right)
    return hit
