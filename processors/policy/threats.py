"""Policy, threat room: is this text an instruction that tries to steer agents, hidden or encoded or plain?

The text is looked at as written and, only where something speaks for it, once more with the disguise taken off:
look-alike letters of other scripts, digits for letters, percent signs, letters spaced out, Base64. Patterns are data
(threats.yaml).
Character classes follow Unicode TR 36/39 (bidirectional controls, confusables) and the tag block U+E0000.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

import regex

from processors.policy.catalogue import Catalogue, PatternRule, rules_of

MAX_SCAN = 20_000
"""Characters that are scanned; a candidate is a sentence, and an evidence quote at most a turn."""

_ODD = regex.compile(r"[^\x20-\x7e\n\u3000-\u303f\u3400-\u9fff\uff00-\uffef‘’“”…—·]")
_HIDDEN = regex.compile(
    # tag characters that are not a sub-division flag, overrides before letters, invisible characters inside words
    r"(?<![\U0001F3F4\U000E0020-\U000E007F])[\U000E0000-\U000E007F]"
    r"|[\u202d\u202e][^\n\u202c]*\p{L}"
    r"|(?<=[\p{Latin}\p{Han}])[\u200b-\u200d\u2060-\u2064\u00ad\ufeff\u180e]+(?=[\p{Latin}\p{Han}])"
    r"|[\u200b\u200c\u200d\u2060-\u2064\ufeff]{3,}"
)
_INVISIBLE = regex.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\u00ad\ufeff\u180e\U000E0000-\U000E007F]")

# Letters of other scripts that look like Latin ones (a reviewed part of Unicode's confusables.txt).
_LOOKALIKE = dict(
    zip(
        "аЬеοіјӏорсуѕхһԁԛԝɡɑαβεγικνορτυωχηуѵкмтнвгдзпиƅьЬɴεϲϳ",
        "abeoijlopcysxhdqwgaabeyiknoptuwxnyvkmthbrgznubbbnecj",
        strict=True,
    )
)
_LOOKALIKE_TABLE = str.maketrans(_LOOKALIKE)
_MIXED = regex.compile(r"[\p{Latin}\p{Cyrillic}\p{Greek}]{4,}")
_LEET = str.maketrans("013456789@$€!|+¡£", "oieasgtbgaseiitil")
_LEET_WORD = regex.compile(
    r"(?<![^\s:,;.!?<>|(){}\[\]\"'`])(?=[a-z0-9@$€!|+']{0,20}[0-9@$€!|+][a-z0-9@$€!|+']{0,20}[a-z])"
    r"[a-z0-9@$€!|+']{4,40}(?![a-z0-9@$€+'])"
)
_LEET_SIGN = re.compile(r"[0-9@$€!|+]\S{0,12}[a-z]")
_SPACED = regex.compile(r"(?:\b[a-z]\b[^\w\n]{1,2}){5,}[a-z]\b")
_BROKEN = regex.compile(r"(?<=[a-z])[+*_.·^~]{1,2}(?=[a-z])")
_SQUASHED = regex.compile(
    r"(?:ignore|disregard|bypass|override|forget|reveal|show|disable)"
    r"(?:all|your|the|my|previous|prior|any|safety|system|hidden)+"
    r"(?:instruction|rule|guideline|restriction|prompt|polic|filter|safety|protocol|constraint|configuration|measure)"
)
_STRETCHED = regex.compile(r"([a-z])\1{2,}")
_ESCAPED = regex.compile(r"(?:\\[^\\\n]{1,2}){8,}")
_REVERSED = regex.compile(r"snoitcurtsni|tpmorp metsys|senilediug|snoitcirtser|selur (?:lla|ytefas|ruoy)")
_PERCENT = regex.compile(r"(?:%[0-9a-f]{2}[^%\s]{0,12}){2,}")
_ENTITY = regex.compile(r"&#x?[0-9a-f]{2,6};|\\u00[0-9a-f]{2}|\\x[0-9a-f]{2}")
_BASE64 = regex.compile(r"(?<![\w/+-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w/+])")
_LONG = re.compile(r"[!-~]{16}")
_URL = regex.compile(r"https?://|\bwww\.[\w-]+\.|\b[\w-]{2,}\.(?:com|net|org|xyz|top|info|ru|cn)/\S", regex.IGNORECASE)


def has_long_token(text: str) -> bool:
    """Whether 16 or more ASCII characters stand together: nothing shorter can be a key or a payload."""
    return _LONG.search(text) is not None


def has_url(text: str) -> bool:
    """Whether a link stands in the text."""
    return "." in text and _URL.search(text) is not None


class ThreatScanner:
    """Finds the kinds of threat in a text; stateless after construction."""

    def __init__(self) -> None:
        self._rules = rules_of("threats.yaml")

    def scan(self, text: str) -> tuple[str, ...]:
        """Kinds found, in the order of the rules, each once; empty for an ordinary text."""
        raw = text[:MAX_SCAN]
        found: dict[str, None] = {}
        if _ODD.search(raw) and _HIDDEN.search(raw):
            found["hidden_text"] = None
        plain = _normal(raw)
        found.update(dict.fromkeys(self._kinds(plain)))
        if not found:
            for view, kind in _undisguised(raw, plain):
                if kind is not None:
                    found[kind] = None
                elif view is not None:
                    found.update(dict.fromkeys(self._kinds(view)))
                if found:
                    break
        return tuple(found)

    def _kinds(self, plain: str) -> Iterator[str]:
        seen: set[str] = set()
        for rule in self._rules.possible(plain):
            if rule.kind not in seen and rule.hits(plain):
                seen.add(rule.kind)
                yield rule.kind


def normal_text(text: str) -> str:
    """The text as rules see it: NFKC, lower case, straight apostrophes, no invisible characters."""
    return _normal(text[:MAX_SCAN])


def rule_hits(rule: PatternRule, text: str) -> bool:
    """Whether one rule, with its word filter, fires on a text; what the rules' own examples are tested with."""
    plain = normal_text(text)
    return bool(Catalogue((rule,)).possible(plain)) and rule.hits(plain)


