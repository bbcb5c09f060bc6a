"""Extraction: what follows from a reply: accept, ask again, split or give up, as pure decisions (FIELD_REPORTS 3–5)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from processors.extraction.outcome import Extracted, Nothing, Outcome, Truncated, Unparsable
from processors.extraction.render import MAX_TURNS
from schemas import Turn

REFUSED = frozenset({"refused", "too_long"})
"""Reasons that lie in some of the turns: halves find out which."""
FINAL = frozenset({"bad_request"})
"""Reasons that asking again cannot change."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`attempts` per piece of a batch, `calls` per batch whatever happens, `max_tokens` of an answer."""

    attempts: int = 3
    calls: int = 12
    max_tokens: int = 2_000


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to be made. `plainer` counts the steps down from the richest structured output the endpoint has."""

    turns: tuple[Turn, ...]
    max_tokens: int
    attempt: int = 1
    reminder: bool = False
    plainer: int = 0


@dataclass(frozen=True, slots=True)
class Accept:
    """These turns are done."""


@dataclass(frozen=True, slots=True)
class Again:
    """These calls come instead; what the reply held is dropped, since they will say it once more."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """These turns go to the dead letters with the raw reply; claims that were whole are kept."""

    reason: str


Step = Accept | Again | GiveUp


def about(outcome: Outcome, turns: Container[int]) -> Outcome:
    """The reply as an answer to this question: one whose every claim cites a turn that was not shown answers another one."""
    if isinstance(outcome, Extracted) and outcome.items and not any(item.turn in turns for item in outcome.items):
        return Unparsable("no_such_turn")
    return outcome


def first_asks(turns: tuple[Turn, ...], limits: Limits) -> tuple[Ask, ...]:
    """The calls a batch starts with: one, unless it has more turns than a prompt shows."""
    return tuple(Ask(turns[start : start + MAX_TURNS], limits.max_tokens) for start in range(0, len(turns), MAX_TURNS))


def next_step(ask: Ask, outcome: Outcome, limits: Limits) -> Step:
    """What follows from a reply.

    Unreadable: once more with a reminder, then also with less structured output, then given up. Cut off or refused:
    halves, down to one turn; a single turn that is cut off gets twice the room once.
    """
    match outcome:
        case Nothing():
            return Accept()
        case Extracted(items=items, rejected=rejected):
            if items or not rejected:
                return Accept()
            return _ask_again(ask, "all_malformed", limits)
        case Truncated():
            if len(ask.turns) > 1:
                return Again(_halves(ask))
            if ask.attempt == 1:
                return Again((replace(ask, attempt=2, max_tokens=ask.max_tokens * 2),))
            return GiveUp("truncated")
        case Unparsable(reason=reason):
            if reason in FINAL:
                return GiveUp(reason)
            if reason in REFUSED:
                return Again(_halves(ask)) if len(ask.turns) > 1 else GiveUp(reason)
            return _ask_again(ask, reason, limits)


def label(outcome: Outcome) -> str:
    """The metric label of a reply: extracted, empty, truncated, refused or unparsable."""
    match outcome:
        case Nothing():
            return "empty"
        case Truncated():
            return "truncated"
        case Unparsable(reason=reason):
            return "refused" if reason in REFUSED else "unparsable"
        case Extracted(items=items, rejected=rejected):
            return "extracted" if items or not rejected else "unparsable"


def _ask_again(ask: Ask, reason: str, limits: Limits) -> Step:
    if ask.attempt >= limits.attempts:
        return GiveUp(reason)
    return Again(
        (replace(ask, attempt=ask.attempt + 1, reminder=True, plainer=ask.plainer + (1 if ask.reminder else 0)),)
    )


def _halves(ask: Ask) -> tuple[Ask, ...]:
    middle = len(ask.turns) // 2
    return tuple(
        replace(ask, turns=half, attempt=1, reminder=False) for half in (ask.turns[:middle], ask.turns[middle:])
    )
