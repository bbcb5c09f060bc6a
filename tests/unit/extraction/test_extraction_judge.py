"""Tests, extraction: no field of a candidate rests on the model's word alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processors.extraction.judge import INFERRED_CEILING, MAX_QUOTE, MAX_TEXT, MAX_VALUE, Judge
from processors.extraction.outcome import RawItem, Rejected
from processors.extraction.render import render
from processors.spans import own_words
from processors.times import resolve
from schemas import (
    Candidate,
    Cardinality,
    Category,
    Channel,
    ExtractionBatch,
    MemoryType,
    Operation,
    Role,
    Sensitivity,
    SourceKind,
)
from tests.unit.extraction.conversation import SENT, Calendar, Named, batch, claim, said, turn


def judge(of: ExtractionBatch, item: RawItem, times: Any = resolve) -> Candidate | Rejected:
    return Judge(render(of, own_words), "m1", own_words, times).judge(item)


def accepted(of: ExtractionBatch, item: RawItem, times: Any = resolve) -> Candidate:
    result = judge(of, item, times)
    assert isinstance(result, Candidate), result
    return result


def reason(of: ExtractionBatch, item: RawItem) -> str:
    result = judge(of, item)
    assert isinstance(result, Rejected), result
    return result.reason


HOME = said("我住在成都", "好的，谢谢你")


def test_a_sound_claim_becomes_a_candidate_with_its_evidence() -> None:
    candidate = accepted(HOME, claim("成都", "我住在成都", text="住在成都", type="episodic", category="event"))
    assert candidate.owner == "u1"
    assert candidate.namespace == "user/u1/profile"
    assert (candidate.subject, candidate.attribute, candidate.value) == ("user", "residence", "成都")
    # The reviewed slot says what it is, not the model.
    assert (candidate.type, candidate.category) == (MemoryType.SEMANTIC, Category.FACT)
    assert candidate.cardinality is Cardinality.SINGLE
    assert candidate.sensitivity is Sensitivity.PERSONAL
    assert candidate.source_kind is SourceKind.USER_STATEMENT
    assert candidate.channel is Channel.MODEL
    assert candidate.writer == "model:m1:extract_v1_zh"
    assert candidate.evidence[0].quote == "我住在成都"
    assert candidate.source_turn_ids == ("t1",)
    assert candidate.language == "zh"
    assert candidate.text == "住在成都"
    assert candidate.provenance["value"].method == "model:quoted"
    assert set(candidate.provenance) == {"value", "text", "attribute", "subject", "event_time"}


def test_a_turn_number_that_was_never_offered_is_refused() -> None:
    assert reason(HOME, claim("成都", "我住在成都", turn=9)) == "alias_not_offered"


def test_a_number_does_not_reach_a_system_turn() -> None:
    of = batch(turn("用户住在成都", turn_id="s", role=Role.SYSTEM), turn("我喜欢火锅"))
    assert reason(of, claim("成都", "用户住在成都", turn=2)) == "alias_not_offered"
    assert reason(of, claim("成都", "用户住在成都", turn=1)) == "quote_not_in_turn"


@pytest.mark.parametrize("quote", ["我住在北京", "住", "，。", "我住在成都很多年", "好的，谢谢你"])
def test_a_quote_must_stand_in_the_cited_turn(quote: str) -> None:
    assert reason(HOME, claim("成都", quote)) == "quote_not_in_turn"


@pytest.mark.parametrize(
    ("text", "quote", "stored"),
    [
        ("我 住在\n成都，很久了", "我住在成都", "我 住在\n成都"),
        ("我住在成都。", "「我住在成都」", "我住在成都"),
        ("Ｉ live in Rome", "i live in rome", "Ｉ live in Rome"),
        ("I don’t drink coffee", "I don't drink coffee", "I don’t drink coffee"),
        ("我用 Python 写代码", "我用Python写代码", "我用 Python 写代码"),
    ],
)
def test_a_quote_may_differ_in_spaces_and_widths_and_is_stored_as_it_was_said(
    text: str, quote: str, stored: str
) -> None:
    assert accepted(said(text), claim(stored[-2:], quote, attribute="note")).evidence[0].quote == stored


def test_recalled_memories_in_a_turn_are_no_evidence() -> None:
    of = said("<memory>我住在北京</memory>\n我喜欢火锅")
    assert reason(of, claim("北京", "我住在北京")) == "quote_not_in_turn"


def test_a_quote_does_not_reach_across_what_was_injected() -> None:
    of = said("我住在<memory>北京</memory>成都")
    assert reason(of, claim("成都", "我住在成都")) == "quote_not_in_turn"


def test_values_copied_from_the_example_are_refused() -> None:
    assert reason(said("我搬到了⟨城市⟩"), claim("⟨城市⟩", "我搬到了⟨城市⟩")) == "placeholder"


class TestWhoSaidIt:
    """FIELD_REPORTS 12."""

    @pytest.mark.parametrize(
        ("role", "kind"), [(Role.ASSISTANT, SourceKind.ASSISTANT), (Role.TOOL, SourceKind.TOOL_RESULT)]
    )
    def test_other_roles_are_never_a_users_statement(self, role: Role, kind: SourceKind) -> None:
        of = batch(turn("您住在成都", role=role))
        assert accepted(of, claim("成都", "您住在成都")).source_kind is kind

    def test_each_person_in_a_room_owns_what_they_said(self) -> None:
        of = batch(turn("我住在成都"), turn("我住在西安", turn_id="t2", user_id="u2"))
        assert accepted(of, claim("西安", "我住在西安", turn=2)).owner == "u2"

    def test_a_claim_about_the_wrong_speaker_is_refused(self) -> None:
        of = batch(turn("我住在成都"), turn("好的", turn_id="t2", role=Role.ASSISTANT))
        assert reason(of, claim("成都", "我住在成都", speaker="助手")) == "wrong_speaker"
        accepted(of, claim("成都", "我住在成都", speaker="用户"))
        accepted(of, claim("成都", "我住在成都", speaker="somebody unheard of"))

    def test_a_statement_about_somebody_else_is_theirs_and_a_third_persons(self) -> None:
        candidate = accepted(said("李雷住在上海"), claim("上海", "李雷住在上海", subject="李雷"))
        assert (candidate.subject, candidate.source_kind) == ("李雷", SourceKind.THIRD_PARTY)

    @pytest.mark.parametrize(
        ("text", "value", "subject"),
        [
            ("我妈妈住在上海", "上海", "妈妈"),
            ("其实我的老板住在上海", "上海", "老板"),
            ("My sister lives in Rome", "Rome", "sister"),
            ("I love Paris, but my boss lives in Rome", "Rome", "boss"),
        ],
    )
    def test_a_relatives_fact_is_not_the_users_even_if_the_model_says_so(
        self, text: str, value: str, subject: str
    ) -> None:
        candidate = accepted(said(text), claim(value, text))
        assert (candidate.subject, candidate.source_kind) == (subject, SourceKind.THIRD_PARTY)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("我住在上海", "上海"),
            ("我妈妈是老师，我住在上海", "上海"),
            ("我妈妈让我住在上海", "上海"),
            ("My sister and I live in Rome", "Rome"),
            ("I live in Rome with my wife", "Rome"),
        ],
    )
    def test_what_the_user_says_of_themselves_stays_the_users(self, text: str, value: str) -> None:
        candidate = accepted(said(text), claim(value, text))
        assert (candidate.subject, candidate.source_kind) == ("user", SourceKind.USER_STATEMENT)

    @pytest.mark.parametrize(
        ("text", "subject"), [("他住在上海", "user"), ("他住在上海", "他"), ("she lives in Rome", "she")]
    )
    def test_an_unnamed_he_or_she_is_nobody(self, text: str, subject: str) -> None:
        value = "上海" if "上海" in text else "Rome"
        assert reason(said(text), claim(value, text, subject=subject)) == "subject_unnamed"

    def test_a_daughters_age_is_the_users_family(self) -> None:
        candidate = accepted(said("我女儿五岁了"), claim("女儿五岁", "我女儿五岁了", attribute="family"))
        assert candidate.subject == "user"

    @pytest.mark.parametrize("subject", ["User", "我", "用户", "韩梅梅"])
    def test_the_speakers_own_name_is_the_user(self, subject: str) -> None:
        of = batch(turn("我住在成都", speaker_name="韩梅梅"))
        assert accepted(of, claim("成都", "我住在成都", subject=subject)).subject == "user"


class TestLanguage:
    """FIELD_REPORTS 13."""

    def test_a_translated_sentence_is_replaced_by_the_quote(self) -> None:
        assert accepted(HOME, claim("成都", "我住在成都", text="User lives in Chengdu")).text == "我住在成都"
        english = said("I live in Rome", language="en")
        assert accepted(english, claim("Rome", "I live in Rome", text="用户住在罗马")).text == "I live in Rome"

    def test_a_translated_value_of_a_single_slot_is_refused(self) -> None:
        assert reason(HOME, claim("Chengdu", "我住在成都")) == "value_wrong_language"

    def test_a_translated_value_of_an_open_list_is_replaced_by_the_quote(self) -> None:
        candidate = accepted(said("我学会了做饭"), claim("learned to cook", "我学会了做饭", attribute="event"))
        assert candidate.value == "我学会了做饭"

    def test_english_words_that_were_said_in_chinese_stay(self) -> None:
        candidate = accepted(
            said("我用 Kubernetes 部署"), claim("Kubernetes", "我用 Kubernetes 部署", attribute="tool")
        )
        assert (candidate.value, candidate.language) == ("Kubernetes", "zh")


class TestTime:
    """FIELD_REPORTS 14: times come from the turn's words, never from the model."""

    YESTERDAY = datetime(2026, 3, 2, 16, tzinfo=UTC)

    def test_the_time_word_is_resolved_from_the_turns_own_time_and_zone(self) -> None:
        candidate = accepted(said("我昨天搬到成都"), claim("成都", "我昨天搬到成都", time="昨天"))
        assert candidate.event_time == self.YESTERDAY
        assert candidate.stated_at == SENT
        assert candidate.provenance["event_time"].method == "times:point"

    def test_of_a_turn_whose_time_was_guessed_only_a_date_with_its_year_counts(self) -> None:
        for text, when in (("我昨天搬到成都", SENT), ("我2019年5月3日搬到成都", datetime(2019, 5, 2, 16, tzinfo=UTC))):
            of = batch(turn(text, sent_at_guessed=True))
            assert accepted(of, claim("成都", text)).event_time == when

    def test_a_time_in_the_quote_counts_also_when_the_model_overlooked_it(self) -> None:
        assert accepted(said("我昨天搬到成都"), claim("成都", "我昨天搬到成都")).event_time == self.YESTERDAY

    @pytest.mark.parametrize("invented", ["2019-05-01", "去年", "next year", "2026-13-99"])
    def test_a_time_that_the_turn_does_not_name_is_ignored(self, invented: str) -> None:
        candidate = accepted(HOME, claim("成都", "我住在成都", time=invented))
        assert candidate.event_time == SENT
        assert candidate.provenance["event_time"].method == "turn:sent_at"

    def test_an_iso_date_counts_when_a_word_of_the_turn_means_that_day(self) -> None:
        of = said("前天我去了医院，昨天搬到成都")
        item = claim("成都", "昨天搬到成都", time="2026-03-02")
        assert accepted(of, item).event_time == self.YESTERDAY - timedelta(days=1)

    def test_two_times_and_no_choice_between_them_leave_the_turns_time(self) -> None:
        of = said("上周一或者昨天我搬到成都")
        times = Calendar((Named("上周一", SENT - timedelta(days=9)), Named("昨天", self.YESTERDAY)))
        assert accepted(of, claim("成都", "上周一或者昨天我搬到成都"), times).event_time == SENT

    def test_an_instruction_for_this_week_ends_with_the_week(self) -> None:
        end = SENT + timedelta(days=4)
        times = Calendar((Named("这周", SENT - timedelta(days=2), end),))
        item = claim("回答短一点", "这周回答短一点", attribute="answer_style")
        candidate = accepted(said("这周回答短一点"), item, times)
        assert (candidate.event_time, candidate.valid_to) == (SENT, end)


