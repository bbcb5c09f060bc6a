"""Rules, taking back: retractions, orders to forget, and "not London" after "I live in Leeds"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import regex

from processors.rules.fold import fold
from processors.rules.model import HitKind, Rule, RuleHit
from processors.rules.passage import Passage, found, language_of, searched
from processors.rules.statements import Stated, statements
from processors.rules.values import fits
from processors.slots import known_slots
from schemas import Operation

_DOINGS: Final = frozenset({"plan", "goal", "habit", "task", "instruction"})
"""Attributes whose values say what is done: a noun put right ("去北京，哦不，上海") is only a part of one."""
_COUNT: Final = regex.compile(r"\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|twelve")
_COUNTED: Final = regex.compile(rf"(?:{_COUNT.pattern}|an?)(?=\s\p{{L}})")
_AND: Final = regex.compile(r"\s*(?:,|、|\b(?:and|or)\b|(?<=\p{Han}{2})[和与](?=\p{Han}{2}))\s*")


def retraction(passage: Passage, start: int, end: int) -> RuleHit | None:
    """The mark that the clause takes back what was said a moment ago."""
    piece = passage.folded[start:end]
    for rule in passage.rules.retracts.possible(piece):
        if searched(rule, piece):
            return _mark(passage, rule, start, end)
    return None


def weak_retraction(passage: Passage) -> RuleHit | None:
    """The same of words that mean it only when nothing else is said ("算了", "sorry, I meant York")."""
    said = passage.folded.strip(" \n.!~。")
    meant = passage.words.corrects.fullmatch(said)
    # What is put right stands in the turn before, which one turn alone does not know; at least it is no longer held.
    if passage.words.weak_retract.fullmatch(said) is None and (meant is None or meant.groupdict().get("slip")):
        return None
    language = language_of(passage.text)
    rule = next((rule for rule in passage.rules.retracts.rules if rule.language == language), None)
    return None if rule is None else _mark(passage, rule, 0, len(passage.text))


def _mark(passage: Passage, rule: Rule, start: int, end: int) -> RuleHit:
    quote = passage.quote(start, end).strip()
    return RuleHit(
        rule_id=rule.id,
        kind=HitKind.RETRACT_PREVIOUS,
        operation=Operation.END,
        attribute="",
        value="",
        text=quote,
        quote=quote,
        explicit=True,
        confidence=rule.confidence,
        language=rule.language,
    )


def forgotten(passage: Passage, start: int, end: int) -> list[RuleHit]:
    """One hit per slot, or value in it, that the clause orders to be forgotten."""
    piece = passage.folded[start:end]
    for rule in passage.rules.forgets.possible(piece):
        for pattern in rule.patterns:
            match = found(pattern, piece)
            if match is None:
                continue
            if match.groupdict().get("payload"):
                left, right = match.span("payload")
                said = statements(passage, Stated(start + left, start + left, start + right))
                targets = [(hit.attribute, hit.value) for hit in said if hit.operation is Operation.ASSERT]
            elif "attribute" not in match.re.groupindex:
                # Everything: all that is known by name.
                targets = [(name, "") for name in known_slots()]
            else:
                named = [
                    passage.attribute(part)
                    for part in _AND.split(match["attribute"])
                    if rule.reject is None or rule.reject.search(part) is None
                ]
                targets = [(name, "") for name in named if name]
            if targets:
                mark = replace(_mark(passage, rule, start, end), kind=HitKind.FORGET, operation=Operation.CLEAR)
                return [replace(mark, attribute=attribute, value=value) for attribute, value in targets]
    return []


def corrected(passage: Passage, start: int, end: int, said: Sequence[RuleHit]) -> list[RuleHit] | None:
    """`said` with its last value put right by "sorry, I meant York", or without what cannot be put right.

    None when the clause does nothing of the kind.
    """
    piece = passage.folded[start:end]
    match = passage.words.corrects.fullmatch(piece.strip())
    last = next((hit for hit in reversed(said) if hit.operation is Operation.ASSERT and hit.value), None)
    if match is None or last is None or last.kind is not HitKind.CLAIM:
        return None
    left = start + len(piece) - len(piece.lstrip())
    a, b = left + match.start("value"), left + match.end("value")
    value = passage.text[a:b]
    # From the statement on: "no wait, soy" alone does not say that it is an allergy.
    begun = passage.turn.text.rfind(last.quote, 0, left)
    quote = passage.quote(begun if begun >= 0 else left, end).rstrip()
    rule = next((rule for rule in passage.rules.claims.rules if rule.id == last.rule_id), None)
    if match.groupdict().get("slip") and (
        rule is None
        or not fits(rule.shape, value, passage.folded[a:b], last.text)
        or (rule.reject is not None and rule.reject.search(passage.folded[a:b]))
    ):
        # "Sorry, thanks" is no city.
        return None
    # "30岁，哦不，31岁": the unit stands behind the value.
    unit = last.text.partition(last.value)[2]
    value = value.removesuffix(unit) or value
    if (counted := _COUNTED.match(fold(last.value))) is not None and _COUNT.fullmatch(passage.folded[a:b]):
        # "two cats, no wait, three": how many was wrong, not of what.
        value += last.value[counted.end() :]
    same = [hit.rule_id == last.rule_id and hit.value == last.value for hit in said]
    if language_of(value) == "zh" and last.attribute in _DOINGS:
        # What was said is known to be wrong; the right whole was not said.
        return [hit for hit, swapped in zip(said, same, strict=True) if not swapped]
    return [
        replace(hit, value=value, text=hit.text.replace(hit.value, value), quote=quote) if swapped else hit
        for hit, swapped in zip(said, same, strict=True)
    ]


def contrasted(passage: Passage, start: int, end: int, said: Sequence[RuleHit]) -> list[RuleHit] | None:
    """The end of what a clause sets against the last of `said`; None when the clause does nothing of the kind."""
    match = passage.words.contrast_clause.fullmatch(passage.folded[start:end])
    if match is None or not said:
        return None
    if said[-1].operation is not Operation.ASSERT:
        return []
    value = passage.text[start + match.start("value") : start + match.end("value")]
    return [replace(said[-1], operation=Operation.END, value=value)]
