"""Rules, reading one turn: carries the subject and the order from clause to clause and collects the hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol

import regex

from processors.rules.clauses import Clause, sentences
from processors.rules.fold import fold
from processors.rules.loading import RuleSet
from processors.rules.model import HitKind, Rule, RuleHit
from processors.rules.values import fits, items, trimmed
from processors.slots import normal_attribute, slot_for, value_key
from processors.spans import own_words
from schemas import Category, Operation, Turn

_MAX_TEXT: Final = 4_000
_TIMEOUT: Final = 0.05
"""Seconds one pattern may take on one clause. Clauses are short and patterns possessive, so only a hostile text meets it."""

_HAN: Final = regex.compile(r"\p{Han}")
_EDGE: Final = regex.compile(r"[\s\p{P}\p{S}--[+#%)\]》\"”」』]]+$", regex.V1)
_BULLET: Final = regex.compile(r"\s*(?:\d{1,2}[.)、](?!\d)|[①-⑳])\s*")
# What may trail a statement without belonging to it. Words that a Chinese sentence ends with belong to its patterns.
_FILLER: Final = regex.compile(
    r"(?<=\S)\s(?:btw|by the way|lol|haha+|tho|though|as well|too|thanks(?: a lot| in advance)?|thank you|fyi|honestly|actually|anyway|"
    r"if that helps|just so you know|you know|i think|i guess|i suppose|to be honest|tbh|in case you(?:'re| are)? wonder\w*|in fact|ok|okay|then)$"
)
_ASKING: Final = regex.compile(r"[吗么嘛]$")
_STATES: Final = regex.compile(r"\b(?:is|are|was|were|has|have|needs?|must|should|will|starts?|ends?)\b|\d|是|在")
_ANSWERS: Final = frozenset({"answer_language", "answer_length", "answer_style", "instruction"})


class Span(Protocol):
    """What `processors.times.TimeSpan` offers."""

    @property
    def start(self) -> datetime: ...
    @property
    def end(self) -> datetime | None: ...
    @property
    def kind(self) -> str: ...


Resolver = Callable[[str, datetime, str, str], Sequence[Span]]


class Reading:
    """The state of reading one turn; used once."""

    def __init__(self, rules: RuleSet, turn: Turn, resolver: Resolver) -> None:
        self._rules = rules
        self._words = rules.lexicon
        self._turn = turn
        self._resolver = resolver
        owned = own_words(turn.text)
        self._text = owned[: len(owned) - len(owned.lstrip()) + _MAX_TEXT]
        self._folded = fold(self._text)
        self._hits: list[RuleHit] = []
        self._carry = False
        self._voiced = False
        # An order that ended with a colon covers the following lines; one that stood alone, the next sentence.
        self._order_ahead: Rule | None = None
        self._order_lines = False
        self._marks: list[int] = [0]
        self._last_asked = False

    def hits(self) -> tuple[RuleHit, ...]:
        """Everything found, in reading order, each fact once."""
        if self._words.triggers.search(self._folded) is None:
            return ()
        previous: list[Clause] = []
        for sentence in sentences(self._text, self._folded):
            if previous and "\n\n" in self._folded[previous[-1].end : sentence[0].start]:
                self._order_ahead, self._order_lines = None, False
            self._marks.append(len(self._hits))
            if not self._sentence(sentence, previous):
                return ()
            previous = sentence
        if not self._hits and self._words.weak_retract.fullmatch(self._folded.strip(" \n.!~。")):
            language = "zh" if _HAN.search(self._text) else "en"
            rule = next(rule for rule in self._rules.retracts if rule.language == language)
            return (self._marker(rule, 0, len(self._text)),)
        return _unique(self._hits)

    def _sentence(self, clauses: list[Clause], previous: list[Clause]) -> bool:
        """Reads one sentence; False when the speaker wants nothing of this turn kept."""
        order, forward = self._order_ahead, self._order_lines
        if not forward:
            self._order_ahead = None
        mark = len(self._hits)
        blocked = self._voiced
        pending: list[tuple[int, int]] = []
        tag = clauses[-1]
        tagged = len(clauses) > 1 and tag.asked and self._tag(tag)
        for index, clause in enumerate(clauses):
            body, end = self._body(clause.start, clause.end)
            if body >= end:
                # "Correction:" and other fillers only.
                continue
            piece = self._folded[body:end]
            asked = clause.asked or _ASKING.search(piece) is not None
            if self._any(self._rules.suppressions, piece):
                return False
            if self._retracts(piece, body, end, mark):
                mark = len(self._hits)
                continue
            if not self._voiced and not clause.colon and self._words.voices_back.search(piece):
                del self._hits[self._marks[-2] :]
                mark = len(self._hits)
                self._voiced = blocked = True
                continue
            if clause.colon and self._order(piece, False) is None and self._voices_others(piece):
                self._voiced = blocked = True
                continue
            found = None if self._voiced else self._order(piece, asked)
            if found is None:
                if self._words.voices_turn.search(piece):
                    self._voiced = blocked = True
                elif self._words.voices_sentence.search(piece):
                    blocked = True
                    self._voiced = self._voiced or clause.colon
            if blocked and found is None:
                if order is not None and not self._voiced:
                    pending.append((body, end))
                continue
            if found is not None:
                rule, offset = found
                order, blocked = rule, False
                forward = forward or clause.colon
                body, end = self._body(body + offset, end)
                if rule.polite and (particle := _ASKING.search(self._folded, body, end)) is not None:
                    end = particle.start()
                piece = self._folded[body:end]
                if not piece or self._words.anaphora.fullmatch(piece):
                    if clause.colon:
                        self._order_ahead, self._order_lines = rule, True
                    elif clause.last:
                        self._look_back(rule, clauses[:index], previous, mark)
                        order = None
                    continue
                if self._words.unworthy.match(piece):
                    order = None
                    continue
                asked = False
            elif self._forgets(piece, body, end):
                continue
            if self._words.supposes.match(piece) or self._words.opens_question.match(piece):
                blocked = True
            if order is None and not blocked and (asked or self._words.asks.search(piece)):
                tail = self._words.request_tail.search(piece)
                if tail is None or tail.start() == 0:
                    # "Could you answer in English?" asks for no information.
                    self._step(piece, claimed=self._claims(clause.start, body, end, None, polite=True))
                    continue
                end = body + tail.start()
                piece = self._folded[body:end]
            confirms = tagged and index == len(clauses) - 2 and order is None
            if not blocked and not confirms and self._contrasts(piece, body, end, mark):
                continue
            claimed = not blocked and not confirms and self._claims(clause.start, body, end, order)
            if not claimed and order is not None:
                pending.append((body, end))
            self._step(piece, claimed=claimed)
        if order is not None and pending:
            self._note(order, pending, claimed=len(self._hits) > mark)
        self._last_asked = tag.asked
        return True

    # What a clause is

    def _body(self, start: int, end: int) -> tuple[int, int]:
        bullet = _BULLET.match(self._folded, start, end)
        begin = bullet.end() if bullet else start
        lead = self._words.leads.match(self._folded, begin, end)
        begin = lead.end() if lead else begin
        while begin < end and self._folded[begin] in " \n\t\"'“”「『·*#-~)":
            begin += 1
            lead = self._words.leads.match(self._folded, begin, end)
            begin = lead.end() if lead else begin
        while (tail := _EDGE.search(self._folded, begin, end) or _FILLER.search(self._folded, begin, end)) is not None:
            end = tail.start()
        return begin, end

    def _tag(self, clause: Clause) -> bool:
        return self._words.confirm_tag.fullmatch(self._folded[clause.start : clause.end].strip()) is not None

    def _voices_others(self, piece: str) -> bool:
        if self._words.voices_colon.search(piece):
            return True
        speaker = self._turn.speaker_name
        return self._words.speaker.fullmatch(piece) is not None and (speaker is None or fold(speaker) != piece)

    def _step(self, piece: str, *, claimed: bool) -> None:
        if (subject := self._words.subject.match(piece)) is not None:
            # "我女儿叫小雨，对花生过敏": what follows is said of her.
            self._carry = subject.group("self") is not None
        elif claimed:
            self._carry = True

    def _any(self, rules: tuple[Rule, ...], piece: str) -> bool:
        return any(self._search(rule, piece) is not None for rule in rules)

    def _search(self, rule: Rule, piece: str) -> regex.Match[str] | None:
        if not any(word in piece for word in rule.keywords):
            return None
        for pattern in rule.patterns:
            try:
                match = pattern.search(piece, timeout=_TIMEOUT)
            except TimeoutError:
                continue
            if match is not None:
                return match
        return None

    def _order(self, piece: str, asked: bool) -> tuple[Rule, int] | None:
        for rule in self._rules.orders:
            if (asked and not rule.polite) or not any(word in piece for word in rule.keywords):
                continue
            for pattern in rule.patterns:
                match = pattern.match(piece)
                if match is not None:
                    return rule, match.end()
        if asked and (tail := self._words.request_tail.search(piece)) is not None and tail.start():
            return self._order(piece[: tail.start()], False)
        return None

    # Taking back

    def _retracts(self, piece: str, body: int, end: int, mark: int) -> bool:
        for rule in self._rules.retracts:
            if self._search(rule, piece) is None:
                continue
            first = self._marks[-2] if len(self._hits) == mark else mark
            if any(hit.kind is HitKind.CLAIM for hit in self._hits[first:]):
                # What is taken back was said a moment ago, in this very turn.
                del self._hits[first:]
            else:
                self._hits.append(self._marker(rule, body, end))
            return True
        return False

    def _marker(self, rule: Rule, body: int, end: int) -> RuleHit:
        quote = self._turn.text[body:end].strip()
        return RuleHit(
            rule.id, HitKind.RETRACT_PREVIOUS, Operation.END, "", "", quote, quote, True, rule.confidence, rule.language
        )

    def _forgets(self, piece: str, body: int, end: int) -> bool:
        for rule in self._rules.forgets:
            if not any(word in piece for word in rule.keywords):
                continue
            for pattern in rule.patterns:
                try:
                    match = pattern.fullmatch(piece, timeout=_TIMEOUT)
                except TimeoutError:
                    continue
                if match is None:
                    continue
                groups = match.groupdict()
                quote = self._turn.text[body:end].strip()
                if groups.get("payload"):
                    left, right = match.span("payload")
                    targets = self._payload_targets(body + left, body + right)
                else:
                    name = self._attribute(match["attribute"])
                    targets = (
                        [(name, "")]
                        if name and (rule.reject is None or not rule.reject.search(match["attribute"]))
                        else []
                    )
                for attribute, value in targets:
                    self._hits.append(
                        RuleHit(
                            rule.id,
                            HitKind.FORGET,
                            Operation.CLEAR,
                            attribute,
                            value,
                            quote,
                            quote,
                            True,
                            rule.confidence,
                            rule.language,
                        )
                    )
                if targets:
                    return True
        return False

    def _payload_targets(self, start: int, end: int) -> list[tuple[str, str]]:
        mark = len(self._hits)
        self._claims(start, start, end, None)
        found = [(hit.attribute, hit.value) for hit in self._hits[mark:] if hit.operation is Operation.ASSERT]
        del self._hits[mark:]
        return found

    def _contrasts(self, piece: str, body: int, end: int, mark: int) -> bool:
        """ "…, not London": what stands after the negation has ended."""
        match = self._words.contrast_clause.fullmatch(piece)
        if match is None or len(self._hits) == mark:
            return False
        last = self._hits[-1]
        if last.operation is Operation.ASSERT:
            value = self._text[body + match.start("value") : body + match.end("value")]
            self._hits.append(replace(last, operation=Operation.END, value=value, text=last.text))
        return True

    # Statements

    def _claims(self, lead: int, start: int, end: int, order: Rule | None, *, polite: bool = False) -> bool:
        piece = self._folded[start:end]
        negated = ""
        contrast = self._words.contrast.search(piece)
        if contrast is not None and contrast.start() > 3:
            negated = self._text[start + contrast.start("value") : start + contrast.end("value")]
            end = start + contrast.start()
            piece = self._folded[start:end]
        forms = [("", piece)]
        # An ordered rule of conduct is not about the speaker: "记住总是先问我".
        told = order is not None and self._words.steers.match(piece) is not None
        if (self._carry or order is not None) and not told and self._words.subject.match(piece) is None:
            if _HAN.search(piece):
                forms.append(("我", "我" + piece))
            else:
                forms += [("I ", "i " + piece), ("I'm ", "i'm " + piece)]
        for prefix, form in forms:
            for rule in self._rules.claims.possible(form):
                if (prefix and not rule.elides) or (polite and not rule.polite):
                    continue
                for pattern in rule.patterns:
                    try:
                        match = pattern.fullmatch(form, timeout=_TIMEOUT)
                    except TimeoutError:
                        continue
                    if match is not None and self._claim(rule, match, prefix, lead, start, end, order):
                        if negated:
                            last = self._hits[-1]
                            self._hits.append(replace(last, operation=Operation.END, value=negated))
                        return True
        return False

    def _claim(
        self, rule: Rule, match: regex.Match[str], prefix: str, lead: int, start: int, end: int, order: Rule | None
    ) -> bool:
        if rule.time == "future" and self._words.coming.search(self._folded, lead, end) is None:
            return False
        shift = start - len(prefix)
        attribute = rule.attribute
        if attribute == "*":
            attribute = self._attribute(match["attribute"], match.groupdict().get("suffix"))
            if not attribute:
                return False
        fields: list[tuple[str, int, int]] = []
        groups = match.groupdict()
        if rule.constant is not None or groups.get("value") is None:
            fields.append((attribute, -1, -1))
        else:
            left, right = match.span("value")
            fields.append((attribute, max(start, left + shift), right + shift))
        for group, other in rule.also:
            if groups.get(group) is not None:
                left, right = match.span(group)
                fields.append((other, max(start, left + shift), right + shift))
        made: list[RuleHit] = []
        ended = [entry.split(":") for entry in rule.ends if ":" in entry]
        for position, (name, left, right) in enumerate(fields):
            head = groups.get("head") or "" if position == 0 else ""
            if head:
                begin, until = match.span("head")
                head = self._text[max(start, begin + shift) : until + shift]
            made += self._values(rule, name, left, right, prefix, start, end, order, main=position == 0, head=head)
            if position == 0 and not made:
                return False
        for name, group in ended:
            if groups.get(group):
                begin, until = match.span(group)
                thing = self._text[max(start, begin + shift) : until + shift]
                made.append(replace(made[0], operation=Operation.END, attribute=name, value=thing))
        self._hits += [self._timed(rule, hit, lead, start, end) for hit in made]
        return True

    def _values(
        self,
        rule: Rule,
        attribute: str,
        left: int,
        right: int,
        prefix: str,
        start: int,
        end: int,
        order: Rule | None,
        *,
        main: bool,
        head: str,
    ) -> list[RuleHit]:
        clause = self._text[start:end]
        ends = [other for other in rule.ends if ":" not in other]
        base = RuleHit(
            rule.id,
            HitKind.CLAIM,
            rule.operation if main else Operation.ASSERT,
            attribute,
            rule.constant or "",
            prefix + clause,
            self._turn.text[start:end],
            order is not None,
            max(rule.confidence, order.confidence) if order else rule.confidence,
            rule.language,
            ttl_days=rule.ttl_days,
        )
        if left < 0:
            return [base, *(replace(base, operation=Operation.END, attribute=other) for other in ends)]
        left, right = trimmed(self._text, left, right, self._folded, times=rule.time in ("past", "future"))
        parts = items(left, right, self._folded) if rule.splits and main else [(left, right)]
        made: list[RuleHit] = []
        for a, b in parts:
            a, b = trimmed(self._text, a, b, self._folded, times=rule.time in ("past", "future"))
            value, folded = self._text[a:b], self._folded[a:b]
            if not fits(rule.shape if main else "any", value, folded, clause):
                continue
            if main and rule.reject is not None and rule.reject.search(folded):
                if not made:
                    # "I love how it shows the sea and the sky": the head of the list decides what kind of sentence it is.
                    return []
                continue
            text = clause if len(parts) == 1 else self._text[start:left] + value + self._text[right:end]
            # "不吃" and each thing that is not eaten: the value says by itself what it says.
            made.append(replace(base, value=head + value, text=prefix + text))
            if main:
                made += [replace(made[-1], operation=Operation.END, attribute=other) for other in ends]
        return made

    def _attribute(self, raw: str, suffix: str | None = None) -> str:
        name = regex.sub(r"\s+", " ", raw.strip(" 的'\"“”")).removeprefix("the ").removeprefix("my ")
        aliases = self._rules.aliases
        if suffix:
            return normal_attribute(f"{aliases.get(name + '~', name)}_name")
        name = regex.sub(r"'s\b", "", name).replace("favourite", "favorite").replace("colour", "color")
        return aliases.get(name) or normal_attribute(name)

    # When

    def _timed(self, rule: Rule, hit: RuleHit, lead: int, start: int, end: int) -> RuleHit:
        if not rule.time or self._words.timely.search(self._folded, lead, end) is None:
            return hit
        sent = self._turn.sent_at
        # The text as sent, since a resolver reads capitals and full-width digits by itself.
        spans = self._resolver(self._text[lead:end], sent, self._turn.timezone, hit.language)
        if rule.time == "past":
            began = [span.start for span in spans if span.start <= sent]
            return replace(hit, event_time=began[0], valid_from=began[0]) if began else hit
        if rule.time in ("future", "due"):
            coming = [span for span in spans if span.end is None or span.end > sent]
            if not coming:
                return hit
            # "until Friday" is due on Friday.
            due = coming[0].end if coming[0].kind == "until" and coming[0].end else coming[0].start
            return replace(hit, event_time=due, valid_from=due)
        return self._bounded(hit, spans, lead, start, end)

    def _bounded(self, hit: RuleHit, spans: Sequence[Span], lead: int, start: int, end: int) -> RuleHit:
        if self._words.bounds.search(self._folded, lead, end) is None:
            return hit
        ends = [span.end or span.start for span in spans if (span.end or span.start) > self._turn.sent_at]
        if not ends:
            return hit
        if hit.attribute not in _ANSWERS:
            return replace(hit, valid_to=ends[-1])
        # For a while only: the standing preference in its own slot stays as it is.
        lead = self._skip(lead, end)
        value = self._text[lead:end]
        return replace(
            hit, attribute="instruction", value=value, text=value, quote=self._turn.text[lead:end], valid_to=ends[-1]
        )

    def _skip(self, start: int, end: int) -> int:
        while start < end and self._folded[start] in " \n,:":
            start += 1
        return start

    # Notes

    def _look_back(self, rule: Rule, before: list[Clause], previous: list[Clause], mark: int) -> None:
        """An order that follows what it is about: "I'm allergic to nuts, please remember that"."""
        first = mark
        if len(self._hits) == mark and not before:
            first = self._marks[-2]
        fresh = [i for i in range(first, len(self._hits)) if self._hits[i].kind is HitKind.CLAIM]
        if fresh:
            for i in fresh:
                hit = self._hits[i]
                self._hits[i] = replace(hit, explicit=True, confidence=max(hit.confidence, rule.confidence))
            return
        clauses = before or ([] if self._last_asked else previous)
        spans = [self._body(clause.start, clause.end) for clause in clauses]
        spans = [span for span in spans if span[0] < span[1]]
        if spans:
            self._note(rule, spans, claimed=False)
        elif not before:
            self._order_ahead = rule

    def _note(self, rule: Rule, spans: list[tuple[int, int]], *, claimed: bool) -> None:
        kept = [(a, b) for a, b in spans if not self._words.courtesy.fullmatch(self._folded[a:b])]
        if claimed:
            kept = [(a, b) for a, b in kept if not self._words.asks.search(self._folded[a:b])]
        if not kept:
            return
        start, end = kept[0][0], kept[-1][1]
        if rule.polite and _STATES.search(self._folded, start, end) is None:
            # "Can you remember things?" is a question.
            return
        left, right = trimmed(self._text, start, end, self._folded, times=False)
        piece = self._folded[left:right]
        if len(piece) < (2 if _HAN.search(piece) else 4) or self._words.unworthy.match(piece):
            return
        attribute = "note"
        if chore := self._words.chores.match(piece):
            attribute, left = "task", left + chore.end("skip")
        elif steer := self._words.steers.match(piece):
            attribute, left = "instruction", left + steer.end("skip")
        value = self._text[left:right]
        language = "zh" if _HAN.search(value) else "en"
        hit = RuleHit(
            rule.id,
            HitKind.CLAIM,
            Operation.ASSERT,
            attribute,
            value,
            value,
            self._turn.text[start:end],
            True,
            rule.confidence,
            language,
        )
        if self._words.timely.search(piece):
            spans_found = self._resolver(self._text[left:right], self._turn.sent_at, self._turn.timezone, language)
            hit = self._bounded(hit, spans_found, left, left, right)
        self._hits.append(hit)


def _unique(hits: list[RuleHit]) -> tuple[RuleHit, ...]:
    found: dict[tuple[str, str, str, str], RuleHit] = {}
    for hit in hits:
        single = slot_for(hit.attribute).category is Category.NOTE
        key = (hit.kind.value, hit.operation.value, hit.attribute, hit.value if single else value_key(hit.value))
        known = found.get(key)
        if known is None or (hit.explicit and not known.explicit):
            found[key] = hit
    return tuple(found.values())