class TestValues:
    """Bounds, grounding and slots."""

    def test_what_the_turn_does_not_say_in_these_words_is_less_sure(self) -> None:
        candidate = accepted(
            said("我每天骑车上班"), claim("通勤骑行", "我每天骑车上班", attribute="habit", confidence=1.0)
        )
        assert candidate.confidence == INFERRED_CEILING
        assert candidate.provenance["value"].method == "model:inferred"

    def test_a_long_number_that_was_not_said_is_refused(self) -> None:
        of = said("我的电话是13800001234")
        assert reason(of, claim("13800001235", "我的电话是13800001234", attribute="phone")) == "value_not_in_turn"
        accepted(of, claim("13800001234", "我的电话是13800001234", attribute="phone"))

    def test_giant_memories_are_refused(self) -> None:
        long = "好" * (MAX_QUOTE + 1)
        assert reason(said(long), claim("好", long)) == "quote_too_long"
        assert reason(said(long), claim(long[: MAX_VALUE + 1], "好好")) == "value_too_long"
        assert accepted(said(long), claim("好", "好好", text=long[: MAX_TEXT + 1])).text == "好好"
        assert reason(said(long), claim("好", long[: MAX_TEXT + 1], text="")) == "text_too_long"
        assert reason(said(long), claim("好", "好好", subject="甲" * 65)) == "subject_too_long"

    @pytest.mark.parametrize(
        ("named", "more", "slot"),
        [
            ("Residence", {}, "residence"),
            ("住址", {}, "residence"),
            ("health condition", {}, "health_condition"),
            ("favourite colour", {}, "favourite_colour"),
            ("went_hiking", {"category": "event"}, "event"),
            ("went_hiking", {"type": "episodic"}, "event"),
            ("", {}, "note"),
        ],
    )
    def test_attributes_fall_into_slots(self, named: str, more: dict[str, Any], slot: str) -> None:
        assert accepted(HOME, claim("成都", "我住在成都", attribute=named, **more)).attribute == slot

    def test_consent_agent_and_trace_travel_with_the_candidate(self) -> None:
        of = batch(turn("我住在成都", consent=False, agent_id="mail", trace_id="x1"))
        candidate = accepted(of, claim("成都", "我住在成都"))
        assert (candidate.consent, candidate.agent_id, candidate.trace_id) == (False, "mail", "x1")


