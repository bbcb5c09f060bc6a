"""Times, the calendar: whole days, weeks, months and years of one zone as UTC spans, seen from one instant."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo


class Grain(StrEnum):
    """How wide a period is; it decides what "until" it means."""

    INSTANT = "instant"
    PART = "part"
    DAY = "day"
    EDGE = "edge"
    WEEKEND = "weekend"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class Tense(StrEnum):
    """Which way the words around an expression look."""

    PAST = "past"
    FUTURE = "future"
    NONE = "none"


PARTS: dict[str, tuple[int, int]] = {
    "dawn": (0, 6),
    "morning": (6, 12),
    "noon": (11, 13),
    "afternoon": (12, 18),
    "evening": (18, 24),
}
"""Parts of a day as [from, to) in local hours."""


@dataclass(frozen=True, slots=True)
class Period:
    """A span in UTC, `end` exclusive. `day` and `part` are kept so that a clock time can still be joined to it.

    `bare` marks a weekday with no "this", "last" or "next": a pair of them is a habit, not a date.
    """

    start: datetime
    end: datetime | None
    grain: Grain
    kind: str = "point"
    day: date | None = None
    part: str | None = None
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day that waits for its day. `hour` None means the whole part; `alone` may stand without a day."""

    hour: int | None
    minute: int = 0
    part: str | None = None
    exact: bool = False
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Anchor:
    """The instant a turn was sent, and the zone its speaker lives in."""

    sent_at: datetime
    zone: ZoneInfo
    now: datetime
    today: date

    @classmethod
    def at(cls, sent_at: datetime, timezone: str) -> Anchor:
        """Anchor at an aware instant.

        Raises:
            ValueError: `sent_at` has no offset.
            zoneinfo.ZoneInfoNotFoundError: no such zone.
        """
        if sent_at.tzinfo is None:
            raise ValueError("sent_at needs an offset")
        zone = ZoneInfo(timezone)
        local = sent_at.astimezone(zone)
        return cls(sent_at.astimezone(UTC), zone, local.replace(tzinfo=None), local.date())

    def utc(self, wall: datetime) -> datetime:
        """The instant a local wall clock shows; a time that summer time skips is moved forward by the gap."""
        return wall.replace(tzinfo=self.zone).astimezone(UTC)

    def days(self, first: date, after: date, grain: Grain, *, bare: bool = False) -> Period:
        """From local midnight of `first` to local midnight of `after`."""
        start, end = (self.utc(datetime.combine(day, time())) for day in (first, after))
        return Period(start, end, grain, day=first if grain is Grain.DAY else None, bare=bare)

    def day(self, day: date, *, bare: bool = False) -> Period:
        """One whole local day."""
        return self.days(day, day + timedelta(days=1), Grain.DAY, bare=bare)

    def today_plus(self, days: int) -> Period:
        """The whole day so many days away."""
        return self.day(self.today + timedelta(days=days))

    def monday(self, weeks: int = 0) -> date:
        """Monday of the week so many weeks away (weeks start on Monday, ISO 8601)."""
        return self.today - timedelta(days=self.today.weekday()) + timedelta(weeks=weeks)

    def week(self, weeks: int) -> Period:
        """One whole week."""
        return self.days(self.monday(weeks), self.monday(weeks + 1), Grain.WEEK)

    def weekend(self, weeks: int) -> Period:
        """Saturday and Sunday of the week so many weeks away."""
        return self.days(self.monday(weeks) + timedelta(days=5), self.monday(weeks + 1), Grain.WEEKEND)

    def month(self, year: int, month: int) -> Period:
        """One whole month; months outside 1 to 12 run on into other years."""
        return self.days(first_of(year, month), first_of(year, month + 1), Grain.MONTH)

    def months_away(self, months: int) -> Period:
        """The whole month so many months away."""
        return self.month(self.today.year, self.today.month + months)

    def year(self, year: int) -> Period:
        """One whole year."""
        return self.days(date(year, 1, 1), date(year + 1, 1, 1), Grain.YEAR)

    def month_day(self, year: int, month: int, day: int | None) -> Period | None:
        """One day of a month, which may run on into other years; None when that month has no such day."""
        first = first_of(year, month)
        if day is None or not 1 <= day <= calendar.monthrange(first.year, first.month)[1]:
            return None
        return self.day(first.replace(day=day))

    def month_edge(self, year: int, month: int, edge: str) -> Period:
        """Where "start" is the first ten days, "middle" the next ten, "end" the 25th and after."""
        first, after = first_of(year, month), first_of(year, month + 1)
        spans = {
            "start": (first, first + timedelta(days=10)),
            "middle": (first + timedelta(days=10), first + timedelta(days=20)),
            "end": (first + timedelta(days=24), after),
        }
        return self.days(*spans[edge], Grain.EDGE)

    def year_edge(self, year: int, edge: str) -> Period:
        """January, the middle two months, or December."""
        spans = {"start": (1, 2), "middle": (6, 8), "end": (12, 13)}
        first, after = spans[edge]
        return self.days(first_of(year, first), first_of(year, after), Grain.EDGE)

    def part_of(self, day: date, part: str) -> Period:
        """A part of a local day, such as the evening."""
        midnight = datetime.combine(day, time())
        start, end = (self.utc(midnight + timedelta(hours=hour)) for hour in PARTS[part])
        return Period(start, end, Grain.PART, day=day, part=part)

    def shifted(self, count: float, unit: str) -> datetime:
        """Local wall clock so many units away, naive; a day that a month lacks becomes its last day."""
        if unit in ("day", "week"):
            return self.now + timedelta(days=count * (7 if unit == "week" else 1))
        months = round(count * (12 if unit == "year" else 1))
        if count % 1 and unit == "month":
            # Half a month is fifteen days; there is no calendar half.
            return self.now + timedelta(days=round(count * 30))
        first = first_of(self.now.year, self.now.month + months)
        last = calendar.monthrange(first.year, first.month)[1]
        return self.now.replace(year=first.year, month=first.month, day=min(self.now.day, last))

    def away(self, count: float, unit: str) -> Period:
        """As in "three weeks ago" (negative) or "in three weeks": that local day; an instant for hours and minutes."""
        if unit in ("hour", "minute"):
            return Period(self.sent_at + timedelta(**{f"{unit}s": count}), None, Grain.INSTANT)
        return self.day(self.shifted(count, unit).date())

    def stretch(self, count: float, unit: str) -> Period:
        """The next so many units from now, or the last ones when negative."""
        if unit in ("hour", "minute"):
            other = self.sent_at + timedelta(**{f"{unit}s": count})
        else:
            other = self.utc(self.shifted(count, unit))
        start, end = sorted((self.sent_at, other))
        return Period(start, end, Grain.INSTANT, kind="duration")

    def nearest(self, days: list[date], tense: Tense) -> date | None:
        """The day the tense allows that is nearest to today; None when there is none."""
        allowed = [
            day
            for day in days
            if tense is Tense.NONE or day == self.today or (day > self.today) == (tense is Tense.FUTURE)
        ]
        return min(allowed, key=lambda day: (abs((day - self.today).days), day), default=None)

    def weekday(self, weekday: int, tense: Tense) -> Period:
        """A bare weekday: this week's, unless the tense says that it must be the one before or after."""
        day = self.monday() + timedelta(days=weekday)
        if tense is Tense.FUTURE and day < self.today:
            day += timedelta(weeks=1)
        elif tense is Tense.PAST and day > self.today:
            day -= timedelta(weeks=1)
        return self.day(day, bare=True)

    def yearless(self, month: int, day: int, tense: Tense) -> Period | None:
        """A month and a day without a year: the nearest occurrence that the tense allows."""
        candidates = []
        for year in range(self.today.year - 4, self.today.year + 5):
            if 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]:
                candidates.append(date(year, month, day))
        chosen = self.nearest(candidates, tense)
        return self.day(chosen) if chosen else None

    def yearless_month(self, month: int, tense: Tense) -> Period | None:
        """A month without a year: this one, or the nearest that the tense allows."""
        if not 1 <= month <= 12:
            return None
        distance = (month - self.today.month) % 12
        if distance == 0:
            return self.months_away(0)
        if tense is Tense.FUTURE or (tense is Tense.NONE and distance <= 5):
            return self.months_away(distance)
        return self.months_away(distance - 12)

    def day_of_month(self, day: int, tense: Tense) -> Period | None:
        """As in "the 5th" without a month: the nearest occurrence that the tense allows."""
        candidates = []
        for offset in (-2, -1, 0, 1, 2):
            first = first_of(self.today.year, self.today.month + offset)
            if 1 <= day <= calendar.monthrange(first.year, first.month)[1]:
                candidates.append(first.replace(day=day))
        chosen = self.nearest(candidates, tense)
        return self.day(chosen) if chosen else None


def first_of(year: int, month: int) -> date:
    """The first of a month; months outside 1 to 12 run on into other years."""
    years, index = divmod(month - 1, 12)
    return date(year + years, index + 1, 1)
