"""Tests, policy room: personal numbers disappear from every field, ordinary numbers stay."""

from __future__ import annotations

from collections.abc import Callable

import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stdnum import luhn
from stdnum.cn import ric

from processors.policy import Decision, PiiKind, PolicyGate, PolicySettings
from processors.policy.contact import regions_of
from processors.policy.identity import IdentityFinder
from schemas import Candidate, Sensitivity

Build = Callable[..., Candidate]
GATE = PolicyGate(PolicySettings(), b"a key that only tests know......")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我的电话是13800138000", "我的电话是138****8000"),
        ("手机 138-0013-8000 或 138 0013 8000", "手机 138****8000 或 138****8000"),
        ("电话+8613800138000", "电话138****8000"),
        ("手机号１３８００１３８０００", "手机号138****8000"),
        ("打一三八零零一三八零零零", "打138****8000"),
        ("座机 010-62345678", "座机 ****5678"),
        ("call me at (415) 555-2671", "call me at ****2671"),
        ("London office: +44 20 7946 0958", "London office: +44****0958"),
        ("my phone is 555-0199", "my phone is ****99"),
        ("写信到 anna.li@d.com", "写信到 a***@d.com"),
        ("邮箱anna.li@d.com电话13800138000不变", "邮箱a***@d.com电话138****8000不变"),
        ("拨打010-62345678找我", "拨打****5678找我"),
        ("mail a@b.co now", "mail ***@b.co now"),
    ],
)
def test_numbers_and_addresses_keep_only_their_ends(text: str, expected: str) -> None:
    assert GATE.mask_text(text).text == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("身份证号11010519491231002X", PiiKind.ID_NUMBER),
        ("护照号 E12345678", PiiKind.PASSPORT),
        ("护照号E12345678是我的", PiiKind.PASSPORT),
        ("My passport number is 533380006", PiiKind.PASSPORT),
        ("SSN 536-22-8726", PiiKind.SSN),
        ("驾照号是 310100198001011234", PiiKind.ID_NUMBER),
        ("卡号 4539 1488 0343 6467", PiiKind.CARD),
        ("my card 4539148803436467", PiiKind.CARD),
        ("IBAN GB82 WEST 1234 5698 7654 32", PiiKind.IBAN),
        ("银行账号：6222020200112233", PiiKind.ACCOUNT),
        ("my account number is 12345678", PiiKind.ACCOUNT),
        ("HKID A123456(3)", PiiKind.ID_NUMBER),
    ],
)
def test_identity_card_and_account_numbers_become_hashes(text: str, kind: PiiKind) -> None:
    masked = GATE.mask_text(text)
    assert set(masked.kinds) & {kind, PiiKind.CARD}
    assert "id:" in masked.text
    assert not any(part in masked.text for part in text.split() if sum(c.isdigit() for c in part) >= 5)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01 10:30 开会",
        "订单号 20240115123456",
        "会议号 638 495 201",
        "我在2018年到2022年读大学",
        "价格是 1299999 元",
        "圆周率 3.1415926535",
        "version 1.2.3.4567 is out",
        "my order number is 4155552671",
        "The population is 1400000000 people",
        "UUID 123e4567-e89b-12d3-a456-426614174000",
        "ISBN 9787111213826",
        "room 1203, floor 12",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "@mention me in #general",
    ],
)
def test_ordinary_numbers_stay(text: str) -> None:
    assert GATE.mask_text(text).text == text


def test_what_a_deployment_does_not_mask_stays(gate_with: Callable[..., PolicyGate]) -> None:
    gate = gate_with(mask_kinds=frozenset({PiiKind.CARD}))
    text = "13800138000, anna@d.com, 4539148803436467, 密码是abc12345"
    assert gate.mask_text(text).text.startswith("13800138000, anna@d.com, id:")
    assert gate.mask_text(text).text.endswith("密码是[secret]")


def test_addresses_of_machines_are_masked_on_request(gate_with: Callable[..., PolicyGate]) -> None:
    gate = gate_with(mask_kinds=frozenset({PiiKind.IP_ADDRESS}))
    assert gate.mask_text("ssh 10.0.0.12 or 2001:db8:0:1::7").text == "ssh [ip] or [ip]"
    assert GATE.mask_text("ssh 10.0.0.12").text == "ssh 10.0.0.12"


