"""Tests, policy room: business constraints and the reduction of fields."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from processors.policy import Constraint, Decision, OneOpenPerSubject, PolicyGate, first_violation
from processors.policy.anonymise import industry_of
from schemas import (
    Audit,
    Candidate,
    Cardinality,
    Category,
    Interval,
    Memory,
    MemoryType,
    Operation,
    Sensitivity,
    SourceKind,
    Status,
)

Build = Callable[..., Candidate]
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def complaint(value: str, **fields: Any) -> Memory:
    data: dict[str, Any] = {
        "id": value,
        "tenant": "default",
        "owner": "u1",
        "namespace": "user/u1/profile",
        "type": MemoryType.SEMANTIC,
        "category": Category.FACT,
        "subject": "customer 7",
        "attribute": "open_complaint",
        "value": value,
        "cardinality": Cardinality.MULTI,
        "text": value,
        "language": "en",
        "status": Status.ACTIVE,
        "version": 1,
        "confidence": 0.9,
        "sensitivity": Sensitivity.NORMAL,
        "source_kind": SourceKind.USER_STATEMENT,
        "intervals": (Interval(start=NOW),),
        "first_stated_at": NOW,
        "last_stated_at": NOW,
        "audit": Audit(writer="test", decision="accept", policy_version="p"),
    }
    return Memory(**(data | fields))


@pytest.fixture
def second(candidate: Build) -> Candidate:
    return candidate(
        "Customer 7 complains about the late parcel", "open_complaint", "late parcel", subject="customer 7"
    )


def test_a_customer_cannot_have_two_open_complaints(second: Candidate) -> None:
    assert OneOpenPerSubject().check(second, [complaint("broken lamp")]) == "one_open_complaint"


@pytest.mark.parametrize(
    "fields",
    [
        {"status": Status.SUPERSEDED},
        {"status": Status.RETRACTED},
        {"intervals": (Interval(start=NOW, end=NOW),)},
        {"subject": "customer 8"},
        {"tenant": "other"},
        {"owner": "u2"},
        {"attribute": "closed_complaint"},
    ],
)
def test_only_an_open_complaint_of_the_same_customer_is_in_the_way(second: Candidate, fields: dict[str, Any]) -> None:
    assert OneOpenPerSubject().check(second, [complaint("broken lamp", **fields)]) is None


def test_the_same_complaint_told_again_is_not_a_second_one(second: Candidate) -> None:
    assert OneOpenPerSubject().check(second, [complaint("Late  parcel.")]) is None
    assert OneOpenPerSubject().check(second, []) is None


def test_closing_a_complaint_is_always_possible(second: Candidate) -> None:
    end = second.model_copy(update={"operation": Operation.END})
    assert OneOpenPerSubject().check(end, [complaint("broken lamp")]) is None


def test_any_object_with_the_protocol_is_a_constraint(second: Candidate) -> None:
    class NoFridays:
        name = "no_fridays"

        def check(self, candidate: Candidate, current: Any) -> str | None:
            return self.name

    constraints: list[Constraint] = [OneOpenPerSubject(), NoFridays()]
    assert first_violation(constraints, second, []) == "no_fridays"
    assert first_violation(constraints, second, [complaint("broken lamp")]) == "one_open_complaint"
    assert first_violation([], second, []) is None


@pytest.mark.parametrize(
    ("company", "language", "industry"),
    [
        ("阿里巴巴集团", "zh", "互联网公司"),
        ("Google", "en", "an internet company"),
        ("Google", "zh", "互联网公司"),
        ("HUAWEI", "en", "an electronics company"),
        ("招商银行杭州分行", "zh", "银行"),
        ("360", "zh", "互联网公司"),
        ("Harmony Pharmacy", "en", "a company"),
        ("老王修车铺", "zh", "某公司"),
    ],
)
def test_a_company_becomes_its_industry(company: str, language: str, industry: str) -> None:
    assert industry_of(company, language) == industry


def test_an_anonymised_field_is_reduced_in_every_place(gate_with: Callable[..., PolicyGate], candidate: Build) -> None:
    claim = candidate("我在阿里巴巴上班", "employer", "阿里巴巴", "我在阿里巴巴做后端")
    verdict = gate_with(anonymise={"employer": "industry"}).judge(claim, None)
    assert (verdict.decision, verdict.reasons) == (Decision.MASK, ("anonymised",))
    done = verdict.candidate
    assert (done.value, done.text, done.evidence[0].quote) == (
        "互联网公司",
        "我在互联网公司上班",
        "我在互联网公司做后端",
    )


def test_a_field_is_anonymised_only_on_request(
    gate: PolicyGate, gate_with: Callable[..., PolicyGate], candidate: Build
) -> None:
    claim = candidate("I work at Google", "employer", "Google")
    assert gate.judge(claim, None).candidate.value == "Google"
    hidden = gate_with(anonymise={"employer": "generic"}).judge(claim, None).candidate
    assert (hidden.value, hidden.text) == ("(anonymised)", "I work at (anonymised)")
