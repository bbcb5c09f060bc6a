"""Policy, masking room: replaces personal numbers, addresses and secrets in a text, and in several texts consistently.

`13800138000` → `138****8000`, `+44 20 7946 0958` → `+44****0958`, `anna@d.com` → `a***@d.com`, an identity, card or
account number → `id:` and 8 hex digits of its keyed hash, a secret → `[secret]`. Masking twice is masking once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex

from processors.policy.contact import find_addresses, find_emails, find_phones
from processors.policy.credentials import SecretFinder
from processors.policy.identity import IdentityFinder
from processors.policy.spans import IDENTITY_KINDS, MASKED, PiiKind, Span, settle

_FIVE_DIGITS = regex.compile(
    r"(?:\d[^\p{L}\d\n]{0,3}){5}|[一二三四五六七八九零〇幺两]{11}|[A-Za-z]\d{4}|:[0-9A-Fa-f]{0,4}:"
)
_MAX_PASSES = 8
"""Each pass hides what the one before uncovered; two are the rule, and a stream never loops for ever."""

_MIN_LITERAL = 6
"""Characters of an original that is replaced wherever it stands; shorter ones could be part of another word."""

# Full-width digits and signs, one for one, so that positions stay those of the original text.
_HALF_WIDTH = str.maketrans(
    {0xFF01 + i: 0x21 + i for i in range(94)} | {0x3000: " ", 0x2010: "-", 0x2011: "-", 0x2013: "-", 0xA0: " "}
)


@dataclass(frozen=True, slots=True)
class Masked:
    """A text after masking and the kinds that were masked, sorted."""

    text: str
    kinds: tuple[PiiKind, ...]


class Masker:
    """Masks the given kinds; `hash_key` keys the hashes of identity numbers."""

    def __init__(self, kinds: frozenset[PiiKind], hash_key: bytes) -> None:
        self._kinds = kinds
        self._identity = IdentityFinder(hash_key)
        self._secrets = SecretFinder()
        self._wants_identity = not IDENTITY_KINDS.isdisjoint(kinds)

    def mask(self, text: str, regions: Sequence[str]) -> Masked:
        """Masks one text, again and again until nothing is found: a mask can part what ran together before it."""
        kinds: set[PiiKind] = set()
        for _ in range(_MAX_PASSES):
            spans = self.find(text, regions)
            if not spans:
                break
            kinds.update(span.kind for span in spans)
            text = apply(text, spans)
        return Masked(text, tuple(sorted(kinds)))

    def find(self, text: str, regions: Sequence[str], *, expected: PiiKind | None = None) -> list[Span]:
        """Non-overlapping spans in order. `expected` is the kind that the whole text is, when a slot's name says so."""
        if not text:
            return []
        view = text.translate(_HALF_WIDTH) if not text.isascii() else text
        if len(view) != len(text):
            view = text
        found = [span for span in self._all(view, regions, expected) if span.kind in self._kinds]
        if not found:
            return []
        done = [(match.start(), match.end()) for match in MASKED.finditer(text)]
        free = [span for span in found if all(span.end <= start or span.start >= end for start, end in done)]
        return [Span(s.start, s.end, s.kind, text[s.start : s.end], s.mask) for s in settle(free)]

    def _all(self, view: str, regions: Sequence[str], expected: PiiKind | None) -> Iterator[Span]:
        if PiiKind.SECRET in self._kinds:
            yield from self._secrets.find(view)
        if "@" in view:
            yield from find_emails(view)
        if (
            expected in IDENTITY_KINDS
            and expected is not None
            and sum(c.isdigit() for c in view) >= 4
            and len(view) <= 40
        ):
            yield Span(0, len(view), expected, view, self._identity.hash_of(view))
            return
        if not _FIVE_DIGITS.search(view):
            return
        if self._wants_identity:
            yield from self._identity.find(view)
        if PiiKind.PHONE in self._kinds:
            yield from find_phones(view, regions, expected=expected is PiiKind.PHONE)
        if PiiKind.IP_ADDRESS in self._kinds:
            yield from find_addresses(view)


def apply(text: str, spans: Sequence[Span]) -> str:
    """The text with each span replaced."""
    parts: list[str] = []
    at = 0
    for span in spans:
        parts += [text[at : span.start], span.mask]
        at = span.end
    return "".join([*parts, text[at:]])


def apply_literals(text: str, spans: Sequence[Span]) -> str:
    """Replaces what was found in other fields and stands here too, where the words that gave it away are missing."""
    for span in spans:
        if len(span.original) >= _MIN_LITERAL and span.original in text:
            text = text.replace(span.original, span.mask)
    return text
