"""Rules, reading one turn: carries the subject and the order from clause to clause and collects the hits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import regex

from processors.rules.clauses import Clause, sentences
from processors.rules.fold import fold
from processors.rules.model import HitKind, Rule, RuleHit
from processors.rules.notes import note
from processors.rules.passage import Passage, found, language_of, searched
from processors.rules.statements import Stated, statements
from processors.rules.taking_back import contrasted, corrected, forgotten, retraction, weak_retraction
from processors.slots import slot_for, value_key
from schemas import Category

_APPOSITION: Final = regex.compile(r"(?:an?|the)\s")
_ROLE: Final = regex.compile(r"as an?\s")
_INTRODUCING: Final = frozenset({"name", "nickname", "age"})
_ASKING: Final = regex.compile(r"[吗么嘛]$")


@dataclass(slots=True)
class _Sentence:
    """The state of reading one sentence."""

    clauses: list[Clause]
    previous: list[Clause]
    # How many hits there were before it.
    mark: int
    # The order that covers the clauses to come, if any.
    order: Rule | None
    # What comes is supposed, asked or somebody else's word.
    blocked: bool
    # Its last clause asks for a confirmation: "you're in Leeds, right?"
    tagged: bool
    # It speaks to somebody else: what it orders is not ordered of the agent.
    elsewhere: bool = False
    # Where the fillers begin that stand before the clause to come ("no wait,"); None when there are none.
    fillers: int | None = None
    # What was ordered and no rule could read.
    pending: list[tuple[int, int]] = field(default_factory=list)


class Reading:
    """The state of reading one turn; used once."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._words = passage.words
        self._hits: list[RuleHit] = []
        # Whether the speaker is the subject of a clause that has none: in Chinese until somebody else is, in English
        # to the end of the sentence.
        self._carry = False
        self._carry_here = False
        # Where the first clause begins that is more than greetings and fillers.
        self._opening: int | None = None
        # The rest of the turn is somebody else's word.
        self._voiced = False
        # An order that ended with a colon covers the following lines; one that stood alone, the next sentence.
        self._order_ahead: Rule | None = None
        self._order_lines = False
        # How many hits there were before each sentence.
        self._marks: list[int] = [0]
        self._last_asked = False

    def hits(self) -> tuple[RuleHit, ...]:
        """Everything found, in reading order, each fact once."""
        folded = self._passage.folded
        if self._words.triggers.search(folded) is None:
            return ()
        previous: list[Clause] = []
        for clauses in sentences(self._passage.text, folded):
            if previous and "\n\n" in folded[previous[-1].end : clauses[0].start]:
                self._order_ahead, self._order_lines = None, False
            self._marks.append(len(self._hits))
            if not self._sentence(clauses, previous):
                # "Don't save that", and nothing else: that is what was said before.
                alone = retraction(self._passage, *self._passage.body(0, len(folded)))
                return () if alone is None else (alone,)
            previous = clauses
        if not self._hits and (mark := weak_retraction(self._passage)) is not None:
            return (mark,)
        return _unique(self._hits)

    def _sentence(self, clauses: list[Clause], previous: list[Clause]) -> bool:
        """Reads one sentence; False when the speaker wants nothing of this turn kept."""
        sentence = _Sentence(
            clauses,
            previous,
            mark=len(self._hits),
            order=self._order_ahead,
            blocked=self._voiced,
            tagged=len(clauses) > 1 and clauses[-1].asked and self._tag(clauses[-1]),
        )
        self._carry_here = False
        if not self._order_lines:
            self._order_ahead = None
        for index in range(len(clauses)):
            if not self._clause(sentence, index):
                return False
        if sentence.order is not None and sentence.pending:
            self._note(sentence.order, sentence.pending, claimed=len(self._hits) > sentence.mark)
        self._last_asked = clauses[-1].asked
        return True

    def _clause(self, sentence: _Sentence, index: int) -> bool:
        """Reads one clause; False when the speaker wants nothing of this turn kept."""
        clause = sentence.clauses[index]
        start, end = self._passage.body(clause.start, clause.end)
        begun = clause.start if sentence.fillers is None else sentence.fillers
        if start >= end:
            # "Correction:" and other fillers only.
            sentence.fillers = begun
            sentence.elsewhere = sentence.elsewhere or self._calls(clause)
            return True
        sentence.fillers = None
        if self._opening is None:
            self._opening = clause.start
        piece = self._passage.folded[start:end]
        sentence.elsewhere = sentence.elsewhere or self._calls(clause)
        if any(searched(rule, piece) for rule in self._passage.rules.suppressions.possible(piece)):
            return False
        better = corrected(self._passage, begun, clause.end, self._hits[self._marks[-2] :])
        if better is not None and not (sentence.blocked or clause.asked):
            self._hits[self._marks[-2] :] = better
            sentence.mark = min(sentence.mark, len(self._hits))
            return True
        if (not sentence.elsewhere and self._takes_back(sentence, start, end)) or self._voices(sentence, clause, piece):
            return True
        asked = clause.asked or _ASKING.search(piece) is not None
        order = None if self._voiced or sentence.elsewhere else self._order(piece, asked)
        if order is not None:
            ordered = self._ordered(sentence, index, *order, start, end)
            if ordered is not None:
                self._states(sentence, index, *ordered, asked=False)
            return True
        self._voices_on(sentence, clause, piece)
        if sentence.blocked:
            if sentence.order is not None and not self._voiced:
                sentence.pending.append((start, end))
        elif not sentence.elsewhere and (targets := forgotten(self._passage, start, end)):
            self._hits += targets
        else:
            before = len(self._hits)
            self._states(sentence, index, start, end, asked=asked)
            if sentence.elsewhere:
                # "Bob, call me at nine": what Bob shall do is nothing about the speaker.
                self._hits[before:] = [hit for hit in self._hits[before:] if not _told(hit)]
        return True

    def _calls(self, clause: Clause) -> bool:
        """Whether the clause calls somebody who is no agent: "@alice remember …", "Bob, don't forget …"."""
        match = self._words.addressee.match(self._passage.folded, clause.start, clause.end)
        if match is None:
            return False
        agent = self._passage.turn.agent_id
        return agent is None or (match["mention"] or match["name"]) not in fold(agent)

    # Whose word it is

    def _takes_back(self, sentence: _Sentence, start: int, end: int) -> bool:
        mark = retraction(self._passage, start, end)
        if mark is None:
            return False
        first = self._marks[-2] if len(self._hits) == sentence.mark else sentence.mark
        if any(hit.kind is HitKind.CLAIM for hit in self._hits[first:]):
            # What is taken back was said a moment ago, in this very turn.
            del self._hits[first:]
        else:
            self._hits.append(mark)
        sentence.mark = len(self._hits)
        return True

    def _voices(self, sentence: _Sentence, clause: Clause, piece: str) -> bool:
        """Whether the clause says that what stands before it, or after its colon, is somebody else's word."""
        if not self._voiced and not clause.colon and self._words.voices_back.search(piece):
            del self._hits[self._marks[-2] :]
            sentence.mark = len(self._hits)
        elif not (clause.colon and self._order(piece, False) is None and self._labels(piece)):
            return False
        self._voiced = sentence.blocked = True
        return True

    def _voices_on(self, sentence: _Sentence, clause: Clause, piece: str) -> None:
        if self._words.voices_turn.search(piece):
            self._voiced = sentence.blocked = True
        elif self._words.voices_sentence.search(piece):
            sentence.blocked = True
            self._voiced = self._voiced or clause.colon

    def _labels(self, piece: str) -> bool:
        if self._words.voices_colon.search(piece):
            return True
        speaker = self._passage.turn.speaker_name
        return self._words.speaker.fullmatch(piece) is not None and (speaker is None or fold(speaker) != piece)

    def _tag(self, clause: Clause) -> bool:
        piece = self._passage.folded[clause.start : clause.end].strip()
        return self._words.confirm_tag.fullmatch(piece) is not None

    # Orders

    def _order(self, piece: str, asked: bool) -> tuple[Rule, int] | None:
        """The order with which the clause begins, and where it ends."""
        for rule in self._passage.rules.orders.possible(piece):
            if asked and not rule.polite:
                continue
            for pattern in rule.patterns:
                match = found(pattern, piece, how="match")
                if match is not None:
                    return rule, match.end()
        if asked and (tail := self._words.request_tail.search(piece)) is not None and tail.start():
            return self._order(piece[: tail.start()], False)
        return None

    def _ordered(
        self, sentence: _Sentence, index: int, rule: Rule, offset: int, start: int, end: int
    ) -> tuple[int, int] | None:
        """Where what is ordered stands; None when it stands elsewhere or is nothing to remember."""
        clause = sentence.clauses[index]
        sentence.order, sentence.blocked = rule, False
        start, end = self._passage.body(start + offset, end)
        if rule.polite and (particle := _ASKING.search(self._passage.folded, start, end)) is not None:
            end = particle.start()
        piece = self._passage.folded[start:end]
        if not piece or self._words.anaphora.fullmatch(piece):
            if clause.colon:
                self._order_ahead, self._order_lines = rule, True
            elif clause.last:
                self._look_back(rule, sentence, sentence.clauses[:index])
                sentence.order = None
            return None
        if self._words.unworthy.match(piece):
            sentence.order = None
            return None
        return start, end

    def _look_back(self, rule: Rule, sentence: _Sentence, before: list[Clause]) -> None:
        """An order that follows what it is about: "I'm allergic to nuts, please remember that"."""
        first = sentence.mark
        if len(self._hits) == sentence.mark and not before:
            first = self._marks[-2]
        fresh = [i for i in range(first, len(self._hits)) if self._hits[i].kind is HitKind.CLAIM]
        if fresh:
            for i in fresh:
                hit = self._hits[i]
                self._hits[i] = replace(hit, explicit=True, confidence=max(hit.confidence, rule.confidence))
            return
        clauses = before or ([] if self._last_asked else sentence.previous)
        spans = [self._passage.body(clause.start, clause.end) for clause in clauses]
        spans = [span for span in spans if span[0] < span[1]]
        if spans:
            self._note(rule, spans, claimed=False)
        elif not before:
            self._order_ahead = rule

    def _note(self, rule: Rule, spans: list[tuple[int, int]], *, claimed: bool) -> None:
        hit = note(self._passage, rule, spans, claimed=claimed)
        if hit is not None:
            self._hits.append(hit)

    # Statements

    def _states(self, sentence: _Sentence, index: int, start: int, end: int, *, asked: bool) -> None:
        clause, order = sentence.clauses[index], sentence.order
        piece = self._passage.folded[start:end]
        if self._words.supposes.match(piece) or self._words.opens_question.match(piece):
            sentence.blocked = True
        carried = self._carry if language_of(piece) == "zh" else self._carry_here
        if carried and _APPOSITION.match(piece):
            # "I'm Craig, a nurse" says who speaks; "I met Craig, a nurse" does not.
            carried = len(self._hits) > sentence.mark and self._hits[-1].attribute in _INTRODUCING
        if _ROLE.match(piece) and not self._goes_on(sentence, index):
            # "As a nurse, I work nights" says who speaks; "As a chef, suggest a dish" gives a part to the listener.
            return
        stated = Stated(clause.start, start, end, order, carried, alone=clause.start == self._opening)
        if order is None and not sentence.blocked and (asked or self._words.asks.search(piece)):
            tail = self._words.request_tail.search(piece)
            if tail is None or tail.start() == 0:
                # "Could you answer in English?" asks for no information.
                self._step(piece, claimed=self._claims(replace(stated, polite=True)))
                return
            stated = replace(stated, end=start + tail.start())
            piece = piece[: tail.start()]
        readable = not sentence.blocked and not (
            sentence.tagged and index == len(sentence.clauses) - 2 and order is None
        )
        if readable:
            ended = contrasted(self._passage, start, stated.end, self._hits[sentence.mark :])
            if ended is not None:
                self._hits += ended
                return
        claimed = readable and self._claims(stated)
        if not claimed and order is not None:
            sentence.pending.append((start, stated.end))
        self._step(piece, claimed=claimed)

    def _goes_on(self, sentence: _Sentence, index: int) -> bool:
        """Whether the speaker is the subject of the next clause."""
        if index + 1 == len(sentence.clauses):
            return False
        following = sentence.clauses[index + 1]
        start, end = self._passage.body(following.start, following.end)
        subject = self._words.subject.match(self._passage.folded, start, end)
        return subject is not None and subject.group("self") is not None

    def _claims(self, stated: Stated) -> bool:
        hits = statements(self._passage, stated)
        self._hits += hits
        return bool(hits)

    def _step(self, piece: str, *, claimed: bool) -> None:
        if (subject := self._words.subject.match(piece)) is not None:
            # "我女儿叫小雨，对花生过敏": what follows is said of her.
            self._carry = self._carry_here = subject.group("self") is not None
        elif claimed:
            self._carry = self._carry_here = True


def _told(hit: RuleHit) -> bool:
    category = slot_for(hit.attribute).category
    return category in (Category.INSTRUCTION, Category.TASK) or hit.attribute == "nickname"


def _unique(hits: list[RuleHit]) -> tuple[RuleHit, ...]:
    unique: dict[tuple[str, str, str, str], RuleHit] = {}
    for hit in hits:
        single = slot_for(hit.attribute).category is Category.NOTE
        key = (hit.kind.value, hit.operation.value, hit.attribute, hit.value if single else value_key(hit.value))
        known = unique.get(key)
        if known is None or (hit.explicit and not known.explicit):
            unique[key] = hit
    return tuple(unique.values())
