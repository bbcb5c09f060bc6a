"""Times, Chinese: the relative expressions and clock times of the language, over simplified characters.

Traditional spellings are folded one to one before the rules run. A look-around names the words that a rule must
not fire in: 后天性, 周到, 说明天气, 三年前端.
"""

from __future__ import annotations

import re
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from processors.times.grammar import Reading, Rule, Scene, nothing, rule
from processors.times.numerals import ZH, chinese
from processors.times.periods import Clock, Grain, Period, Tense, first_of

FOLD: Final = MappingProxyType(
    str.maketrans(
        "０１２３４５６７８９：－／週後點號這個禮從開過內來兩為時鐘間當國慶節勞動雙聖誕兒婦師",
        "0123456789:-/周后点号这个礼从开过内来两为时钟间当国庆节劳动双圣诞儿妇师",
    )
)
"""Full-width digits and the traditional characters of time words, one to one, so that offsets stay true."""

EDGES: Final = MappingProxyType({"初": "start", "中": "middle", "底": "end", "末": "end"})

_DAYS = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "大后": 3}
_YEARS = {"大前": -3, "前": -2, "去": -1, "今": 0, "本": 0, "明": 1, "后": 2}
_SHIFTS = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
_WEEKDAYS = {char: index for index, char in enumerate("一二三四五六日")} | {"天": 6}
_UNITS = {
    "天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year",
    "小时": "hour", "钟头": "hour", "分钟": "minute",
}  # fmt: skip
PARTS: Final = MappingProxyType(
    {
        "凌晨": "dawn", "清晨": "morning", "早晨": "morning", "早上": "morning", "早": "morning", "上午": "morning",
        "中午": "noon", "下午": "afternoon", "傍晚": "evening", "晚上": "evening", "夜里": "evening", "晚": "evening",
    }
)  # fmt: skip

_SEASONS = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
_FEASTS = {
    "元旦": (1, 1), "情人节": (2, 14), "妇女节": (3, 8), "五一": (5, 1), "劳动节": (5, 1), "儿童节": (6, 1),
    "教师节": (9, 10), "国庆": (10, 1), "双十一": (11, 11), "平安夜": (12, 24), "圣诞": (12, 25),
}  # fmt: skip
"""Days of the common calendar; those of the lunar one fall on another day each year."""

_FRESH = r"(?<![\d.几多第点半一二两三四五六七八九十百千])"
_COUNT = rf"(?!\d{{4}}年)(?![一二三四五六七八九零〇]{{4}}年)(?P<count>{ZH}个半|{ZH}|半)"
_UNIT = r"(?P<unit>个月|(?<=[半两])月|个?(?:星期|礼拜|小时|钟头)|天|日|周|年|分钟)(?P<half>半)?"
_FEAST = rf"(?:{'|'.join(_FEASTS)})"
_WEEK = r"(?:个?(?:星期|礼拜)|周)"
_SHIFT = r"(?P<shift>(?<![楼马晚早网线])上上|(?<![楼马晚早网线上])上|这|本|下下|下)"
_WEEKDAY = r"(?P<weekday>[一二三四五六日天])(?![次个遍回届门场组堂百千气]|天(?!气))"
PART = r"(?P<part>(?<![今明昨前])(?:凌晨|清晨|早晨|早上|上午|中午|下午|傍晚|晚上|夜里|早|晚))"


def _count(match: re.Match[str]) -> float | None:
    text = match["count"]
    half = 0.5 if match["half"] else 0
    if text == "半":
        return 0.5
    if text.endswith("半"):
        text, half = text[:-2], 0.5
    whole = chinese(text)
    return None if whole is None else whole + half


def _near_day(match: re.Match[str], scene: Scene) -> Reading:
    return scene.anchor.today_plus(_DAYS[match["shift"]])


def _near_part(match: re.Match[str], scene: Scene) -> Reading:
    day = scene.anchor.today + timedelta(days=_DAYS[match["shift"]])
    return scene.anchor.part_of(day, PARTS[match["part"]])


def _near_year(match: re.Match[str], scene: Scene) -> Reading:
    anchor = scene.anchor
    year = anchor.today.year + _YEARS[match["shift"]]
    if match["edge"]:
        return anchor.year_edge(year, EDGES[match["edge"]])
    if match["season"]:
        begin = _SEASONS[match["season"]]
        return anchor.days(first_of(year, begin), first_of(year, begin + 3), Grain.MONTH)
    if match["feast"]:
        return anchor.month_day(year, *_FEASTS[match["feast"]])
    if not match["month"]:
        return anchor.year(year)
    month = chinese(match["month"])
    if month is None or not 1 <= month <= 12:
        return None
    if match["day"]:
        return anchor.month_day(year, month, chinese(match["day"]))
    return (
        anchor.month_edge(year, month, EDGES[match["month_edge"]]) if match["month_edge"] else anchor.month(year, month)
    )


def _feast(match: re.Match[str], scene: Scene) -> Reading:
    # Of a feast that is over people say so ("国庆去了西安").
    past = scene.tense(match) is Tense.PAST
    return scene.anchor.yearless(*_FEASTS[match["feast"]], Tense.PAST if past else Tense.FUTURE)


