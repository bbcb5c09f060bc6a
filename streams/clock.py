"""The batch clock: closes batches whose first turn has waited long enough, and sends what a dead clock left behind."""

from __future__ import annotations

import logging
from datetime import datetime

from sqlalchemy import Connection

from processors.batching import BatchLimits
from sinks.truth import turns
from sinks.truth.outbox import Outgoing
from streams.delivery import LEFT_BEHIND, Delivery
from streams.metrics import Metrics
from streams.stages.closing import close_batches, outgoing
from streams.ticking import for_ever

log = logging.getLogger("memriver.clock")

_CLAIM = 200
"""Conversations closed in one transaction; a bound on how long their rows stay locked."""


class BatchClock:
    """Any number of clocks may run: each claims rows that no other holds (SKIP LOCKED)."""

    name = "clock"

    def __init__(self, delivery: Delivery, limits: BatchLimits, metrics: Metrics, *, tick_seconds: float = 1.0) -> None:
        self._delivery = delivery
        self._limits = limits
        self._metrics = metrics
        self._tick = tick_seconds

    async def run(self) -> None:
        """Tick for ever; an error that is not transient ends the process, as in any stage."""
        await for_ever(self.name, self._once, self._delivery.fatal, self._delivery.watched(self.name))

    async def _once(self) -> float:
        await self._delivery.drain(self.name, older_than=LEFT_BEHIND)
        while await self.close_due() == _CLAIM:
            continue
        return self._tick

    async def close_due(self, *, everything: bool = False) -> int:
        """Close what is due (or all that waits); returns how many conversations were claimed."""
        claimed = 0

        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            nonlocal claimed
            before = now if everything else now - self._limits.max_age
            due = turns.lock_due(connection, before, _CLAIM, ahead=now + self._limits.max_age)
            claimed = len(due)
            cause = "end" if everything else "time"
            closed = close_batches(connection, due, self._limits, now, flush=due.keys(), flushed_by=cause)
            turns.save_conversations(connection, due.values())
            for batch in closed:
                self._metrics.batches.labels(batch.closed_by).inc()
            return [outgoing(batch) for batch in closed]

        await self._delivery.transact(self.name, work)
        return claimed
