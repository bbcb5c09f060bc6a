"""Rules, vocabulary: what a rule is and what a hit says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from processors.rules.late import Pattern
from schemas import Operation


class HitKind(StrEnum):
    """What the speaker does: states something, takes the last statement back, or orders a slot to be forgotten."""

    CLAIM = "claim"
    RETRACT_PREVIOUS = "retract_previous"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class RuleHit:
    """One thing that one rule found in one turn.

    `quote` is a verbatim substring of the turn's text; `value` and `text` are in the speaker's own words (`text` gets
    back a subject that was left out). `explicit` means that the speaker ordered it to be remembered. An END or CLEAR
    with an empty `value` means whatever the slot holds. Instants are UTC.
    """

    rule_id: str
    kind: HitKind
    operation: Operation
    attribute: str
    value: str
    text: str
    quote: str
    explicit: bool
    confidence: float
    language: str
    subject: str = "user"
    ttl_days: int | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    event_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the YAML states it, compiled. `kind` is one of claim, order, retract, forget, suppress."""

    id: str
    language: str
    kind: str
    attribute: str
    operation: Operation
    patterns: tuple[Pattern, ...]
    keywords: tuple[str, ...]
    reject: Pattern | None
    # By group: the values that are meant where the group caught something, "{}" being what it caught ("可以用表格了"
    # means "不要用表格" and "别用表格").
    values: tuple[tuple[str, tuple[str, ...]], ...]
    shape: str
    splits: bool
    confidence: float
    # "past": a time in the clause is when it began; "future": a coming time is required; "due": one
    # is taken when there is one; "bound": it limits validity; "aimed": a coming one is reached for, and its end is the end.
    time: str
    # Other attributes for other named groups, e.g. employer next to occupation.
    also: tuple[tuple[str, str], ...]
    # Attributes whose same value this statement ends; "likes:thing" ends what the group `thing` caught, and
    # "family=no children:child" that very value when the group `child` caught something; "*:gone" is the rule's own
    # attribute.
    ends: tuple[str, ...]
    ttl_days: int | None
    # Whether the subject may be left out ("我叫李雷，住在上海").
    elides: bool
    # Only where nobody has been spoken of in the turn: a sentence without any subject ("全家搬去上海了").
    alone: bool
    # Nothing when the sentence says that it is for once or for a while only ("I don't eat meat today").
    lasting: bool
    # An order that may be put as a question ("could you remember that …?").
    polite: bool
