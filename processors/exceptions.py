"""The exception tree. The class carries the policy: what the delivery loop does when it meets one.

MemriverError
├── TransientError     retried in place with backoff; nothing is acknowledged meanwhile
├── PoisonError        this one message goes to the dead letters, the stage goes on
├── ConflictError      somebody wrote first: re-read, re-resolve, write again
└── FatalError         the process ends non-zero; its supervisor starts it anew
"""

from __future__ import annotations


class MemriverError(Exception):
    """Root of everything that memriver raises on purpose."""


class TransientError(MemriverError):
    """Trying again may work: a server is away, a lock was busy. `retry_after` is in seconds, None for the default backoff."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PoisonError(MemriverError):
    """The message itself is bad. `reason` is a short code for counters; the text holds no personal content."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ConflictError(MemriverError):
    """What was read is no longer so."""


class FatalError(MemriverError):
    """Going on would lose or corrupt something."""
