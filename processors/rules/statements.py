"""Rules, statements: what one clause says of the speaker, as hits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import regex

from processors.rules.model import HitKind, Rule, RuleHit
from processors.rules.passage import Passage, found, language_of
from processors.rules.timing import timed
from processors.rules.values import fits, items, trimmed
from processors.slots import slot_for
from schemas import Category, Operation

_NAMES: Final = frozenset({"place", "proper", "name", "capital"})
"""Shapes of values that are called by a name."""
_ENGLISH: Final = regex.compile(r"[a-z]+(?![a-z\p{Han}])")


@dataclass(frozen=True, slots=True)
class Stated:
    """A clause to be read: `lead` is where it begins with its fillers, `start`..`end` its body.

    `order` is the order that covers it. `carried`: the speaker is its subject though it has none. `alone`: nothing was
    said before it. `polite`: it asks, so that only rules for requests apply.
    """

    lead: int
    start: int
    end: int
    order: Rule | None = None
    carried: bool = False
    alone: bool = False
    polite: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """The clause as a rule reads it: with the subject that was left out, which shifts every position."""

    rule: Rule
    match: regex.Match[str]
    prefix: str
    clause: Stated

    def span(self, group: str) -> tuple[int, int]:
        """Where the group stands in the text."""
        shift = self.clause.start - len(self.prefix)
        left, right = self.match.span(group)
        return max(self.clause.start, left + shift), right + shift

    def caught(self, group: str) -> bool:
        """Whether the pattern has the group and it caught something."""
        return group in self.match.re.groupindex and self.match[group] is not None


def statements(passage: Passage, clause: Stated) -> list[RuleHit]:
    """The hits of the first rule that the whole clause fills, and the end of what it says is not so."""
    negated = ""
    contrast = passage.words.contrast.search(passage.folded[clause.start : clause.end])
    if contrast is not None and contrast.start() > 3:
        negated = passage.text[clause.start + contrast.start("value") : clause.start + contrast.end("value")]
        clause = replace(clause, end=clause.start + contrast.start())
    for prefix, form in _forms(passage, clause):
        for rule in passage.rules.claims.possible(form):
            if (prefix and not rule.elides) or (clause.polite and not rule.polite) or (rule.alone and not clause.alone):
                continue
            for pattern in rule.patterns:
                match = found(pattern, form)
                hits = [] if match is None else _hits(passage, _Form(rule, match, prefix, clause))
                if hits and negated:
                    hits.append(replace(hits[-1], operation=Operation.END, value=negated))
                if hits:
                    return hits
    return []


def _forms(passage: Passage, clause: Stated) -> list[tuple[str, str]]:
    piece = passage.folded[clause.start : clause.end]
    forms = [("", piece)]
    if not clause.carried and clause.order is None:
        return forms
    # An ordered rule of conduct is not about the speaker: "记住总是先问我".
    told = clause.order is not None and passage.words.steers.match(piece) is not None
    if not told and passage.words.subject.match(piece) is None:
        if language_of(piece) == "zh" and not _ENGLISH.match(piece):
            # "Work at 腾讯" has lost an English subject, "28岁" and "PM一枚" a Chinese one.
            forms.append(("我", "我" + piece))
        else:
            forms += [("I ", "i " + piece), ("I'm ", "i'm " + piece)]
    return forms


def _hits(passage: Passage, form: _Form) -> list[RuleHit]:
    rule, clause = form.rule, form.clause
    if rule.time == "future" and passage.words.coming.search(passage.folded, clause.lead, clause.end) is None:
        return []
    if rule.time == "dated" and passage.words.timely.search(passage.folded, clause.lead, clause.end) is None:
        return []
    if rule.lasting and passage.words.for_once.search(passage.folded, clause.lead, clause.end) is not None:
        return []
    attribute = rule.attribute
    if attribute == "*":
        suffix = form.match["suffix"] if form.caught("suffix") else None
        attribute = passage.attribute(form.match["attribute"], suffix)
        if not attribute:
            return []
    hits = _values(passage, form, _base(passage, form, attribute))
    if not hits:
        return []
    for group, other in rule.also:
        if form.caught(group):
            left, right = _trimmed(passage, rule, *form.span(group))
            if left < right:
                value = passage.text[left:right]
                hits.append(replace(_base(passage, form, other), operation=Operation.ASSERT, value=value))
    for name, _, group in (entry.partition(":") for entry in rule.ends):
        if group and form.caught(group):
            name, _, fixed = name.partition("=")
            value = fixed or passage.text[slice(*form.span(group))]
            name = attribute if name == "*" else name
            hits.append(replace(hits[0], operation=Operation.END, attribute=name, value=value))
    return [timed(passage, rule, hit, clause.lead, clause.end) for hit in hits]


def _base(passage: Passage, form: _Form, attribute: str) -> RuleHit:
    rule, clause = form.rule, form.clause
    return RuleHit(
        rule_id=rule.id,
        kind=HitKind.CLAIM,
        operation=rule.operation,
        attribute=attribute,
        value="",
        text=form.prefix + passage.text[clause.start : clause.end],
        quote=passage.quote(clause.start, clause.end),
        explicit=clause.order is not None,
        confidence=max(rule.confidence, clause.order.confidence) if clause.order else rule.confidence,
        language=rule.language,
        ttl_days=rule.ttl_days,
    )


def _values(passage: Passage, form: _Form, base: RuleHit) -> list[RuleHit]:
    """One hit per value, each followed by the ends that it brings."""
    rule, clause = form.rule, form.clause
    ends = [entry for entry in rule.ends if ":" not in entry]
    for group, meant in rule.values:
        if form.caught(group):
            return _meant(passage, form, base, group, meant)
    if not form.caught("value"):
        return [base, *(replace(base, operation=Operation.END, attribute=other) for other in ends)]
    text, folded = passage.text, passage.folded
    whole = text[clause.start : clause.end]
    left, right = _trimmed(passage, rule, *form.span("value"))
    parts = items(left, right, folded) if rule.splits else [(left, right)]
    # "不吃" and each thing that is not eaten: the value says by itself what it says.
    head = text[slice(*form.span("head"))] if form.caught("head") else ""
    hits: list[RuleHit] = []
    for part in parts:
        a, b = _trimmed(passage, rule, *part)
        if not fits(rule.shape, text[a:b], folded[a:b], whole):
            continue
        if rule.reject is not None and rule.reject.search(folded[a:b]):
            if not hits:
                # "I love how it shows the sea and the sky": the head of the list decides what kind of sentence it is.
                return []
            continue
        if text[a:b] != passage.turn.text[a:b]:
            # Somebody's quoted words were left out of it: an order keeps them, any other value is not whole.
            if slot_for(base.attribute).category is not Category.INSTRUCTION:
                continue
            text = passage.turn.text
            whole = text[clause.start : clause.end]
        said = whole if len(parts) == 1 else text[clause.start : left] + text[a:b] + text[right : clause.end]
        hits.append(replace(base, value=head + text[a:b], text=form.prefix + said))
        hits += [replace(hits[-1], operation=Operation.END, attribute=other) for other in ends]
    return hits


def _trimmed(passage: Passage, rule: Rule, start: int, end: int) -> tuple[int, int]:
    """The borders of a value without what trails it, and without the time that is the fact's own."""
    dated = rule.time in ("past", "dated", "future")
    left, right = trimmed(passage.text, start, end, passage.folded, times=dated)
    if rule.time == "future" and passage.folded[start] == "到":
        # "到上海" is what is planned; of other verbs 到 is only the end.
        left = start
    # A plan keeps its day, which says what is planned; of a place or a name no part is ever a time.
    read = rule.shape in _NAMES or rule.time in ("past", "dated")
    if not read or (shorter := passage.untimed(left, right, rule.language)) == right:
        return left, right
    return trimmed(passage.text, left, shorter, passage.folded, times=dated)


def _meant(passage: Passage, form: _Form, base: RuleHit, group: str, meant: tuple[str, ...]) -> list[RuleHit]:
    """One hit per way in which what the group caught may have been put."""
    left, right = trimmed(passage.text, *form.span(group), passage.folded, times=False)
    if form.rule.reject is not None and form.rule.reject.search(passage.folded[left:right]):
        return []
    return [replace(base, value=value.replace("{}", passage.text[left:right])) for value in meant]
