"""Times, absolute dates: numeric, Chinese and English spellings of a year, month, day or clock time.

Day and month in figures are read only where no second reading exists: month first in Chinese text and American zones,
day first with dots, otherwise only when one of the two is above twelve.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

from processors.times.grammar import Reading, Rule, Scene, rule
from processors.times.numerals import ZH, chinese
from processors.times.periods import Clock, Grain, Period
from processors.times.zh import EDGES, PART, PARTS

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<month>(?i:january|february|april|june|july|august|september|october|november|december)|March|MARCH|May|MAY"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
_MONTH_WORDS = (
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
_YEAR = r"(?P<year>(?:19|20)\d{2})"
_ORDINAL = r"(?:st|nd|rd|th)"
_RANGE_END = rf"(?:\s*[到至~\-–—]\s*(?P<last>{ZH})[日号])?"
_DIGITS = "0 1 2 3 4 5 6 7 8 9"
_EDGE_WORDS = {"end": "end", "beginning": "start", "start": "start", "early": "start", "mid": "middle", "late": "end"}


def _after(*words: str) -> str:
    """A look-behind over words of different lengths, each followed by one space."""
    return "(?:" + "|".join(rf"(?<=\b(?i:{word})\s)" for word in words) + ")"


_FIGURES_AFTER = _after("on", "by", "until", "till", "since", "before", "after", "from", "due")
_ENDS_IN_PREPOSITION = re.compile(rf"{_FIGURES_AFTER}$")
_PREPOSITION = _after("in", "since", "until", "till", "by", "before", "after", "from", "during", "through", "of", "for")


def _month_number(name: str) -> int:
    return _MONTHS.index(name[:3].lower()) + 1


def _ymd(match: re.Match[str], scene: Scene) -> Reading:
    return scene.anchor.day(date(int(match["year"]), int(match["month"]), int(match["day"])))


def _iso(match: re.Match[str], scene: Scene) -> Reading:
    if not match["time"]:
        return _ymd(match, scene)
    stamp = datetime.fromisoformat(match[0])
    start = scene.anchor.utc(stamp) if stamp.tzinfo is None else stamp.astimezone(UTC)
    return Period(start, None, Grain.INSTANT)


def _figures(match: re.Match[str], scene: Scene) -> Reading:
    """3/5 or 3/5/2026."""
    first, second = int(match["first"]), int(match["second"])
    month_first = scene.han or scene.anchor.zone.key.startswith(("America/", "US/"))
    if first > 12 >= second and not scene.han:
        day, month = first, second
    elif month_first or second > 12 >= first or first == second:
        month, day = first, second
    else:
        return None
    if match["year"]:
        return scene.anchor.day(date(int(match["year"]), month, day))
    return scene.anchor.yearless(month, day, scene.tense(match))


def _figures_alone(match: re.Match[str], scene: Scene) -> Reading:
    """3/5 without a year may be a fraction: outside Chinese text it needs "on", "by" or the like before it."""
    preposition = _ENDS_IN_PREPOSITION.search(scene.text[max(0, match.start() - 8) : match.start()])
    return _figures(match, scene) if scene.han or preposition else None


def _zh_year(match: re.Match[str], scene: Scene) -> Reading:
    anchor, year = scene.anchor, chinese(match["year"])
    if year is None or not 1900 <= year <= 2199:
        return None
    if match["edge"]:
        return anchor.year_edge(year, EDGES[match["edge"]])
    if not match["month"]:
        return anchor.year(year)
    month = chinese(match["month"])
    if month is None or not 1 <= month <= 12:
        return None
    if match["day"]:
        return _to_last(anchor.month_day(year, month, chinese(match["day"])), match, scene)
    if match["month_edge"]:
        return anchor.month_edge(year, month, EDGES[match["month_edge"]])
    return anchor.month(year, month)


def _zh_month(match: re.Match[str], scene: Scene) -> Reading:
    anchor, month, tense = scene.anchor, chinese(match["month"]), scene.tense(match)
    if month is None or _recurs(match, scene):
        return None
    if match["day"]:
        day = chinese(match["day"])
        return None if day is None else _to_last(anchor.yearless(month, day, tense), match, scene)
    whole = anchor.yearless_month(month, tense)
    if whole is None or not match["edge"]:
        return whole
    return anchor.month_edge(whole.start.astimezone(anchor.zone).year, month, EDGES[match["edge"]])


def _zh_day(match: re.Match[str], scene: Scene) -> Reading:
    day = chinese(match["day"])
    return None if day is None or _recurs(match, scene) else scene.anchor.day_of_month(day, scene.tense(match))


def _to_last(first: Period | None, match: re.Match[str], scene: Scene) -> Reading:
    """The days in 3月5日到8日: from the first to the last, both included."""
    number = match.groupdict().get("last")
    if first is None or first.day is None or not number:
        return first
    last = scene.anchor.month_day(first.day.year, first.day.month, chinese(number))
    if last is None or last.end is None or last.end <= first.start:
        return None
    return Period(first.start, last.end, Grain.DAY, kind="duration")


def _recurs(match: re.Match[str], scene: Scene) -> bool:
    """A birthday has no year; the nearest one would be an invention."""
    return bool(
        re.search(
            r"生日|出生|纪念日|\b(?:birthday|anniversary|born)\b", " ".join(scene.clause(*match.span())), re.IGNORECASE
        )
    )


def _en_day(match: re.Match[str], scene: Scene) -> Reading:
    month, day = _month_number(match["month"]), int(match["day"])
    if match["year"]:
        return _to_last(scene.anchor.month_day(int(match["year"]), month, day), match, scene)
    if _recurs(match, scene):
        return None
    return _to_last(scene.anchor.yearless(month, day, scene.tense(match)), match, scene)


def _en_month(match: re.Match[str], scene: Scene) -> Reading:
    anchor, month, words = scene.anchor, _month_number(match["month"]), match.groupdict()
    shift = (words.get("shift") or "").lower()
    if words.get("year"):
        whole: Period | None = anchor.month(int(match["year"]), month)
    elif shift == "this":
        whole = anchor.month(anchor.today.year, month)
    elif shift:
        # "Last March" is the latest one that is over, "next March" the first that has not begun.
        ahead = shift == "next"
        year = anchor.today.year + (ahead and month <= anchor.today.month) - (not ahead and month >= anchor.today.month)
        whole = anchor.month(year, month)
    else:
        whole = anchor.yearless_month(month, scene.tense(match)) if not _recurs(match, scene) else None
    edge = words.get("edge")
    if whole is None or not edge:
        return whole
    return anchor.month_edge(whole.start.astimezone(anchor.zone).year, month, _EDGE_WORDS[edge.lower()])


def _en_year(match: re.Match[str], scene: Scene) -> Reading:
    last = match.groupdict().get("last")
    if not last:
        return scene.anchor.year(int(match["year"]))
    return scene.anchor.days(date(int(match["year"]), 1, 1), date(int(last) + 1, 1, 1), Grain.YEAR)


def _digital(match: re.Match[str], _scene: Scene) -> Reading:
    hour, minute = int(match["hour"]), int(match["minute"])
    if hour > 24 or minute > 59:
        return None
    part = PARTS[match["part"]] if match["part"] else None
    return Clock(hour, minute, part, exact=part is None and match["hour"].startswith("0"))


RULES: Final[tuple[Rule, ...]] = (
    rule(
        "-",
        r"(?<![\w/.\-=])(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"
        r"(?P<time>T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?![A-Za-z\d/_\-])",
        _iso,
        flags=re.ASCII,
    ),
    rule("/", r"(?<![A-Za-z\d/.\-])(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})(?![A-Za-z\d/.])", _ymd),
    rule(
        ".",
        r"(?<![A-Za-z\d/.\-=<>~])(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>(?:19|20)\d{2})(?![A-Za-z\d/]|\.\d)",
        _ymd,
    ),
    rule(
        "/",
        r"(?<![A-Za-z\d/.\-])(?P<first>\d{1,2})/(?P<second>\d{1,2})/(?P<year>(?:19|20)\d{2})(?![A-Za-z\d/.])",
        _figures,
    ),
    rule(
        "/",
        rf"(?:{_FIGURES_AFTER}|(?<=[\u4e00-\u9fff，。、\s])|^)(?!24/7)"
        r"(?P<first>\d{1,2})/(?P<second>\d{1,2})(?P<year>)(?![A-Za-z\d/%]|\s*[的个杯份勺票分以])(?!\s*(?:of|cup|inch)\b)",
        _figures_alone,
    ),
    rule(
        "年",
        rf"(?<![\d.])(?P<year>\d{{4}}|[一二三四五六七八九零〇]{{4}})年(?![度级款代])(?:年?(?P<edge>[初中底末])"
        rf"|(?P<month>{ZH})月份?(?:(?P<day>{ZH})[日号]?(?![\d个]){_RANGE_END}|(?P<month_edge>[初中底末]))?)?",
        _zh_year,
    ),
    rule(
        "月",
        rf"(?<![\d年个第每/.一二三四五六七八九十])(?P<month>\d{{1,2}}|[一二三四五六七八九]|十[一二]?)月"
        rf"(?:(?P<day>{ZH})[日号]{_RANGE_END}|份?(?P<edge>[初中底末])|份|(?![饼亮球刊报薪子嫂经\d初廿一二三四五六七八九十次]|天(?!气)))",
        _zh_month,
    ),
    rule(
        "号 日",
        r"(?<![\d月第A-Za-z./每])(?<![一二三四五六七八九十])(?P<day>\d{1,2}(?=[号日])|[二三]?十[一二三四五六七八九]?(?=号))[号日]"
        r"(?![线楼机位店门院馆台码房桌车选种仓库电内游元志本语文常程子报后前均间])",
        _zh_day,
    ),
    rule(
        _MONTH_WORDS,
        rf"\b{_MONTH}\s+(?:the\s+)?(?P<day>\d{{1,2}}){_ORDINAL}?(?:\s?[-–]\s?(?P<last>\d{{1,2}}){_ORDINAL}?)?(?:,?\s+{_YEAR})?\b(?![:%]\d|\.\d)",
        _en_day,
        flags=0,
    ),
    rule("march may", rf"\b(?P<month>march|may)\s+(?P<day>\d{{1,2}}){_ORDINAL}(?:,?\s+{_YEAR})?\b", _en_day),
    rule(
        _MONTH_WORDS,
        rf"\b(?:the\s+)?(?P<day>\d{{1,2}}){_ORDINAL}?\s+(?:of\s+)?{_MONTH}\b(?:,?\s+{_YEAR}\b)?",
        _en_day,
        flags=0,
    ),
    rule(
        _MONTH_WORDS,
        rf"\b(?:(?i:the\s+)?(?P<edge>end|beginning|start)\s+of\s+|(?i:(?P<shift>this|last|next))\s+)?{_MONTH},?\s+(?:of\s+)?{_YEAR}\b",
        _en_month,
        flags=0,
    ),
    rule(
        _MONTH_WORDS,
        rf"(?:\b(?i:the\s+)?(?P<edge>end|beginning|start|early|mid|late)(?:\s+of\s+|[\s-])|\b(?i:(?P<shift>this|last|next))\s+|{_PREPOSITION})"
        rf"{_MONTH}\b(?!\s+\d)",
        _en_month,
        flags=0,
    ),
    rule(
        "1 2",
        rf"(?<=\b[Ff]rom\s){_YEAR}\s*(?:to|until|till|through|[-–])\s*(?P<last>(?:19|20)\d{{2}})\b",
        _en_year,
        flags=0,
    ),
    rule("1 2", rf"{_PREPOSITION}{_YEAR}\b(?![-/:%]\d|[.,]\d|\s*[%$€年])", _en_year, flags=0),
    rule(":", rf"{PART}?(?<![\d:.])(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})(?::\d{{2}})?(?![\d:])", _digital),
)
"""In order of preference where two rules read the same characters."""
