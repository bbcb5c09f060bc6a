"""The exception tree. The class carries the policy: what the delivery loop does when it meets one.

MemriverError
├── TransientError     retried in place with backoff; nothing is acknowledged meanwhile
├── PoisonError        this one message goes to the dead letters, the stage goes on
├── ConflictError      somebody wrote first: re-read, re-resolve, write again
└── FatalError         the process ends non-zero; its supervisor starts it anew
"""

from __future__ import annotations

from enum import StrEnum


class Outage(StrEnum):
    """What keeps a server from doing its part, in the word that `/readyz` says. `sinks.outages` has who says it how."""

    AWAY = "away"
    BUSY = "busy"
    FULL = "disk_full"
    READ_ONLY = "read_only"
    NO_CONNECTION = "no_connection_free"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    NOT_ENOUGH_REPLICAS = "not_enough_replicas"
    LIMITING = "limiting"
    REFUSED = "refused"


class MemriverError(Exception):
    """Root of everything that memriver raises on purpose."""


class TransientError(MemriverError):
    """Trying again may work: a server is away, a lock was busy. `retry_after` is in seconds, None for the default backoff.

    `part` is which one (database, vectors, broker, model, embedder), `outage` what is the matter with it.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, part: str = "server", outage: Outage = Outage.AWAY
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.part = part
        self.outage = outage


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
