"""Streams, model side: a circuit breaker, so that a provider that is down is not asked once per waiting batch."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from processors.exceptions import TransientError


class BreakerState(StrEnum):
    """Closed: calls pass. Open: none pass. Half-open: one passes and decides."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerOpen(TransientError):
    """Refused without asking the provider; `retry_after` is when the next probe may pass."""


class Breaker:
    """Opens after `threshold` failures in a row; each failed probe doubles the cooldown up to `max_cooldown` (seconds).

    `clock` is monotonic seconds. For one event loop: nothing here awaits, so no lock is needed.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        threshold: int = 5,
        cooldown: float = 15.0,
        max_cooldown: float = 300.0,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._cooldown = cooldown
        self._max_cooldown = max_cooldown
        self._failures = 0
        self._wait = cooldown
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """The state now."""
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._clock() < self._open_until else BreakerState.HALF_OPEN

    def admit(self) -> None:
        """Take a permit; each must be given back by `success`, `failure` or `release`.

        Raises:
            BreakerOpen: not now.
        """
        if self._open_until is None:
            return
        left = self._open_until - self._clock()
        if left > 0:
            raise BreakerOpen("the model's breaker is open", retry_after=left, part="model")
        if self._probing:
            raise BreakerOpen("the model's breaker waits for its probe", retry_after=1.0, part="model")
        self._probing = True

    def success(self) -> None:
        """The provider answered; everything is forgiven."""
        self._failures = 0
        self._wait = self._cooldown
        self._open_until = None
        self._probing = False

    def failure(self, retry_after: float | None = None) -> None:
        """The provider did not answer, or asked for quiet during `retry_after` seconds."""
        self._failures += 1
        if self._open_until is not None and not self._probing:
            # A call that was on its way when the breaker opened says nothing new.
            return
        if self._probing:
            self._wait = min(self._wait * 2, self._max_cooldown)
        if self._probing or self._failures >= self._threshold:
            self._open_until = self._clock() + max(self._wait, retry_after or 0.0)
        self._probing = False

    def release(self) -> None:
        """The call was abandoned and says nothing about the provider."""
        self._probing = False
