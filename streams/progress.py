"""Progress: whether a stage moves, as health and the watchdog look at it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """What health looks at: when the stage last finished something, and whether it has work."""

    handled: int = 0
    last_at: float = field(default_factory=time.monotonic)
    busy_since: float | None = None
    in_hand: int = 0

    def take(self) -> None:
        """One more group is in hand."""
        self.in_hand += 1
        self.busy_since = self.busy_since or time.monotonic()

    def finish(self, messages: int, groups: int = 1) -> None:
        """Groups that were taken are done; the clock starts anew for those behind them."""
        self.in_hand -= groups
        self.handled += messages
        self.last_at = time.monotonic()
        self.busy_since = self.last_at if self.in_hand else None

    def patience(self) -> None:
        """A server said "not now" and will be asked again: that is no standstill, and a new process could do no better."""
        if self.busy_since is not None:
            self.busy_since = time.monotonic()

    def drop(self) -> None:
        """What was in hand goes back to the broker."""
        self.in_hand, self.busy_since = 0, None
