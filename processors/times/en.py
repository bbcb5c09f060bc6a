"""Times, English: relative expressions, weekdays, months and clock times.

A word that is also something else needs company: "may" and "march" a capital letter and a preposition, a number or a
year; "sun" is never a day; a plural or "every" is a habit and gives nothing.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from processors.times.grammar import Reading, Rule, Scene, nothing, rule
from processors.times.numerals import EN, english
from processors.times.periods import Clock, Grain, Period, Tense

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORT = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5}
_LONG_DAY = "|".join(_WEEKDAYS)
_SHORT_DAY = "Mon|Tues?|Wed|Thurs?|Thu|Fri|Sat"
_DAY_WORDS = " ".join((*_WEEKDAYS, *_SHORT))
_UNIT = r"(?P<unit>minute|hour|day|week|month|year)s?"
_UNIT_WORDS = "minute minutes hour hours day days week weeks month months year years"
_PART = r"(?P<part>morning|afternoon|evening|night)"
_PARTS = {"morning": "morning", "afternoon": "afternoon", "evening": "evening", "night": "evening"}
_SHIFT = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1, "following": 1}
_NEXT = {"next", "coming", "following"}
_PERFECT = re.compile(r"\b(?:have|has|having|been)\b|'ve\b|'s been\b", re.IGNORECASE)
_TWO_AWAY = {"after next": 2, "before last": -2}


def _count(match: re.Match[str]) -> float:
    return 0.5 if match["count"].lower().startswith("half") else english(match["count"])


def _today(match: re.Match[str], scene: Scene) -> Reading:
    words = " ".join(match["word"].lower().split())
    away = {"today": 0, "yesterday": -1, "tomorrow": 1, "tmr": 1, "tmrw": 1}
    if words in away:
        return scene.anchor.today_plus(away[words])
    return scene.anchor.today_plus(2 if "after" in words else -2)


def _tonight(match: re.Match[str], scene: Scene) -> Reading:
    words = match[0].lower()
    if words == "tonight":
        return scene.anchor.part_of(scene.anchor.today, "evening")
    if words.startswith("last"):
        return scene.anchor.part_of(scene.anchor.today - timedelta(days=1), "evening")
    return scene.anchor.part_of(scene.anchor.today, _PARTS[match["part"].lower()])


def _relative_unit(match: re.Match[str], scene: Scene) -> Reading:
    anchor, unit, shift = scene.anchor, match["unit"].lower(), _SHIFT[match["shift"].lower()]
    if unit == "weekend":
        return anchor.weekend(shift)
    if unit == "week":
        return anchor.week(shift)
    return anchor.months_away(shift) if unit == "month" else anchor.year(anchor.today.year + shift)


def _two_away(match: re.Match[str], scene: Scene) -> Reading:
    anchor, unit = scene.anchor, match["unit"].lower()
    shift = _TWO_AWAY[" ".join(match["way"].lower().split())]
    if unit == "week":
        return anchor.week(shift)
    return anchor.months_away(shift) if unit == "month" else anchor.year(anchor.today.year + shift)


def _edge(match: re.Match[str], scene: Scene) -> Reading:
    anchor, unit = scene.anchor, match["unit"].lower()
    shift = _SHIFT[match["shift"].lower()] if match["shift"] else 0
    edge = "end" if match["edge"].lower() == "end" else "start"
    if unit == "month":
        return anchor.month_edge(anchor.today.year, anchor.today.month + shift, edge)
    if unit == "year":
        return anchor.year_edge(anchor.today.year + shift, edge)
    monday = anchor.monday(shift)
    return anchor.day(monday + timedelta(days=4 if edge == "end" else 0))


def _rest(match: re.Match[str], scene: Scene) -> Reading:
    anchor, unit = scene.anchor, match["unit"].lower()
    whole = {
        "day": anchor.today_plus(0),
        "week": anchor.week(0),
        "month": anchor.months_away(0),
        "year": anchor.year(anchor.today.year),
    }[unit]
    return Period(anchor.sent_at, whole.end, whole.grain, kind="until")


def _weekend(match: re.Match[str], scene: Scene) -> Reading:
    early = scene.anchor.today.weekday() < 5
    return scene.anchor.weekend(-1 if early and scene.tense(match) is Tense.PAST else 0)


def _weekday_number(name: str) -> int:
    name = name.lower()
    return _WEEKDAYS.index(name) if name in _WEEKDAYS else _SHORT[name]


def _weekday(match: re.Match[str], scene: Scene) -> Reading:
    anchor, weekday = scene.anchor, _weekday_number(match["weekday"])
    shift = (match["shift"] or "").lower()
    if shift in ("last", "past"):
        # "Last Friday" is the latest one before today, also on a Saturday.
        return anchor.day(anchor.today - timedelta(days=(anchor.today.weekday() - weekday - 1) % 7 + 1))
    if shift in ("next", "following"):
        return anchor.day(anchor.monday(1) + timedelta(days=weekday))
    upcoming = anchor.today + timedelta(days=(weekday - anchor.today.weekday()) % 7)
    if shift == "coming":
        return anchor.day(upcoming)
    if shift == "this":
        return anchor.day(anchor.monday() + timedelta(days=weekday))
    tense = scene.tense(match)
    if tense is Tense.PAST:
        return anchor.weekday(weekday, tense)
    return anchor.day(upcoming, bare=True)


def _ago(match: re.Match[str], scene: Scene) -> Reading:
    count, unit = _count(match), match["unit"].lower()
    return None if count % 1 and unit in ("day", "week") else scene.anchor.away(-count, unit)


def _in(match: re.Match[str], scene: Scene) -> Reading:
    count, unit = _count(match), match["unit"].lower()
    if (count % 1 and unit in ("day", "week")) or scene.tense(match) is Tense.PAST:
        return None
    return scene.anchor.away(count, unit)


def _within(match: re.Match[str], scene: Scene) -> Reading:
    return (
        None
        if scene.tense(match) is Tense.PAST
        else scene.anchor.stretch(english(match["count"]), match["unit"].lower())
    )


def _next_stretch(match: re.Match[str], scene: Scene) -> Reading:
    return scene.anchor.stretch(english(match["count"] or "one"), match["unit"].lower())


def _last_stretch(match: re.Match[str], scene: Scene) -> Reading:
    return scene.anchor.stretch(-english(match["count"] or "one"), match["unit"].lower())


def _for(match: re.Match[str], scene: Scene) -> Reading:
    """As in "for two weeks": the past ones after "have been", the coming ones in an order, no date in a story."""
    count, unit = english(match["count"]), match["unit"].lower()
    before, after = scene.clause(match.start(), match.end())
    if _PERFECT.search(f"{before} {after}"):
        return scene.anchor.stretch(-count, unit)
    return None if scene.tense(match) is Tense.PAST else scene.anchor.stretch(count, unit)


def _now(_match: re.Match[str], scene: Scene) -> Reading:
    return Period(scene.anchor.sent_at, None, Grain.INSTANT, kind="since")


def _clock(match: re.Match[str], _scene: Scene) -> Reading:
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if not 1 <= hour <= 12 or minute > 59:
        return None
    return Clock(hour % 12 + (12 if match["half"].lower() == "p" else 0), minute, exact=True)


def _at(match: re.Match[str], _scene: Scene) -> Reading:
    hour = int(match["hour"] or match["oclock"])
    return Clock(hour, alone=False) if hour <= 24 else None


def _noon(match: re.Match[str], _scene: Scene) -> Reading:
    return Clock(12 if match["word"].lower() == "noon" else 24, exact=True)


def _part(match: re.Match[str], _scene: Scene) -> Reading:
    return Clock(None, 0, _PARTS[match["part"].lower()], alone=False)


RULES: Final[tuple[Rule, ...]] = (
    rule(
        f"every each & weekend weekends weekday weekdays morning afternoon evening night {_UNIT_WORDS} {_DAY_WORDS}",
        rf"\b(?:every|each)\s+(?:single\s+|other\s+|last\s+|first\s+)?(?:{_LONG_DAY}|{_UNIT}|weekend|weekday|{_PART})s?\b",
        nothing,
    ),
    rule(" ".join(f"{day}s" for day in _WEEKDAYS), rf"\b(?:on\s+)?(?:{_LONG_DAY})s\b(?!['’])", nothing),
    rule(
        f"few couple several some many & {_UNIT_WORDS}",
        rf"\b(?:few|couple\s+of|several|some|many)\s+{_UNIT}\b(?:\s+(?:ago|from\s+now))?",
        nothing,
    ),
    rule(
        f"half & {_UNIT_WORDS}", rf"\b(?:an?|one|{EN})\s+{_UNIT}\s+and\s+a\s+half\b(?:\s+(?:ago|from\s+now))?", nothing
    ),
    rule(
        "today yesterday tomorrow tmr tmrw",
        r"\b(?P<word>(?:the\s+)?day\s+after\s+tomorrow|(?:the\s+)?day\s+before\s+yesterday|today|yesterday|tomorrow|tmrw?)\b",
        _today,
    ),
    rule(
        "tonight night this & tonight night morning afternoon evening",
        rf"\btonight\b|\blast\s+night\b|\bthis\s+{_PART.replace('|night', '')}\b",
        _tonight,
    ),
    rule(
        f"last past previous this current next coming following & weekend {_UNIT_WORDS}",
        r"\b(?:the\s+)?(?P<shift>last|previous|this|current|next|coming|following)\s+(?P<unit>weekend|week|month|year)\b(?!\s+of\b)",
        _relative_unit,
    ),
    rule(
        f"after before & {_UNIT_WORDS}",
        r"\b(?:the\s+)?(?P<unit>week|month|year)\s+(?P<way>after\s+next|before\s+last)\b",
        _two_away,
    ),
    rule(
        f"end beginning start & {_UNIT_WORDS}",
        r"\b(?:the\s+)?(?P<edge>end|beginning|start)\s+of\s+(?:the\s+|(?P<shift>this|next|last)\s+)(?P<unit>week|month|year)\b",
        _edge,
    ),
    rule("rest", r"\b(?:for\s+)?the\s+rest\s+of\s+(?:the|this)\s+(?P<unit>day|week|month|year)\b", _rest),
    rule("weekend", r"\b(?:over\s+|at\s+|on\s+)?the\s+weekend\b(?!\s+(?:after|before|of))", _weekend),
    rule(
        _DAY_WORDS,
        rf"\b(?<!black\s)(?<!good\s)(?<!casual\s)(?<!super\s)(?<!ash\s)(?<!easter\s)(?<!palm\s)(?<!cyber\s)"
        rf"(?:(?P<shift>last|past|this|next|following|coming)\s+)?(?P<weekday>{_LONG_DAY})\b",
        _weekday,
    ),
    rule(
        _DAY_WORDS,
        rf"\b(?:[Oo]n|[Uu]ntil|[Tt]ill|[Bb]y|[Bb]efore|[Ss]ince|(?P<shift>last|this|next|Last|This|Next))\s+(?P<weekday>{_SHORT_DAY})\b",
        _weekday,
        flags=0,
    ),
    rule(f"ago & {_UNIT_WORDS}", rf"\b(?P<count>half\s+an?|{EN})\s+{_UNIT}\s+ago\b", _ago),
    rule(f"in & {_UNIT_WORDS}", rf"\bin\s+(?P<count>half\s+an?|{EN})\s+{_UNIT}(?:['’]s?\s+time)?\b(?!\s+of\b)", _in),
    rule(f"now today & {_UNIT_WORDS}", rf"\b(?P<count>half\s+an?|{EN})\s+{_UNIT}\s+from\s+(?:now|today)\b", _in),
    rule(f"within & {_UNIT_WORDS}", rf"\bwithin\s+(?:the\s+next\s+)?(?P<count>{EN})\s+{_UNIT}\b", _within),
    rule(
        f"next coming following & {_UNIT_WORDS}",
        rf"\b(?:(?:for|over|during|in|within)\s+)?the\s+(?:next|coming|following)\s+(?:(?P<count>{EN})\s+)?{_UNIT}\b(?<=s)",
        _next_stretch,
    ),
    rule(f"next & {_UNIT_WORDS}", rf"\b(?:for|over|during)\s+the\s+next\s+(?P<count>)?{_UNIT}\b(?<!s)", _next_stretch),
    rule(f"next & {_UNIT_WORDS}", rf"\bnext\s+(?P<count>{EN})\s+{_UNIT}\b", _next_stretch),
    rule(
        f"last past & {_UNIT_WORDS}",
        rf"\b(?:(?:for|over|during|in|within)\s+)?(?:the|these)\s+(?:last|past)\s+(?P<count>{EN})\s+{_UNIT}\b",
        _last_stretch,
    ),
    rule(f"last past & {_UNIT_WORDS}", rf"\b(?:last|past)\s+(?P<count>{EN})\s+{_UNIT}\b", _last_stretch),
    rule(
        f"past & {_UNIT_WORDS}",
        rf"\b(?:over|during|in|for)?\s*(?:the|this)\s+past\s+(?P<count>)?{_UNIT}\b(?<!s)",
        _last_stretch,
    ),
    rule(
        f"for & {_UNIT_WORDS}",
        rf"\bfor\s+(?P<count>{EN})\s+(?:more\s+)?{_UNIT}\b(?!['’\s]*(?:old|of\s+experience|ago|from|after|before))",
        _for,
    ),
    rule("now", r"\bfrom\s+now\s+on(?:wards?)?\b|\bstarting\s+now\b", _now),
    rule(
        "0 1 2 3 4 5 6 7 8 9",
        r"\b(?:at\s+)?(?<![\d:.$])(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?\s?(?P<half>[ap])\.?m\b\.?",
        _clock,
    ),
    rule(
        "at clock & 0 1 2 3 4 5 6 7 8 9",
        r"\b(?:at\s+(?P<hour>\d{1,2})(?:\s+o['’]clock)?|(?P<oclock>\d{1,2})\s+o['’]clock)\b(?![:%.,]?\d|\s*[%$€°])",
        _at,
    ),
    rule("noon midnight", r"\b(?:at\s+)?(?P<word>noon|midnight)\b", _noon),
    rule("morning afternoon evening night", rf"\b(?:in\s+the\s+|at\s+)?{_PART}\b", _part),
)
"""In order of preference where two rules read the same characters."""
