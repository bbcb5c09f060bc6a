"""Times, the reader: runs the rules over a text, joins days with clocks and connectors, and gives spans."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Final

from processors.times import absolute, en, zh
from processors.times.grammar import Rule, Scene
from processors.times.periods import Anchor, Clock, Grain, Period


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time expression and the span it means.

    `start` and `end` are UTC, `end` exclusive; `quote` is text[offset : offset + len(quote)]. `kind` is one of

    - point: the whole period named ("上周" is Monday 00:00 to the next Monday 00:00, local); an instant has `end` None;
    - duration: a stretch from or to the moment of speaking, or from one date to another;
    - since: open at the end, `end` None;
    - until: from the moment of speaking; when the limit is already past, the period in which it lies.
    """

    start: datetime
    end: datetime | None
    quote: str
    offset: int
    kind: str


@dataclass(frozen=True, slots=True)
class _Found:
    begin: int
    stop: int
    reading: Period | Clock | None


_WORD = re.compile(r"[a-z]+")
_HAN = re.compile(r"[\u4e00-\u9fff]")
# A text with more dates than this is a table, not speech.
_MOST: Final = 100
_FOLDED = frozenset(map(chr, zh.FOLD))
_GAP = re.compile(r"[\s,，的]{0,2}(?:(?:at|on|in the|around|by)\s+)?", re.IGNORECASE)
_RANGE = re.compile(r"\s*(?:到|至|~|-|–|—|\b(?:to|until|till|through|and)\b)\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween\s+$", re.IGNORECASE)

