"""Sweeping: a timer that sends what was committed for this process's partitions when nobody was looking any more."""

from __future__ import annotations

from streams.delivery import LEFT_BEHIND, Delivery
from streams.ticking import for_ever

_TICK_SECONDS = 15.0


class Sweep:
    """Beside the agents of any stage; what it sends twice, whoever reads it knows."""

    name = "sweep"

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    async def run(self) -> None:
        """Tick for ever; an error that is not transient ends the process."""
        await for_ever(self.name, self._once, self._delivery.fatal)

    async def _once(self) -> float:
        await self._delivery.sweep(LEFT_BEHIND)
        return _TICK_SECONDS
