"""Sinks, Retry-After: how long the answer of an HTTP endpoint asks to wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that OpenAI's `retry-after-ms` or a Retry-After header asks for (RFC 9110 §10.2.3), or None.

    A date is measured against the answer's own Date header, so that no clock of ours takes part.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) and number >= 0 else None
