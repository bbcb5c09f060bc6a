"""Times, the frame of the grammars: rules that read one expression, and the scene they read it in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from processors.times.periods import Anchor, Clock, Period, Tense

_BREAK = re.compile(r"[，。！？；,!?;\n]|\.(?:\s|$)")
_REACH: Final = 60

# What has a date is to come when somebody has it, or it is: "I have surgery on December 20th", "my flight is in May".
_DATED = (
    r"(?:surgery|operation|appointment|interview|exam|finals|midterms|test|meeting|flight|trip|wedding|concert|conference"
    r"|deadline|party|checkup|check-up|reservation|booking|presentation|recital|marathon|race|graduation|reunion|vacation"
    r"|holiday|hearing|defense|due\s+date|lease|visa)s?"
)
# Said of a date, the present progressive is a plan.
_UNDER_WAY = (
    r"(?:getting\s+married|moving|flying|leaving|starting|having|visiting|travell?ing|graduating|retiring|expecting|launching"
    r"|running|hosting|attending|buying|selling|opening|switching|joining|seeing|meeting|presenting|coming|returning|taking)"
)
_FUTURE = re.compile(
    r"(?<![重主首])要|(?<![机社开大])会(?![议员计所])|将(?!军)|马上|打算|准备|计划|记得|提醒|(?<![特区分级性])别(?![人的墅])|安排|预定|预计|截止|到期|之前完成"
    r"|\b(?:will|won't|shall|gonna|going\s+to|plan(?:s|ning)?|remind|need(?:s)?\s+to|should|must|let's|want|due|deadline"
    rf"|(?:i|we)(?:'ve\s+got|\s+have)\s+(?:[\w'-]+\s+){{0,3}}?{_DATED}"
    rf"|{_DATED}\s+(?:is|are|starts?|begins?|ends?|leaves?|expires?)"
    rf"|(?:i'm|i\s+am|we're|we\s+are|and\s+i\s+are)\s+{_UNDER_WAY}"
    r"|don't|do\s+not|remember\s+to|have\s+to|schedule|upcoming|please|can\s+(?:you|we))\b|'ll\b",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"(?<![为除])了(?!解)|(?<![不超经路难])过(?![敏去期程年来度后几分])|曾|刚才|已经"
    r"|\b(?:was|were|did|didn't|had|went|got|met|saw|bought|came|took|made|ate|left|told|said|began|lost|found|spent|gave"
    r"|flew|drove|ran|wrote|sent|felt|fell|broke|\w{2,}(?<!e)(?<!hundr)ed)\b",
    re.IGNORECASE,
)
# A deadline looks ahead and an origin looks back, whatever the verb's tense.
_AHEAD = re.compile(
    r"(?:直到|截止到?|截至|到|\b(?:until|till|by|before|no\s+later\s+than))\s*(?:the\s+)?$", re.IGNORECASE
)
_BACK = re.compile(r"(?:自从|自|\bsince)\s*(?:the\s+)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scene:
    """A text and the anchor it is read from."""

    text: str
    anchor: Anchor
    han: bool

    def clause(self, begin: int, end: int) -> tuple[str, str]:
        """What stands before and after text[begin:end] within its clause, at most 60 characters each way."""
        before = self.text[max(0, begin - _REACH) : begin]
        after = self.text[end : end + _REACH]
        if after[:1] in (",", "，"):
            # "On Friday, I got …": the comma belongs to the expression.
            after = after[1:]
        for cut in reversed(list(_BREAK.finditer(before))):
            before = before[cut.end() :]
            break
        stop = _BREAK.search(after)
        return before, after[: stop.start()] if stop else after

    def tense(self, match: re.Match[str]) -> Tense:
        """Which way the clause around a match looks; future words win over past ones."""
        before, after = self.clause(match.start(), match.end())
        if _AHEAD.search(before):
            return Tense.FUTURE
        if _BACK.search(before) or after.startswith("以来"):
            return Tense.PAST
        around = f"{before} {after}"
        if _FUTURE.search(around):
            return Tense.FUTURE
        return Tense.PAST if _PAST.search(around) else Tense.NONE


Reading = Period | Clock | None
"""What a rule makes of its match; None takes the characters and says nothing ("every Friday")."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The text must hold one of the characters or words of `needs`, and one of `also`, before the pattern is run."""

    needs: frozenset[str]
    also: frozenset[str]
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], Scene], Reading]


def rule(needs: str, pattern: str, read: Callable[[re.Match[str], Scene], Reading], flags: int = re.IGNORECASE) -> Rule:
    """A rule; `needs` is a space-separated list, with & before those of `also`."""
    first, _, second = needs.partition("&")
    return Rule(frozenset(first.split()), frozenset((second or first).split()), re.compile(pattern, flags), read)


def nothing(_match: re.Match[str], _scene: Scene) -> None:
    """Recurring or vague: takes the characters so that no smaller rule reads a date into them."""
    return