@lru_cache(maxsize=64)
def _normal(text: str) -> str:
    if text.isascii():
        return text.replace("_", " ").lower()
    folded = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).replace("’", "'").replace("‘", "'")
    return folded.replace("_", " ").lower()


def _undisguised(raw: str, plain: str) -> Iterator[tuple[str | None, str | None]]:
    """Other readings of the text: pairs of (text to look at, kind that is certain already)."""
    if not plain.isascii():
        mixed = [word for word in _MIXED.findall(plain) if _is_mixed(word)]
        bare = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
        view = bare.translate(_LOOKALIKE_TABLE)
        if view != plain:
            yield view, None
            yield view.translate(_LEET), None
        if len(mixed) >= 2 or any(len(word) >= 5 for word in mixed):
            yield None, "obfuscated"
    if _LEET_SIGN.search(plain) and _LEET_WORD.search(plain):
        yield plain.translate(_LEET), None
        yield plain.replace("1", "l").translate(_LEET), None
    if _SPACED.search(plain):
        yield None, "obfuscated" if _SQUASHED.search(regex.sub(r"[^a-z]", "", plain)) else None
    if _BROKEN.search(plain):
        yield _BROKEN.sub("", plain), None
    if _STRETCHED.search(plain):
        yield _STRETCHED.sub(r"\1", plain), None
    if "\\" in plain and _ESCAPED.search(plain):
        yield None, "obfuscated"
    if "%" in plain and _PERCENT.search(plain):
        yield _normal(unquote(plain)), None
    if ("&#" in plain or "\\" in plain) and len(_ENTITY.findall(plain)) >= 4:
        yield None, "encoded"
    if _REVERSED.search(plain):
        yield None, "encoded"
    for match in _BASE64.finditer(raw) if has_long_token(raw) else ():
        decoded = _decode(match[0])
        if decoded is not None:
            yield None, "encoded"


def _is_mixed(word: str) -> bool:
    """Latin letters together with look-alikes only; `SQLщик` and `βlocker` are words of their own."""
    foreign = [c for c in word if not ("a" <= c <= "z" or "à" <= c <= "ÿ")]
    inside = [c for c in word[1:] if c in foreign]
    return bool(inside) and len(foreign) < len(word) and all(c in _LOOKALIKE for c in foreign)


def _decode(token: str) -> str | None:
    """The text inside a Base64 token when it is readable prose (letters and at least one space), else None."""
    padded = token.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    if not decoded.isprintable() or (" " not in decoded and decoded.isascii()):
        return None
    letters = sum(c.isalpha() or c == " " for c in decoded)
    return decoded if letters >= 0.85 * len(decoded) else None
