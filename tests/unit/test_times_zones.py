"""Time expressions: zones, summer time, and independence from the machine they run on."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.times import TimeSpan, resolve

ZONES = ("Asia/Shanghai", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Sao_Paulo", "Pacific/Apia")
PHRASES = (
    *("今天", "昨天", "上周", "下周一", "周五", "上个月", "月底", "去年", "三天前", "半年前", "最近三天", "接下来两周"),
    *("直到周五", "从下周开始", "3月5号", "明天下午三点半", "today", "last Friday", "next month", "for two weeks"),
    *("until Friday", "since 2020", "on March 5th", "tomorrow at 3pm", "the weekend", "in 36 hours"),
)

instants = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
sentences = st.lists(st.sampled_from(PHRASES) | st.text(max_size=12), max_size=5).map("，".join)


@given(sentences, instants, st.sampled_from(ZONES))
def test_spans_quote_the_text_and_run_forward(text: str, sent_at: datetime, zone: str) -> None:
    last = 0
    for span in resolve(text, sent_at, zone, "zh"):
        assert text[span.offset : span.offset + len(span.quote)] == span.quote
        assert span.offset >= last
        assert span.start.tzinfo is UTC
        assert span.end is None or span.end > span.start
        last = span.offset + len(span.quote)


@given(sentences, instants, st.sampled_from(ZONES))
def test_the_same_turn_gives_the_same_spans_on_every_machine(text: str, sent_at: datetime, zone: str) -> None:
    def with_system_zone(name: str) -> list[TimeSpan]:
        before = os.environ.get("TZ")
        os.environ["TZ"] = name
        time.tzset()
        try:
            return resolve(text, sent_at, zone, "zh")
        finally:
            if before is None:
                del os.environ["TZ"]
            else:
                os.environ["TZ"] = before
            time.tzset()

    assert with_system_zone("Asia/Tokyo") == with_system_zone("America/Los_Angeles")


@given(instants, st.sampled_from(ZONES))
def test_the_offset_in_which_the_instant_is_written_does_not_matter(sent_at: datetime, zone: str) -> None:
    elsewhere = sent_at.astimezone(ZoneInfo("Asia/Tokyo"))
    for phrase in PHRASES:
        assert resolve(phrase, sent_at, zone, "zh") == resolve(phrase, elsewhere, zone, "zh")


@given(instants, st.sampled_from(ZONES))
def test_a_week_is_from_monday_to_monday_of_the_local_calendar(sent_at: datetime, zone: str) -> None:
    (span,) = resolve("上周", sent_at, zone, "zh")
    assert span.end is not None
    start, end = (instant.astimezone(ZoneInfo(zone)) for instant in (span.start, span.end))
    assert start.weekday() == end.weekday() == 0
    assert (end.date() - start.date()).days == 7


def test_one_instant_is_two_days_in_two_zones() -> None:
    late = datetime(2026, 3, 11, 18, 0, tzinfo=UTC)
    (shanghai,) = resolve("今天", late, "Asia/Shanghai", "zh")
    (berlin,) = resolve("today", late, "Europe/Berlin", "en")
    assert shanghai.start == datetime(2026, 3, 11, 16, 0, tzinfo=UTC)
    assert berlin.start == datetime(2026, 3, 10, 23, 0, tzinfo=UTC)


def test_the_day_summer_time_begins_has_23_hours() -> None:
    (span,) = resolve("today", datetime(2026, 3, 29, 10, 0, tzinfo=UTC), "Europe/Berlin", "en")
    assert span.end is not None
    assert span.end - span.start == timedelta(hours=23)


def test_two_weeks_across_a_change_of_clocks_keep_the_wall_clock_time() -> None:
    sent_at = datetime(2026, 3, 20, 9, 0, tzinfo=UTC)
    (span,) = resolve("for the next 14 days", sent_at, "Europe/Berlin", "en")
    assert span.end == datetime(2026, 4, 3, 8, 0, tzinfo=UTC)


def test_hours_are_real_hours() -> None:
    sent_at = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
    (span,) = resolve("remind me in 12 hours", sent_at, "Europe/Berlin", "en")
    assert span.start == sent_at + timedelta(hours=12)


def test_a_midnight_that_summer_time_skips_is_the_first_instant_of_the_day() -> None:
    (span,) = resolve("hoy es 2018-11-04", datetime(2018, 11, 4, 15, 0, tzinfo=UTC), "America/Sao_Paulo", "en")
    assert span.start == datetime(2018, 11, 4, 3, 0, tzinfo=UTC)


def test_a_naive_instant_and_an_unknown_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        resolve("今天", datetime(2026, 3, 11), "Asia/Shanghai", "zh")
    with pytest.raises(ZoneInfoNotFoundError):
        resolve("今天", datetime(2026, 3, 11, tzinfo=UTC), "Mars/Olympus", "zh")


def test_years_beyond_the_calendar_give_nothing() -> None:
    assert resolve("in 9999 years", datetime(2026, 3, 11, tzinfo=UTC), "UTC", "en") == []
