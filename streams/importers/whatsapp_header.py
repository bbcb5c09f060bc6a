"""The flow, importers: the header of a WhatsApp line in its many locales, and which number in it is the day."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

from streams.importers.records import DateOrder

Order = Literal["dmy", "mdy", "ymd", "ydm"]

_AM = r"[aA]\.?\s?[mM]\.?|上午|凌晨|清晨|早上|오전|午前|ص|π\.?μ\.?|ÖÖ|SA|vorm\.?"
_PM = r"[pP]\.?\s?[mM]\.?|下午|中午|晚上|오후|午後|م|μ\.?μ\.?|ÖS|CH|nachm\.?"
_SPACE = r"[\s\u200e\u200f]*"
_DATE = rf"(?P<a>\d{{1,4}})(?:[./-]{_SPACE}|年)(?P<b>\d{{1,2}})(?:[./-]{_SPACE}|月)(?P<c>\d{{1,4}})[.日]?"
_JOIN = rf"{_SPACE}[,،]?{_SPACE}(?:(?:um|at|klo|kl\.?|às|à|a las|alle|om|u){_SPACE})?"
_TIME = (
    rf"(?:(?P<before>{_AM}|{_PM}){_SPACE})?(?P<h>\d{{1,2}})[:.](?P<m>\d{{2}})(?:[:.](?P<s>\d{{2}}))?"
    rf"(?:{_SPACE}(?P<after>{_AM}|{_PM}))?(?:{_SPACE}(?:Uhr|h))?"
)
HEADER = re.compile(
    rf"(?P<open>\[)?{_DATE}{_JOIN}{_TIME}{_SPACE}(?(open)\]{_SPACE}|[-–—]\s)(?P<rest>.*)",
    re.DOTALL,
)
"""iOS writes `[date, time] rest`, Android `date, time - rest`; digits may be Arabic, spaces narrow, marks anywhere."""

_PM_WORDS = re.compile(_PM)
_BACK, _IMPOSSIBLE = 30, 4000
_FIRST_YEAR, _LAST_YEAR = 2009, 2100
_PREFERENCE: tuple[Order, ...] = ("dmy", "mdy", "ymd", "ydm")


@dataclass(slots=True)
class _Trial:
    """How plausible one order of day, month and year is: impossible dates, steps back in time, and days walked."""

    order: Order
    impossible: int = 0
    back: int = 0
    walked: int = 0
    last: date | None = None

    @property
    def cost(self) -> int:
        """In days. An impossible date weighs more than any gap in a chat, yet less than leaps over decades.

        So one pasted line does not make a whole file begin with two-digit years.
        """
        return self.walked + _BACK * self.back + _IMPOSSIBLE * self.impossible

    def add(self, parts: tuple[str, str, str]) -> None:
        day = calendar_day(parts, self.order)
        if day is None:
            self.impossible += 1
            return
        if self.last is not None:
            step = (day - self.last).days
            self.back += step < 0
            self.walked += abs(step)
        self.last = day


@dataclass(slots=True)
class OrderVote:
    """Infers the order from a whole file: a chat moves forward, in small steps, over dates that exist."""

    american: bool = False
    _trials: list[_Trial] = field(default_factory=lambda: [_Trial(order) for order in _PREFERENCE])
    _last: tuple[str, str, str] | None = None

    def add(self, match: re.Match[str]) -> None:
        """Count one header in."""
        parts = (match["a"], match["b"], match["c"])
        if parts != self._last:
            self._last = parts
            for trial in self._trials:
                trial.add(parts)
        # "AM" in capitals is how the US locale writes it; this decides where every order is possible.
        self.american = self.american or (match["after"] or "")[:2] in ("AM", "PM")

    def winner(self, asked: DateOrder) -> Order:
        """The asked order, else the most plausible one; day first where nothing decides."""
        if asked != "auto":
            return asked
        preference = ("mdy", "dmy", "ymd", "ydm") if self.american else _PREFERENCE
        best = min(self._trials, key=lambda trial: (trial.cost, preference.index(trial.order)))
        return best.order


def calendar_day(parts: tuple[str, str, str], order: Order) -> date | None:
    """The day, or None where the order makes none; a year of four digits is where it stands."""
    if len(parts[0]) == 4 and order in ("dmy", "mdy"):
        return None
    if len(parts[2]) == 4 and order in ("ymd", "ydm"):
        return None
    where = {key: int(part) for key, part in zip(order, parts, strict=True)}
    year = where["y"] + 2000 if where["y"] < 100 else where["y"]
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return None
    try:
        return date(year, where["m"], where["d"])
    except ValueError:
        return None


def local_time(match: re.Match[str], order: Order) -> datetime | None:
    """The header's naive local time, or None if it is no time of the calendar."""
    parts = (match["a"], match["b"], match["c"])
    # A year written out in full beats an order that was asked for another spelling.
    if len(parts[0]) == 4 and order in ("dmy", "mdy"):
        order = "ymd"
    elif len(parts[2]) == 4 and order in ("ymd", "ydm"):
        order = "dmy"
    day = calendar_day(parts, order)
    hour, minute, second = int(match["h"]), int(match["m"]), int(match["s"] or 0)
    half = match["before"] or match["after"]
    if half is not None and hour <= 12:
        hour = hour % 12 + (12 if _PM_WORDS.fullmatch(half) else 0)
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    return datetime(day.year, day.month, day.day, hour, minute, second)
