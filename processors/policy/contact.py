"""Policy, masking room: telephone numbers, mail addresses and network addresses.

Numbers are judged by phonenumbers (Google's libphonenumber) in the regions that the speaker's time zone and language
suggest; next to a word such as "phone" or "电话" any plausible run of digits counts, since people mistype.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files

import phonenumbers
import regex

from processors.policy.spans import PiiKind, Span

_EMAIL = regex.compile(
    r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_%+-]+(?:\.[A-Za-z0-9_%+-]+)*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}(?![A-Za-z0-9_@])"
)
_CN_MOBILE = regex.compile(r"(?<![\d.*-])(?:\(?(?:\+|00)?86\)?[ -]?)?(1[3-9]\d)[ -]?(\d{4})[ -]?(\d{4})(?![\d*]|-\d)")
_RUN = regex.compile(
    r"(?<![A-Za-z0-9_.*+/-])(?:\+|00)?[(（]?\d(?:[ .\-()（）/]{0,3}\d){6,15}(?:\s?(?:x|ext\.?|分机号?)\s?\d{1,6})?(?![\d*])"
)
_SPOKEN = regex.compile(r"[一二三四五六七八九零〇幺两]{11}(?![一二三四五六七八九零〇幺两十百千万亿])")
_SPOKEN_DIGITS = str.maketrans("零〇幺一二两三四五六七八九", "0011223456789")
_DATE = regex.compile(
    r"(?:19|20)\d\d[-./ ]\d{1,2}[-./ ]\d{1,2}(?:[ T].*)?|\d{1,2}[-./]\d{1,2}[-./](?:19|20)\d\d.*"
    r"|(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])\d{0,6}"
    r"|\d{1,3}(?:\.\d{1,3}){3}|\d+\.\d+|(?:19|20)\d\d ?- ?(?:19|20)\d\d"
)
_PHONE_WORD = regex.compile(
    r"(?a)电话|手机|号码|联系|致电|拨打|传真|座机|热线|微信|短信"
    r"|(?i:phone|mobile|\bcell|\btel\b|telephone|\bcall|\bdial|\bfax|whatsapp|\btext (?:me|us|him|her)|\bsms"
    r"|contact|\breach|\bdesk\b|\boffice\b|messages? to|answering|registered|\bring\b|hotline|\bm:|\bt:|\bp:)"
)
_OTHER_NUMBER = regex.compile(
    r"(?:订单|单号|工单|编号|流水|运单|快递|版本|工号|学号|房间|会议|群号|qq|(?i:order|ticket|case|invoice|tracking|sku|isbn|issn|version|commit|build|issue|serial"
    r"|booking|reference|ref|room|zip|meeting|flight|model|doi|population|amount|total))"
    r"\W{0,3}(?i:号码|号|no\.?|number|num|#|id)?\W{0,3}(?:是|为|(?i:is|was))?\W{0,3}$|[¥$€£￥]\s*$"
)
_AMOUNT_AFTER = regex.compile(
    r"\s*(?:元|块|美元|人|个|%|％|公里|米|字节|次|(?i:usd|dollars|euros|km|kb|mb|people|users|bytes|ms)\b)"
)
_IP = regex.compile(
    r"(?<![A-Za-z0-9_.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{0,4}){3,7})(?![A-Za-z0-9_:]|\.\d)"
)
_BEFORE = 32
_EXTENSION = regex.compile(r"\s?(?:x|ext\.?|分机号?).*$")
_DIGIT = regex.compile(r"\d")


@lru_cache(maxsize=1)
def _zone_regions() -> dict[str, str]:
    """IANA zone → ISO 3166 region, from the tz database's own zone.tab."""
    table = files("tzdata").joinpath("zoneinfo/zone.tab").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines() if line and not line.startswith("#"))
    return {row[2]: row[0] for row in rows}


def regions_of(timezone: str | None, language: str | None, default: str) -> tuple[str, ...]:
    """Regions in which a number without a country code may be meant, likeliest first."""
    found = [_zone_regions().get(timezone or "")]
    if language and language.startswith("zh"):
        found.append("CN")
    elif language and language.startswith("en"):
        found.append("US")
    found.append(default)
    return tuple(dict.fromkeys(region for region in found if region))


def find_emails(text: str) -> Iterator[Span]:
    """`anna@d.com` → `a***@d.com`; a one-letter name is hidden altogether."""
    for match in _EMAIL.finditer(text):
        local, _, domain = match[0].rpartition("@")
        yield Span(
            match.start(), match.end(), PiiKind.EMAIL, match[0], f"{local[0] if len(local) > 1 else ''}***@{domain}"
        )


def find_addresses(text: str) -> Iterator[Span]:
    """Public and private IP addresses, version 4 and 6."""
    for match in _IP.finditer(text):
        try:
            ipaddress.ip_address(match[0])
        except ValueError:
            continue
        yield Span(match.start(), match.end(), PiiKind.IP_ADDRESS, match[0], "[ip]")


def find_phones(text: str, regions: Sequence[str], *, expected: bool = False) -> Iterator[Span]:
    """Telephone numbers. `expected`: the text is the value of a telephone slot, so any plausible number is one."""
    for match in _CN_MOBILE.finditer(text):
        if not _OTHER_NUMBER.search(text[max(0, match.start() - _BEFORE) : match.start()]):
            yield Span(match.start(), match.end(), PiiKind.PHONE, match[0], f"{match[1]}****{match[3]}")
    for match in _SPOKEN.finditer(text):
        digits = match[0].translate(_SPOKEN_DIGITS)
        if digits[0] == "1":
            yield Span(match.start(), match.end(), PiiKind.PHONE, match[0], f"{digits[:3]}****{digits[-4:]}")
    for match in _RUN.finditer(text):
        before = text[max(0, match.start() - _BEFORE) : match.start()]
        if (
            _DATE.fullmatch(match[0].strip("() "))
            or _OTHER_NUMBER.search(before)
            or _AMOUNT_AFTER.match(text, match.end())
        ):
            continue
        number = _parsed(match[0], regions)
        named = (
            expected
            or _PHONE_WORD.search(before)
            or _PHONE_WORD.match(text[match.end() : match.end() + 8].lstrip(" -,\\"))
        )
        if number is not None or named:
            yield Span(match.start(), match.end(), PiiKind.PHONE, match[0], _mask(match[0], number))


def _parsed(run: str, regions: Sequence[str]) -> phonenumbers.PhoneNumber | None:
    """The number when it is valid in one of the regions (or anywhere, with a country code)."""
    for region in regions:
        try:
            number = phonenumbers.parse(run, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_valid_number(number):
            return number
    return None


def _mask(run: str, number: phonenumbers.PhoneNumber | None) -> str:
    """Country code when it was said, four stars, the last digits: four of a long number, two of a short one."""
    digits = "".join(_DIGIT.findall(_EXTENSION.sub("", run)))
    tail = digits[-4:] if len(digits) >= 9 else digits[-2:]
    said = run.lstrip("(").startswith(("+", "00"))
    return f"+{number.country_code}****{tail}" if said and number is not None else f"****{tail}"