def test_value_text_and_evidence_are_masked_alike(candidate: Build) -> None:
    claim = candidate("user's SSN is 536228726", "note", "536228726", "my ssn: 536228726")
    done = GATE.judge(claim, None).candidate
    assert done.value.startswith("id:")
    assert done.text == f"user's SSN is {done.value}"
    assert done.evidence[0].quote == f"my ssn: {done.value}"
    assert done.sensitivity is Sensitivity.RESTRICTED


def test_a_slot_named_for_a_number_masks_a_bare_value(candidate: Build) -> None:
    verdict = GATE.judge(candidate("E12345678", "passport_number"), None)
    assert (verdict.decision, verdict.reasons) == (Decision.MASK, ("masked_passport",))
    assert GATE.judge(candidate("6234567", "phone"), None).candidate.value == "****67"


def test_two_spellings_of_a_number_have_one_hash_and_another_key_another() -> None:
    finder = IdentityFinder(b"k" * 32)
    assert finder.hash_of("4539 1488 0343 6467") == finder.hash_of("4539148803436467")
    assert finder.hash_of("4539148803436467") != IdentityFinder(b"j" * 32).hash_of("4539148803436467")


def test_a_number_is_read_in_the_speakers_region() -> None:
    assert regions_of("Europe/Berlin", "en", "CN") == ("DE", "US", "CN")
    assert regions_of("Asia/Shanghai", "zh", "CN") == ("CN",)
    assert regions_of("UTC", None, "CN") == ("CN",)


# ---- properties

WORDS = st.sampled_from(
    ["我的", "联系 ", "call ", "号码是", "please note ", "，", " and ", "住在上海。", "\n", "id: ", "x "]
)
MOBILE = st.builds(lambda head, tail: f"1{head}{tail:09d}", st.sampled_from("3456789"), st.integers(0, 999_999_999))


@st.composite
def resident_ids(draw: st.DrawFn) -> str:
    place = draw(st.sampled_from(["110105", "310101", "440106", "330102"]))
    year, month, day = draw(st.integers(1930, 2015)), draw(st.integers(1, 12)), draw(st.integers(1, 28))
    body = f"{place}{year}{month:02d}{day:02d}{draw(st.integers(0, 999)):03d}"
    return body + str(ric.calc_check_digit(body + "0"))


@st.composite
def cards(draw: st.DrawFn) -> str:
    body = draw(st.sampled_from(["4539", "5212", "6222", "3528"])) + f"{draw(st.integers(0, 10**11 - 1)):011d}"
    return body + str(luhn.calc_check_digit(body))


@st.composite
def us_phones(draw: st.DrawFn) -> str:
    number = phonenumbers.parse(f"212{draw(st.integers(2_000_000, 9_999_999))}", "US")
    form = draw(st.sampled_from([phonenumbers.PhoneNumberFormat.INTERNATIONAL, phonenumbers.PhoneNumberFormat.E164]))
    return str(phonenumbers.format_number(number, form))


EMAILS = st.builds(
    lambda local, host: f"{local}@{host}.example",
    st.text("abcdefgh0123.", min_size=2, max_size=12).filter(
        lambda s: not s.startswith(".") and not s.endswith(".") and ".." not in s
    ),
    st.text("abcdefgh", min_size=1, max_size=8),
)


@settings(max_examples=200, deadline=None)
@given(before=WORDS, number=st.one_of(MOBILE, resident_ids(), cards(), us_phones(), EMAILS), after=WORDS)
def test_a_masked_text_never_contains_the_number(before: str, number: str, after: str) -> None:
    assert number not in GATE.mask_text(f"{before}{number}{after}").text


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            WORDS,
            MOBILE,
            resident_ids(),
            cards(),
            EMAILS,
            st.text(max_size=12),
            st.text("0123456789 -+()", max_size=20),
        ),
        max_size=6,
    ).map("".join)
)
def test_masking_twice_is_masking_once(text: str) -> None:
    once = GATE.mask_text(text)
    assert GATE.mask_text(once.text).text == once.text