class TestIdentity:
    """A re-extraction repeats itself."""

    def test_wording_confidence_and_model_do_not_change_the_id(self) -> None:
        one = accepted(HOME, claim("成都", "我住在成都", text="住在成都", confidence=0.9))
        judged = Judge(render(HOME, own_words), "other", own_words, resolve).judge(
            claim(" 成都。", "住在成都", text="家在成都", confidence=0.4)
        )
        assert isinstance(judged, Candidate)
        assert judged.candidate_id == one.candidate_id

    def test_revision_subject_value_and_operation_do(self) -> None:
        of = said("李雷和我住在成都，不在西安")
        quote = "李雷和我住在成都，不在西安"
        edited = batch(turn(quote, revision=1))
        ids = {
            accepted(of, claim("成都", quote)).candidate_id,
            accepted(of, claim("西安", quote)).candidate_id,
            accepted(of, claim("成都", quote, subject="李雷")).candidate_id,
            accepted(of, claim("成都", quote, operation=Operation.END)).candidate_id,
            accepted(edited, claim("成都", quote)).candidate_id,
        }
        assert len(ids) == 5

    def test_of_equal_claims_the_surest_stays(self) -> None:
        doubtful, sure = claim("成都", "我住在成都", confidence=0.3), claim("成都", "我住在成都", confidence=0.8)
        kept, rejected = Judge(render(HOME, own_words), "m1", own_words, resolve).judge_all([doubtful, sure, doubtful])
        assert [candidate.confidence for candidate in kept] == [0.8]
        assert [each.reason for each in rejected] == ["duplicate", "duplicate"]