def _week(match: re.Match[str], scene: Scene) -> Reading:
    return scene.anchor.week(_SHIFTS[match["shift"]])


def _weekday_of_week(match: re.Match[str], scene: Scene) -> Reading:
    monday = scene.anchor.monday(_SHIFTS[match["shift"]])
    return scene.anchor.day(monday + timedelta(days=_WEEKDAYS[match["weekday"]]))


def _bare_weekday(match: re.Match[str], scene: Scene) -> Reading:
    return scene.anchor.weekday(_WEEKDAYS[match["weekday"]], scene.tense(match))


def _weekend(match: re.Match[str], scene: Scene) -> Reading:
    if match["shift"]:
        return scene.anchor.weekend(_SHIFTS[match["shift"]])
    early = scene.anchor.today.weekday() < 5
    return scene.anchor.weekend(-1 if early and scene.tense(match) is Tense.PAST else 0)


def _month(match: re.Match[str], scene: Scene) -> Reading:
    anchor, away = scene.anchor, _SHIFTS[match["shift"]]
    month = anchor.today.month + away
    if match["day"]:
        return anchor.month_day(anchor.today.year, month, chinese(match["day"]))
    if match["edge"]:
        return anchor.month_edge(anchor.today.year, month, EDGES[match["edge"]])
    return anchor.months_away(away)


def _bare_edge(match: re.Match[str], scene: Scene) -> Reading:
    anchor, tense, edge = scene.anchor, scene.tense(match), EDGES[match["edge"]]
    by_month = match["unit"] == "月"

    def away(count: int) -> Reading:
        if by_month:
            return anchor.month_edge(anchor.today.year, anchor.today.month + count, edge)
        return anchor.year_edge(anchor.today.year + count, edge)

    period = anchor.month_edge(anchor.today.year, anchor.today.month, edge)
    if not by_month:
        period = anchor.year_edge(anchor.today.year, edge)
    if tense is Tense.FUTURE and period.end is not None and period.end <= anchor.sent_at:
        return away(1)
    return away(-1) if tense is Tense.PAST and period.start > anchor.sent_at else period


def _away(match: re.Match[str], scene: Scene) -> Reading:
    count, unit = _count(match), _UNITS[match["unit"].removeprefix("个")]
    # "3日前" may be "three days ago" or "before the 3rd".
    vague = match["unit"] == "日" and match["count"].isdecimal()
    if count is None or vague or (unit == "year" and count > 150) or (count % 1 and unit in ("day", "week")):
        return None
    return scene.anchor.away(-count if match["way"] == "前" else count, unit)


def _stretch(match: re.Match[str], scene: Scene) -> Reading:
    count, unit = _count(match), _UNITS[match["unit"].removeprefix("个")]
    if count is None or (count % 1 and unit in ("day", "week")):
        return None
    return scene.anchor.stretch(-count if match["way"] in ("最近", "近", "过去") else count, unit)


def _these(match: re.Match[str], scene: Scene) -> Reading:
    """As in 这两周: the coming ones in an order or a plan, the past ones in a report, otherwise unsaid."""
    tense, count, unit = scene.tense(match), chinese(match["count"]), _UNITS[match["unit"].removeprefix("个")]
    if tense is Tense.NONE or count is None:
        return None
    return scene.anchor.stretch(-count if tense is Tense.PAST else count, unit)


def _within(match: re.Match[str], scene: Scene) -> Reading:
    count, unit = _count(match), _UNITS[match["unit"].removeprefix("个")]
    if count is None or (count % 1 and unit in ("day", "week")) or scene.tense(match) is Tense.PAST:
        return None
    return scene.anchor.stretch(count, unit)


def _now(_match: re.Match[str], scene: Scene) -> Reading:
    return Period(scene.anchor.sent_at, None, Grain.INSTANT, kind="since")


def _clock(match: re.Match[str], _scene: Scene) -> Reading:
    hour, tail = chinese(match["hour"]), match["tail"] or ""
    minutes = {"半": 30, "一刻": 15, "三刻": 45, "钟": 0, "整": 0, "": 0}.get(tail)
    if minutes is None:
        minutes = chinese(tail.removesuffix("分").lstrip("零"))
    if hour is None or hour > 24 or minutes is None or minutes > 59:
        return None
    part = PARTS[match["part"]] if match["part"] else None
    # "三点建议" are three points: without a part of the day, 钟, 半 or a minute, an hour needs a day beside it.
    return Clock(hour, minutes, part, alone=bool(part or tail))


def _part(match: re.Match[str], _scene: Scene) -> Reading:
    return Clock(None, 0, PARTS[match["part"]], alone=False)


