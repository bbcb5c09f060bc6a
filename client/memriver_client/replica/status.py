"""Replica, status: how far behind it is and what it has seen, for health checks and dashboards."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counts:
    """What became of the records since the start of this process."""

    applied: int = 0
    removed: int = 0
    duplicate: int = 0
    late: int = 0
    conflict: int = 0
    outside: int = 0
    doubtful: int = 0
    undecodable: int = 0
    resyncs: int = 0
    reconnects: int = 0
    log_resets: int = 0
    """The position had fallen out of the log: everything was read again."""


@dataclass(frozen=True)
class Status:
    """A replica at one moment.

    `live`: everything that was in the log at the start has been read. `lag`: records known to be in the log and not read.
    `silent_for`: seconds since the broker last answered. `trouble`: what keeps it from working, "" when nothing does.
    """

    running: bool
    live: bool
    memories: int
    partitions: int
    lag: int
    silent_for: float
    open_gaps: int
    callbacks_failed: int
    trouble: str
    counts: Counts = field(default_factory=Counts)

    def healthy(self, *, max_lag: int = 1000, max_silence: float = 30.0) -> bool:
        """Whether an agent may rely on it: running, caught up, in touch with the broker, and nothing in the way."""
        in_time = self.lag <= max_lag and self.silent_for <= max_silence
        return self.running and self.live and in_time and not self.trouble
