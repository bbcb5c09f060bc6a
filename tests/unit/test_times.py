"""Time expressions: each row is a sentence said on Wednesday 2026-03-11 at 10:00 in Shanghai, and the span it means."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from processors.times import resolve

SAID = datetime(2026, 3, 11, 2, 0, tzinfo=UTC)
SHANGHAI = "Asia/Shanghai"


def local(text: str, sent_at: datetime = SAID, zone: str = SHANGHAI) -> list[tuple[str, str, str | None, str]]:
    """Quote, local start, local end and kind of every span."""

    def wall(instant: datetime | None) -> str | None:
        return instant.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") if instant else None

    spans = resolve(text, sent_at, zone, "mixed")
    for span in spans:
        assert text[span.offset :].startswith(span.quote)
        assert span.start.tzinfo is UTC
    return [(span.quote, wall(span.start) or "", wall(span.end), span.kind) for span in spans]


@pytest.mark.parametrize(
    ("text", "quote", "first", "after"),
    [
        ("今天下雨", "今天", "2026-03-11", "2026-03-12"),
        ("后天出发", "后天", "2026-03-13", "2026-03-14"),
        ("大后天出发", "大后天", "2026-03-14", "2026-03-15"),
        ("昨天到的", "昨天", "2026-03-10", "2026-03-11"),
        ("前天到的", "前天", "2026-03-09", "2026-03-10"),
        ("大前天到的", "大前天", "2026-03-08", "2026-03-09"),
        ("这周不要提醒我开会", "这周", "2026-03-09", "2026-03-16"),
        ("上周我去了杭州", "上周", "2026-03-02", "2026-03-09"),
        ("上上周", "上上周", "2026-02-23", "2026-03-02"),
        ("下下个星期", "下下个星期", "2026-03-23", "2026-03-30"),
        ("上週去了杭州", "上週", "2026-03-02", "2026-03-09"),
        ("上周三去了医院", "上周三", "2026-03-04", "2026-03-05"),
        ("下周一开会", "下周一", "2026-03-16", "2026-03-17"),
        ("这周五交", "这周五", "2026-03-13", "2026-03-14"),
        ("周五交报告", "周五", "2026-03-13", "2026-03-14"),
        ("周五去了医院", "周五", "2026-03-06", "2026-03-07"),
        ("周一要开会", "周一", "2026-03-16", "2026-03-17"),
        ("周一去过了", "周一", "2026-03-09", "2026-03-10"),
        ("下周三天都在出差", "下周", "2026-03-16", "2026-03-23"),
        ("周末去爬山", "周末", "2026-03-14", "2026-03-16"),
        ("上周末去了爬山", "上周末", "2026-03-07", "2026-03-09"),
        ("我上个月搬到上海", "上个月", "2026-02-01", "2026-03-01"),
        ("下个月搬家", "下个月", "2026-04-01", "2026-05-01"),
        ("上个月15号搬的", "上个月15号", "2026-02-15", "2026-02-16"),
        ("这个月底搬", "这个月底", "2026-03-25", "2026-04-01"),
        ("今年年底结婚", "今年年底", "2026-12-01", "2027-01-01"),
        ("2025年年底结婚", "2025年年底", "2025-12-01", "2026-01-01"),
        ("去年毕业", "去年", "2025-01-01", "2026-01-01"),
        ("明年春天毕业", "明年春天", "2027-03-01", "2027-06-01"),
        ("去年冬天搬的", "去年冬天", "2025-12-01", "2026-03-01"),
        ("国庆结婚", "国庆", "2026-10-01", "2026-10-02"),
        ("国庆节去了西安", "国庆节", "2025-10-01", "2025-10-02"),
        ("聖誕節去日本", "聖誕節", "2026-12-25", "2026-12-26"),
        ("明年五一去云南", "明年五一", "2027-05-01", "2027-05-02"),
        ("元旦回老家", "元旦", "2027-01-01", "2027-01-02"),
        ("前年毕业", "前年", "2024-01-01", "2025-01-01"),
        ("明年3月去日本", "明年3月", "2027-03-01", "2027-04-01"),
        ("三天前", "三天前", "2026-03-08", "2026-03-09"),
        ("两周后", "两周后", "2026-03-25", "2026-03-26"),
        ("半年前", "半年前", "2025-09-11", "2025-09-12"),
        ("半个月后", "半个月后", "2026-03-26", "2026-03-27"),
        ("两年半前", "两年半前", "2023-09-11", "2023-09-12"),
        ("二十三天前", "二十三天前", "2026-02-16", "2026-02-17"),
        ("2026年3月5日", "2026年3月5日", "2026-03-05", "2026-03-06"),
        ("二〇二六年三月五日", "二〇二六年三月五日", "2026-03-05", "2026-03-06"),
        ("３月５号", "３月５号", "2026-03-05", "2026-03-06"),
        ("12月25号去了北京", "12月25号", "2025-12-25", "2025-12-26"),
        ("12月25号要去北京", "12月25号", "2026-12-25", "2026-12-26"),
        ("3/5去了", "3/5", "2026-03-05", "2026-03-06"),
        ("2026-03-05", "2026-03-05", "2026-03-05", "2026-03-06"),
        ("2019年我在读书", "2019年", "2019-01-01", "2020-01-01"),
        ("see you the day after tomorrow", "the day after tomorrow", "2026-03-13", "2026-03-14"),
        ("I moved last week", "last week", "2026-03-02", "2026-03-09"),
        ("we met last Friday", "last Friday", "2026-03-06", "2026-03-07"),
        ("see you next Monday", "next Monday", "2026-03-16", "2026-03-17"),
        ("On Friday, I got a new car", "Friday", "2026-03-06", "2026-03-07"),
        ("this weekend", "this weekend", "2026-03-14", "2026-03-16"),
        ("the weekend was great", "the weekend", "2026-03-07", "2026-03-09"),
        ("3 days ago", "3 days ago", "2026-03-08", "2026-03-09"),
        ("half a year ago", "half a year ago", "2025-09-11", "2025-09-12"),
        ("remind me in two weeks", "in two weeks", "2026-03-25", "2026-03-26"),
        ("on 5 March 2026", "5 March 2026", "2026-03-05", "2026-03-06"),
        ("March 2026", "March 2026", "2026-03-01", "2026-04-01"),
        ("I moved here in January", "January", "2026-01-01", "2026-02-01"),
        # What has a date is to come when somebody has it, or it is.
        ("I have surgery on December 20th", "December 20th", "2026-12-20", "2026-12-21"),
        ("We have a dentist appointment in November", "November", "2026-11-01", "2026-12-01"),
        ("My flight is on October 3rd", "October 3rd", "2026-10-03", "2026-10-04"),
        ("I'm getting married in December", "December", "2026-12-01", "2027-01-01"),
        ("I had surgery in December", "December", "2025-12-01", "2026-01-01"),
        ("last March", "last March", "2025-03-01", "2025-04-01"),
        ("back in 2020", "2020", "2020-01-01", "2021-01-01"),
        ("am 05.03.2026", "05.03.2026", "2026-03-05", "2026-03-06"),
    ],
)
def test_a_named_period_is_the_whole_local_period(text: str, quote: str, first: str, after: str) -> None:
    assert local(text) == [(quote, f"{first} 00:00", f"{after} 00:00", "point")]


@pytest.mark.parametrize(
    ("text", "quote", "instant"),
    [
        ("明天下午三点半开会", "明天下午三点半", "2026-03-12 15:30"),
        ("今晚8点", "今晚8点", "2026-03-11 20:00"),
        ("明早九点", "明早九点", "2026-03-12 09:00"),
        ("15:30 开会", "15:30", "2026-03-11 15:30"),
        ("下午三点一刻", "下午三点一刻", "2026-03-11 15:15"),
        ("2026-03-05T10:00:00Z", "2026-03-05T10:00:00Z", "2026-03-05 18:00"),
        ("tomorrow at 3pm", "tomorrow at 3pm", "2026-03-12 15:00"),
        ("3 o'clock in the afternoon tomorrow", "3 o'clock in the afternoon tomorrow", "2026-03-12 15:00"),
        ("at noon tomorrow", "at noon tomorrow", "2026-03-12 12:00"),
        ("remind me in 5 minutes", "in 5 minutes", "2026-03-11 10:05"),
        ("两个半小时后提醒我", "两个半小时后", "2026-03-11 12:30"),
    ],
)
def test_a_clock_time_is_an_instant_on_its_day(text: str, quote: str, instant: str) -> None:
    assert local(text) == [(quote, instant, None, "point")]


@pytest.mark.parametrize(
    ("text", "quote", "start", "end", "kind"),
    [
        ("接下来两周别发邮件", "接下来两周", "2026-03-11 10:00", "2026-03-25 10:00", "duration"),
        ("最近三天没睡好", "最近三天", "2026-03-08 10:00", "2026-03-11 10:00", "duration"),
        ("这两周不要发邮件", "这两周", "2026-03-11 10:00", "2026-03-25 10:00", "duration"),
        ("for the next 30 days", "for the next 30 days", "2026-03-11 10:00", "2026-04-10 10:00", "duration"),
        ("no meetings for two weeks", "for two weeks", "2026-03-11 10:00", "2026-03-25 10:00", "duration"),
        ("I have lived here for two weeks", "for two weeks", "2026-02-25 10:00", "2026-03-11 10:00", "duration"),
        ("明天15:00到17:00", "明天15:00到17:00", "2026-03-12 15:00", "2026-03-12 17:00", "duration"),
        ("3月5日到8日出差", "3月5日到8日", "2026-03-05 00:00", "2026-03-09 00:00", "duration"),
        ("从下周开始", "从下周开始", "2026-03-16 00:00", None, "since"),
        ("从今天起用英文", "从今天起", "2026-03-11 00:00", None, "since"),
        ("I've lived in Berlin since 2020", "since 2020", "2020-01-01 00:00", None, "since"),
        ("I have had this appointment since December", "since December", "2025-12-01 00:00", None, "since"),
        ("from now on", "from now on", "2026-03-11 10:00", None, "since"),
        ("到周五为止", "到周五为止", "2026-03-11 10:00", "2026-03-14 00:00", "until"),
        ("直到周五", "直到周五", "2026-03-11 10:00", "2026-03-14 00:00", "until"),
        ("周五之前", "周五之前", "2026-03-11 10:00", "2026-03-13 00:00", "until"),
        ("月底前交", "月底前", "2026-03-11 10:00", "2026-04-01 00:00", "until"),
        ("don't call me until Friday", "until Friday", "2026-03-11 10:00", "2026-03-14 00:00", "until"),
        ("finish by April 5th", "by April 5th", "2026-03-11 10:00", "2026-04-06 00:00", "until"),
        ("until 2027", "until 2027", "2026-03-11 10:00", "2027-01-01 00:00", "until"),
        ("quiet for the rest of the week", "for the rest of the week", "2026-03-11 10:00", "2026-03-16 00:00", "until"),
        ("by 5pm today", "by 5pm today", "2026-03-11 10:00", "2026-03-11 17:00", "until"),
        ("not before 3pm", "not before 3pm", "2026-03-11 15:00", None, "since"),
        ("from 9am to 5pm tomorrow", "9am to 5pm tomorrow", "2026-03-12 09:00", "2026-03-12 17:00", "duration"),
        ("away March 5-8", "March 5-8", "2026-03-05 00:00", "2026-03-09 00:00", "duration"),
        ("for another week", "for another week", "2026-03-11 10:00", "2026-03-18 10:00", "duration"),
        ("through March", "through March", "2026-03-11 10:00", "2026-04-01 00:00", "until"),
    ],
)
def test_stretches_and_limits(text: str, quote: str, start: str, end: str | None, kind: str) -> None:
    assert local(text) == [(quote, start, end, kind)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "我对花生过敏",
        "说明天气很好",
        "后天性心脏病",
        "她照顾得很周到",
        "三年前端经验",
        "如今年轻人都这样",
        "以后晚上不要打扰我",
        "以前天天加班",
        "一周三次瑜伽",
        "每周三下午三点开会",
        "几乎每周周末都去",
        "绣了将近两个月",
        "周一到周五上班",
        "几天前",
        "三四天前",
        "十几年前",
        "三点建议",
        "他住在2号楼",
        "坐5号线",
        "农历八月十五",
        "晚上一点",
        "我的生日是3月5日",
        "2月31日",
        "I may go",
        "we march on",
        "the sun is up",
        "on Mondays",
        "every Friday at 9am",
        "Monday to Friday",
        "a few days ago",
        "a year and a half ago",
        "I lived there for two years",
        "Black Friday deals",
        "open 24/7",
        "I scored 3/5",
        "my birthday is March 5th",
        "https://example.com/2026-03-05/notes",
        "version 1.2.3",
        "他叫王国庆",
        "我住在五一路",
        "每年国庆都回老家",
        "国庆前交论文",
    ],
)
def test_what_is_vague_recurring_or_no_time_at_all_gives_nothing(text: str) -> None:
    assert local(text) == []


def test_day_and_month_in_figures_need_one_reading() -> None:
    assert local("let's meet on 3/5", zone="Europe/Berlin") == []
    assert local("we met on 3/5", zone="America/New_York")[0][1] == "2026-03-05 00:00"
    assert local("let's meet on 25/3", zone="Europe/Berlin")[0][1] == "2026-03-25 00:00"


def test_several_expressions_come_in_the_order_of_the_text() -> None:
    spans = local("去年住在北京，上个月搬到上海，next year maybe Berlin")
    assert [quote for quote, *_ in spans] == ["去年", "上个月", "next year"]