_SINCE_BEFORE = re.compile(
    r"(?:自从|自打|从|自)\s*$|\b(?:ever\s+since|since|starting(?:\s+from|\s+on)?|as\s+of|not\s+before)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_SINCE_AFTER = re.compile(r"\s*(?:(?:就)?开始|起(?![床来飞身码初])|以来|\bonwards?\b)", re.IGNORECASE)
_FROM_BEFORE = re.compile(r"\bfrom\s+(?:the\s+)?$", re.IGNORECASE)
_ON_AFTER = re.compile(r"\s+on\b(?!\s+(?:the|my|our|a|monday|tuesday|wednesday|thursday|friday)\b)", re.IGNORECASE)
_UNTIL_BEFORE = re.compile(
    r"(?:一?直到|持续到|延续到|(?P<incl>截至|截止到?|截至到)|(?:(?<=[，,。；;\s])|^)到)\s*$"
    r"|\b(?:until|till|up\s+to|by|no\s+later\s+than|(?P<thru>through|thru))\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_TO_BEFORE = re.compile(r"[到至]\s*$")
_UNTIL_AFTER = re.compile(r"为?止")
_BEFORE_BEFORE = re.compile(r"(?<!\bnot\s)\bbefore\s+(?:the\s+)?$", re.IGNORECASE)
_BEFORE_AFTER = re.compile(r"(?:之前|以前|前)(?![往面端台任途景提锋])")
_AFTER_BEFORE = re.compile(r"\bafter\s+(?:the\s+)?$", re.IGNORECASE)
_AFTER_AFTER = re.compile(r"(?:之后|以后|过后|后(?![来面悔续勤台端天年]))")
_WIDE = frozenset({Grain.WEEKEND, Grain.WEEK, Grain.MONTH, Grain.YEAR})


_RULES: Final[tuple[Rule, ...]] = (*absolute.RULES, *zh.RULES, *en.RULES)
# Most texts have no time word in them: one set intersection tells, before any pattern runs.
_NEEDED: Final = frozenset().union(*(rule.needs for rule in _RULES))


def resolve(text: str, sent_at: datetime, timezone: str, language: str) -> list[TimeSpan]:
    """Every time expression of a turn, in text order, resolved from the turn's own time and its speaker's zone.

    Both languages are always tried; `language` "zh" only lets figures such as 3/5 be read month first when no Chinese
    character is there to show it. What is recurring, vague or has two readings gives nothing, and of one kind of
    expression the first hundred are read.

    Raises:
        ValueError: `sent_at` has no offset.
        zoneinfo.ZoneInfoNotFoundError: no such zone.
    """
    present: set[str] = set(text)
    present.update(_WORD.findall(text.lower()))
    folded = text
    if not _FOLDED.isdisjoint(present):
        folded = text.translate(zh.FOLD)
        present.update(folded)
    if _NEEDED.isdisjoint(present):
        return []
    rules = [rule for rule in _RULES if not (rule.needs.isdisjoint(present) or rule.also.isdisjoint(present))]
    if not rules:
        return []
    scene = Scene(folded, Anchor.at(sent_at, timezone), language == "zh" or _HAN.search(text) is not None)
    return _spans(_connected(_dated(_found(rules, scene), scene), scene), text)


def _found(rules: list[Rule], scene: Scene) -> list[_Found]:
    """What the rules read, leftmost and longest first, without overlaps."""
    hits: list[_Found] = []
    for rule in rules:
        for match in islice(rule.pattern.finditer(scene.text), _MOST):
            try:
                reading = rule.read(match, scene)
            except (ValueError, OverflowError):
                # The 31st of February, or a year that the calendar does not have.
                reading = None
            hits.append(_Found(match.start(), match.end(), reading))
    hits.sort(key=lambda hit: (hit.begin, -hit.stop))
    kept: list[_Found] = []
    for hit in hits:
        if not kept or hit.begin >= kept[-1].stop:
            kept.append(hit)
    return kept


def _dated(found: list[_Found], scene: Scene) -> list[_Found]:
    """Clock times joined to the day beside them; one that stands alone is on the day of the turn."""
    joined: list[_Found] = []
    for item in found:
        # Again after each success: in "9am to 5pm tomorrow" the day reaches the second clock first, then the first.
        while joined and (merged := _merge(joined[-1], item, scene)) is not None:
            joined.pop()
            item = merged
        joined.append(item)
    dated = []
    for item in joined:
        if isinstance(item.reading, Clock):
            period = _on(item.reading, scene.anchor.today, None, scene.anchor) if item.reading.alone else None
            item = replace(item, reading=period)
        dated.append(item)
    return dated


def _merge(left: _Found, right: _Found, scene: Scene) -> _Found | None:
    """One reading for two neighbours, or None when they do not belong together."""
    between = scene.text[left.stop : right.begin]
    a, b = left.reading, right.reading
    if (
        isinstance(a, Period)
        and isinstance(b, Clock)
        and a.grain is Grain.INSTANT
        and a.day
        and _RANGE.fullmatch(between)
    ):
        until = _on(b, a.day, a.part, scene.anchor)
        if until is None or until.start <= a.start:
            return None
        return _Found(left.begin, right.stop, replace(a, end=until.start, kind="duration"))
    if (
        isinstance(a, Clock)
        and isinstance(b, Period)
        and b.grain is Grain.INSTANT
        and b.day
        and _RANGE.fullmatch(between)
    ):
        since = _on(a, b.day, b.part, scene.anchor)
        if since is None or since.start >= b.start:
            return None
        return _Found(left.begin, right.stop, replace(b, start=since.start, end=b.start, kind="duration"))
    if not _GAP.fullmatch(between):
        return None
    if (a is None and isinstance(b, Clock)) or (isinstance(a, Clock) and b is None):
        return _Found(left.begin, right.stop, None)
    if isinstance(a, Clock) and isinstance(b, Clock):
        if (a.hour is None) == (b.hour is None):
            return None
        hour, part = (a, b) if b.hour is None else (b, a)
        return _Found(left.begin, right.stop, replace(hour, part=hour.part or part.part, alone=True))
    period, clock = (a, b) if isinstance(a, Period) else (b, a)
    if not isinstance(period, Period) or not isinstance(clock, Clock) or period.day is None or period.kind != "point":
        return None
    if period.grain is Grain.INSTANT:
        return None
    exact = _on(clock, period.day, period.part, scene.anchor)
    # An hour with two readings still has its day.
    return _Found(left.begin, right.stop, exact or period)


def _on(clock: Clock, day: date, day_part: str | None, anchor: Anchor) -> Period | None:
    """A clock time on a day; None when the hour may be in the morning or the afternoon."""
    part = clock.part or day_part
    if clock.hour is None:
        return anchor.part_of(day, part) if part else None
    hour = clock.hour
    if not clock.exact and hour <= 12:
        if part == "noon":
            hour += 12 if hour <= 2 else 0
        elif part == "afternoon":
            hour += 12 if hour < 12 else 0
        elif part == "evening":
            if 1 <= hour <= 4:
                return None
            hour += 12
        elif part == "dawn":
            hour %= 12
        elif part is None and 1 <= hour <= 6:
            return None
    start = anchor.utc(datetime.combine(day, time()) + timedelta(hours=hour, minutes=clock.minute))
    return Period(start, None, Grain.INSTANT, day=day, part=part)


def _connected(found: list[_Found], scene: Scene) -> list[_Found]:
    """Ranges and the words since, until, before and after, taken into the reading."""
    connected: list[_Found] = []
    index = 0
    while index < len(found):
        item = found[index]
        following = found[index + 1] if index + 1 < len(found) else None
        ranged = _ranged(item, following, scene) if following is not None else None
        if ranged is not None:
            connected.append(ranged)
            index += 2
            continue
        index += 1
        if isinstance(item.reading, Period):
            connected.append(_with_connector(item, item.reading, scene))
    return connected


def _ranged(left: _Found, right: _Found, scene: Scene) -> _Found | None:
    a, b = left.reading, right.reading
    between = scene.text[left.stop : right.begin]
    if not isinstance(a, Period) or not isinstance(b, Period) or not _RANGE.fullmatch(between):
        return None
    before = scene.text[max(0, left.begin - 12) : left.begin]
    if between.strip().lower() == "and" and not _BETWEEN.search(before):
        return None
    if a.bare and b.bare:
        # Monday to Friday is a habit.
        return _Found(left.begin, right.stop, None)
    end = b.end or b.start
    if a.kind != "point" or b.kind != "point" or end <= a.start:
        return None
    return _Found(left.begin, right.stop, Period(a.start, end, a.grain, kind="duration"))


def _with_connector(item: _Found, period: Period, scene: Scene) -> _Found:
    before, after = scene.text[max(0, item.begin - 24) : item.begin], scene.text[item.stop : item.stop + 12]
    if period.kind == "since":
        suffix = _SINCE_AFTER.match(after)
        return replace(item, stop=item.stop + (suffix.end() if suffix else 0))
    if period.kind != "point":
        return item

    def cover(reading: Period | None, head: re.Match[str] | None, tail: re.Match[str] | None) -> _Found:
        begin = item.begin - (len(head[0]) if head else 0)
        return _Found(begin, item.stop + (tail.end() if tail else 0), reading)

    sent_at = scene.anchor.sent_at
    limit = _BEFORE_AFTER.match(after) if period.grain is not Grain.INSTANT or period.day else None
    head = _BEFORE_BEFORE.search(before)
    if limit or head:
        end = period.end if period.grain is Grain.EDGE and period.end else period.start
        reading = Period(sent_at, end, period.grain, kind="until") if end > sent_at else None
        return cover(reading, head or _UNTIL_BEFORE.search(before), limit)
    later, head = _AFTER_AFTER.match(after), _AFTER_BEFORE.search(before)
    if later or head:
        return cover(Period(period.end or period.start, None, period.grain, kind="since"), head, later)
    head, tail = _UNTIL_BEFORE.search(before), _UNTIL_AFTER.match(after)
    if head or tail:
        inclusive = tail is not None or bool(head and (head["incl"] or head["thru"]))
        return cover(_until(period, sent_at, inclusive=inclusive), head or _TO_BEFORE.search(before), tail)
    head, tail = _SINCE_BEFORE.search(before), _SINCE_AFTER.match(after)
    if not head and not tail:
        head, tail = _FROM_BEFORE.search(before), _ON_AFTER.match(after)
        if not head or (not tail and period.start <= sent_at):
            # "The notes from yesterday" do not begin anything.
            return item
    return cover(Period(period.start, None, period.grain, kind="since"), head, tail)


def _until(period: Period, sent_at: datetime, *, inclusive: bool) -> Period:
    """Until a day includes the day; until a longer one ends as it begins, unless it has begun or 为止 includes it."""
    end = period.end or period.start
    if end <= sent_at:
        return replace(period, kind="until")
    if period.grain in _WIDE and not inclusive and period.start > sent_at:
        end = period.start
    return Period(sent_at, end, period.grain, kind="until")


def _spans(found: list[_Found], text: str) -> list[TimeSpan]:
    return [
        TimeSpan(item.reading.start, item.reading.end, text[item.begin : item.stop], item.begin, item.reading.kind)
        for item in found
        if isinstance(item.reading, Period)
    ]
