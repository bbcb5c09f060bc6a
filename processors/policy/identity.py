"""Policy, masking room: identity, card and account numbers, found by form, checksum and the words around them.

Checksums are python-stdnum's: Chinese resident identity (GB 11643, MOD 11-2), Luhn (ISO/IEC 7812-1), IBAN (ISO 13616).
A number whose form is weak (passport, driving licence, account) counts only next to a word that names it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from functools import lru_cache

import regex
from stdnum import iban, luhn
from stdnum.cn import ric

from processors.policy.spans import PiiKind, Span

_CN_ID = regex.compile(
    r"(?<!\d)[1-9]\d{5}[ -]?(?:18|19|20)\d{2}(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])[ -]?\d{3}[\dXx](?!\d)"
)
_SSN = regex.compile(r"(?<![\d-])\d{3}[- ]\d{2}[- ]\d{4}(?![\d-])")
_HK_ID = regex.compile(r"(?<![A-Za-z])[A-Za-z]{1,2}\d{6}[(（][0-9Aa][)）]")
_NINO = regex.compile(
    r"(?<![A-Za-z0-9])[A-CEGHJ-PR-TW-Za-ceghj-pr-tw-z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-Da-d](?![A-Za-z0-9])"
)
_CARD = regex.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d])")
_IBAN = regex.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,4})?(?![A-Za-z0-9])"
)
_IIN = regex.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[0-9]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}|(?:1800|2131)\d{11}"
    r"|6\d{11,18}|9\d{15,18}"
)

_LINK = r"(?:\s*(?:号码|号|number|num|no\.?|#|id))?\s*(?:[:：=]|是|为|is|was|are)?\s*[\"'“]?"
_NAMED: tuple[tuple[PiiKind, regex.Pattern[str]], ...] = tuple(
    (kind, regex.compile(rf"(?ia)(?:{words}){_LINK}(?P<number>{form})(?![A-Za-z0-9_*])"))
    for kind, words, form in (
        (
            PiiKind.PASSPORT,
            r"护照|通行证|passport",
            r"(?=[A-Z0-9]*\d{4})[A-Z0-9]{6,12}",
        ),
        (
            PiiKind.SSN,
            r"ssn|social security|社会安全号",
            r"\d{3}[- ]?\d{2}[- ]?\d{4}",
        ),
        (
            PiiKind.ID_NUMBER,
            r"身份证|证件|社保卡?|社会保障|驾驶证|驾照|军官证|居住证|学籍|居留|driver'?s?['’]? licen[cs]e"
            r"|driving licen[cs]e|national id"
            r"|identity card|id card|nric|\bfin\b|aadhaar|nhs|social insurance"
            r"|\bsin|tax id|tax file|taxpayer|\btin|\bcpf|\bdni|medicare",
            r"(?=[A-Z0-9 -]*\d{3})[A-Z0-9](?:[ -]?[A-Z0-9]){5,19}(?:[(（][0-9A][)）])?",
        ),
        (
            PiiKind.CARD,
            r"银行卡|信用卡|储蓄卡|借记卡|卡号|card(?: number)?|credit card|debit card|\bcc",
            r"\d(?:[ -]?\d){11,18}",
        ),
        (
            PiiKind.ACCOUNT,
            r"银行账[号户]|收款账[号户]|对公账[号户]|账号|帐号|账户|account|iban|sort code|routing",
            r"(?=[A-Z0-9 -]*\d{6})[A-Z0-9](?:[ -]?[A-Z0-9]){6,32}",
        ),
    )
)
_NAMING = regex.compile(
    r"(?a)护照|通行证|身份证|证件|社保|社会|驾驶证|驾照|军官证|居住证|学籍|居留|卡|账|帐"
    r"|(?i:passport|ssn|social|licen[cs]e|national id|identity|id card|nric|\bfin\b"
    r"|aadhaar|nhs|\bsin\b|tax|\btin\b|\bcpf|\bdni|medicare|card|\bcc\b|account|iban|sort code|routing)"
)
_ATTRIBUTES: tuple[tuple[PiiKind, regex.Pattern[str]], ...] = (
    (PiiKind.PASSPORT, regex.compile(r"passport|护照|通行证")),
    (PiiKind.SSN, regex.compile(r"(?:^|_)ssn(?:$|_)|social_security")),
    (
        PiiKind.ID_NUMBER,
        regex.compile(
            r"(?:^|_)(?:id|identity|national|tax|licen[cs]e)_?(?:card|number|no|id)|身份证|证件|社保|驾照|驾驶证"
        ),
    ),
    (PiiKind.CARD, regex.compile(r"(?:bank|credit|debit)_?card|card_(?:number|no)|银行卡|信用卡|卡号")),
    (PiiKind.IBAN, regex.compile(r"iban")),
    (PiiKind.ACCOUNT, regex.compile(r"bank_account|account_(?:number|no)|银行账|收款账")),
)
_COMPACT = regex.compile(r"[^0-9A-Za-z]+")


@lru_cache(maxsize=1024)
def kind_of_attribute(attribute: str) -> PiiKind | None:
    """The kind of number that a slot is named for, such as `passport_number`."""
    return next((kind for kind, pattern in _ATTRIBUTES if pattern.search(attribute)), None)


class IdentityFinder:
    """Finds identity numbers and gives each its keyed hash, `id:` + 8 hex digits (HMAC-SHA-256, RFC 2104)."""

    def __init__(self, hash_key: bytes) -> None:
        self._key = hash_key

    def hash_of(self, number: str) -> str:
        """The same for every spelling of a number: separators and case do not count."""
        canonical = _COMPACT.sub("", number).upper() or number
        return "id:" + hmac.new(self._key, canonical.encode(), hashlib.sha256).hexdigest()[:8]

    def find(self, text: str) -> Iterator[Span]:
        """Spans in a text whose digits and letters are half-width; they may overlap."""
        for match in _CN_ID.finditer(text):
            yield self._span(PiiKind.ID_NUMBER, match.start(), match[0])
        for match in _SSN.finditer(text):
            yield self._span(PiiKind.SSN, match.start(), match[0])
        for pattern in (_HK_ID, _NINO):
            for match in pattern.finditer(text):
                yield self._span(PiiKind.ID_NUMBER, match.start(), match[0])
        for match in _CARD.finditer(text):
            digits = _COMPACT.sub("", match[0])
            if _IIN.fullmatch(digits) and luhn.is_valid(digits):
                yield self._span(PiiKind.CARD, match.start(), match[0])
        for match in _IBAN.finditer(text):
            found = _iban_at(match[0])
            if found:
                yield self._span(PiiKind.IBAN, match.start(), found)
        if _NAMING.search(text):
            for kind, pattern in _NAMED:
                for match in pattern.finditer(text):
                    number = match["number"].rstrip(" -")
                    if sum(c.isdigit() for c in number) >= 4:
                        yield self._span(kind, match.start("number"), number)

    def _span(self, kind: PiiKind, start: int, original: str) -> Span:
        return Span(start, start + len(original), kind, original, self.hash_of(original))


def is_resident_id(number: str) -> bool:
    """Whether an 18-character number has the checksum of a Chinese resident identity card."""
    return bool(ric.is_valid(number))


def _iban_at(text: str) -> str | None:
    """The longest valid IBAN at the start of a run of groups: the last groups may be the next word of the sentence."""
    while len(text) >= 15:
        if iban.is_valid(text):
            return text
        cut = text.rfind(" ")
        if cut < 0:
            return None
        text = text[:cut]
    return None
