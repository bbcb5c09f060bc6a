"""Policy, masking room: a found piece of personal data and how overlapping finds are settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import regex


class PiiKind(StrEnum):
    """Categories that can be masked; each can be switched off in `PolicySettings.mask_kinds`."""

    ID_NUMBER = "id_number"
    PASSPORT = "passport"
    SSN = "ssn"
    CARD = "card"
    IBAN = "iban"
    ACCOUNT = "account"
    PHONE = "phone"
    EMAIL = "email"
    IP_ADDRESS = "ip_address"
    SECRET = "secret"


IDENTITY_KINDS = frozenset(
    {PiiKind.ID_NUMBER, PiiKind.PASSPORT, PiiKind.SSN, PiiKind.CARD, PiiKind.IBAN, PiiKind.ACCOUNT}
)
"""Kinds that become a keyed hash: two mentions of one number stay equal, the number itself is gone."""

SECRET_MARK = "[secret]"

MASKED = regex.compile(
    r"id:[0-9a-f]{8}(?![0-9a-f])|\+?\d{0,4}\*{4}\d{2,4}|[A-Za-z0-9_%+-]?\*{3}@[A-Za-z0-9.-]+|\[secret\]|\[ip\]"
)
"""What masking writes; it is never masked again."""


@dataclass(frozen=True, slots=True)
class Span:
    """`text[start:end]` is `original` and is to be replaced by `mask`."""

    start: int
    end: int
    kind: PiiKind
    original: str
    mask: str


def settle(spans: Iterable[Span]) -> list[Span]:
    """Spans without overlap, left to right: the longer find wins, then the one found first."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start - s.end):
        if all(span.end <= other.start or span.start >= other.end for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda s: s.start)
