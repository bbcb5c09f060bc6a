"""Client, retries: when a call is sent again and how long before; the clock and chance are the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

AGAIN = frozenset({429, 502, 503, 504})
"""Statuses that say "later". Every call may be repeated: the API knows writes by their `Idempotency-Key`."""


@dataclass(frozen=True)
class Retry:
    """Seconds. `attempts` counts the first one too. A longer `Retry-After` than `patience` is not waited for but raised."""

    attempts: int = 4
    first: float = 0.2
    longest: float = 10.0
    patience: float = 60.0

    def pause(self, attempt: int, retry_after: float | None, chance: float) -> float | None:
        """Seconds before the next attempt after the `attempt`-th (from 1); None: give up. `chance` in [0, 1).

        Half of the exponential step is fixed and half left to chance, so that many agents do not come back together; what
        the server asked for is never undercut.
        """
        if attempt >= self.attempts or (retry_after is not None and retry_after > self.patience):
            return None
        step: float = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return (step / 2 if retry_after is None else retry_after) + step / 2 * chance


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that `Retry-After` asks for, as a number or a date (RFC 9110, 10.2.3); None: it does not say."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, (at - now).total_seconds()) if at.tzinfo is not None else None