RULES: Final[tuple[Rule, ...]] = (
    rule(
        "每 & 天 日 周 星 礼 月 年 时 钟 早 晚",
        r"每(?:个|逢)?(?:周?周末|月|年|天|日|早|晚|周|星期|礼拜)(?:[一二三四五六日天底初末]|\d{1,2}[号日])?",
        nothing,
    ),
    rule(
        "几 数 & 天 日 周 星 礼 月 年 时 钟 分",
        rf"(?:前|最近|近|这|过|好)?(?:好?几|数|十几)(?:{_WEEK}|个?(?:天|日|月|年|小时|分钟))(?:之|以)?[前后内]?",
        nothing,
    ),
    rule(
        "农 阴 旧",
        r"(?:农历|阴历|旧历)(?:[\d一二三四五六七八九十正腊]+月)?(?:[\d初廿十一二三四五六七八九]+[日号]?)?",
        nothing,
    ),
    rule(
        "天",
        r"(?P<shift>大前|大后|昨|今|(?<![说证表声])明|明(?!天[气文花])|(?<![以之目此天大])前|(?<![以之然此最先天大])后)天"
        r"(?!(?:(?<=前天)|(?<=后天))(?:[性然天津生]|气(?!温)|的(?:努力|培养|环境|因素)))",
        _near_day,
    ),
    rule("日", r"(?P<shift>昨|今|明)日(?![头本语报元历])", _near_day),
    rule(
        "早 晚 & 昨 今 明 前",
        r"(?P<shift>昨|今|明|(?<![以之目此])前)(?P<part>早|晚)(?:上)?(?![年期饭辈婚点会])",
        _near_part,
    ),
    rule(
        "年",
        r"(?P<shift>大前|(?<![以目之此大])前|(?<!过)去|(?<!如)今|本|明|(?<![以之此最然])后)年(?![轻龄代级薪货])"
        rf"(?:年?(?P<edge>[初中底末])|的?(?P<season>[春夏秋冬])[天季]|的?(?P<feast>{_FEAST})|的?(?P<month>{ZH})月份?(?:(?P<day>{ZH})[日号]|(?P<month_edge>[初中底末]))?)?",
        _near_year,
    ),
    # 王国庆 is somebody, 五一路 a road, 元旦前 a time before.
    rule(
        "庆 旦 一 节 夜 诞 & 国 元 五 节 双 平 圣",
        rf"(?<![王李张刘陈杨赵吴周徐孙第每往历\d])(?<![每往历]年)(?<!每年的)(?<!每逢)(?P<feast>{_FEAST})(?:节|假期|长假|当天|那天)?(?![路街广场村前后老树帽装歌快\d])",
        _feast,
    ),
    rule("周 星 礼", rf"{_SHIFT}{_WEEK}{_WEEKDAY}", _weekday_of_week),
    rule("周", rf"{_SHIFT}?个?周末", _weekend),
    rule("周 星 礼", rf"{_SHIFT}{_WEEK}(?![围边期年长遭密到])", _week),
    rule("周 星 礼", rf"{_FRESH}(?:周|星期|礼拜){_WEEKDAY}", _bare_weekday),
    rule("月", rf"{_SHIFT}个?月(?![亮光球饼])(?:(?P<edge>[初中底末])|的?(?P<day>{ZH})[号日])?", _month),
    rule(
        "初 底 末 & 月 年",
        r"(?<![\d一二两三四五六七八九十个今去明前后本大])(?P<unit>[月年])(?P<edge>[初底末])(?![始期一二三四五六七])",
        _bare_edge,
    ),
    rule(
        "前 后 & 天 日 周 星 礼 月 年 时 钟 分",
        rf"{_FRESH}{_COUNT}{_UNIT}(?:之|以)?(?P<way>前(?![端台任卫途景提锋辈沿排缀世言面方])|后(?![端台勤续悔遗备代门宫卫世果期面方]))",
        _away,
    ),
    rule(
        "近 去 接 未 今 往 & 天 日 周 星 礼 月 年 时 钟 分",
        rf"(?P<way>最近|近(?<![附靠接将]近)|过去|接下来|未来|今后|往后)的?这?{_COUNT}{_UNIT}(?:之内|以内|内|里)?",
        _stretch,
    ),
    rule(
        "这 & 天 日 周 星 礼 月 年 时 钟",
        r"这(?P<count>[两三四五六七八九]|\d{1,2})(?P<unit>天|周|个?星期|个?礼拜|个月|年)(?![前后])",
        _these,
    ),
    rule("内 & 天 日 周 星 礼 月 年 时 钟 分", rf"{_FRESH}{_COUNT}{_UNIT}(?:之|以)?内", _within),
    rule("现 从", r"从现在|现在(?=开始)|从今以后|从此以后|从今往后", _now),
    rule(
        "点 时 & 0 1 2 3 4 5 6 7 8 9 一 二 两 三 四 五 六 七 八 九 十",
        rf"{PART}?的?(?<![第有\d零一二两三四五六七八九十.])(?P<hour>\d{{1,2}}|[一二两三四五六七八九十]{{1,3}})(?:点|时(?=\d|半))"
        r"(?![心赞击评球数])(?P<tail>钟|整|半|一刻|三刻|(?:\d{1,2}|[一二三四五]?十[一二三四五六七八九]?|零[一二三四五六七八九])分?)?",
        _clock,
    ),
    rule("早 晚 午 晨 夜", rf"{PART}(?<=[晨上午晚里])(?![好安])", _part),
)
"""In order of preference where two rules read the same characters."""
