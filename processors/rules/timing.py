"""Rules, timing: from when a statement holds, when a plan is due, and until when an order binds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from processors.rules.model import Rule, RuleHit
from processors.rules.passage import Passage
from processors.times import Span

_ANSWERS: Final = frozenset({"answer_language", "answer_length", "answer_style", "instruction"})


def timed(passage: Passage, rule: Rule, hit: RuleHit, start: int, end: int) -> RuleHit:
    """The hit with the time that stands in the clause at `start`..`end`, as the rule understands it."""
    if not rule.time or passage.words.timely.search(passage.folded, start, end) is None:
        return hit
    sent = passage.turn.sent_at
    spans = passage.times(start, end, hit.language)
    if rule.time in ("past", "dated"):
        began = [span.start for span in spans if span.start <= sent]
        return replace(hit, event_time=began[0], valid_from=began[0]) if began else hit
    if rule.time in ("future", "due"):
        return due(passage, hit, spans)
    if rule.time == "aimed":
        # What somebody is after next year is their goal today, and for as long as that year lasts.
        ends = [span.end for span in spans if span.end is not None and span.end > sent]
        return replace(hit, valid_to=max(ends)) if ends else hit
    return bounded(passage, hit, spans, start, end)


def due(passage: Passage, hit: RuleHit, spans: Sequence[Span]) -> RuleHit:
    """The hit with the first time to come as its own."""
    coming = [span for span in spans if span.end is None or span.end > passage.turn.sent_at]
    if not coming:
        return hit
    # "until Friday" is due on Friday.
    when = coming[0].end if coming[0].kind == "until" and coming[0].end else coming[0].start
    return replace(hit, event_time=when, valid_from=when)


def bounded(passage: Passage, hit: RuleHit, spans: Sequence[Span], start: int, end: int) -> RuleHit:
    """The hit with the end of the period that limits it. A wish about answers becomes an instruction for that period."""
    if passage.words.bounds.search(passage.folded, start, end) is None:
        return hit
    ends = [span.end or span.start for span in spans if (span.end or span.start) > passage.turn.sent_at]
    if passage.turn.sent_at_guessed and not spans:
        # "This week" of a log without times: nobody knows which week it was, so it binds nobody now.
        ends = [passage.turn.sent_at]
    if not ends:
        return hit
    if hit.attribute not in _ANSWERS:
        return replace(hit, valid_to=ends[-1])
    # For a while only: the standing preference in its own slot stays as it is.
    while start < end and passage.folded[start] in " \n,:":
        start += 1
    value, quote = passage.text[start:end], passage.quote(start, end)
    return replace(hit, attribute="instruction", value=value, text=value, quote=quote, valid_to=ends[-1])
