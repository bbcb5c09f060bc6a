"""The expiry clock: memories whose time is over become commands to the resolver, which stays their only writer (SPEC L2)."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from schemas import Command, CommandKind, Memory, new_id
from sinks.truth import memories, outbox
from sinks.truth.clock import not_ahead
from sinks.truth.outbox import Outgoing
from streams.delivery import LEFT_BEHIND, Delivery
from streams.ticking import for_ever

_CLAIM = 200
INBOX_KEPT = timedelta(days=45)
"""Longer than any topic of the stages keeps a message, its open segment included, so nothing that can come again is forgotten."""


class ExpiryClock:
    """Any number may run: a command's id is derived from the memory and its expiry, so it takes effect once."""

    name = "expiry"

    def __init__(self, delivery: Delivery, *, tick_seconds: float = 30.0) -> None:
        self._delivery = delivery
        self._tick = tick_seconds

    async def run(self) -> None:
        """Tick for ever; an error that is not transient ends the process."""
        await for_ever(self.name, self._once, self._delivery.fatal, self._delivery.watched(self.name))

    async def _once(self) -> float:
        await self._delivery.drain(self.name, older_than=LEFT_BEHIND)
        await self.tick()
        return self._tick

    async def tick(self) -> None:
        """End what is over, and forget what no broker can redeliver."""
        await self.sweep()
        await self._delivery.transact(self.name, _forget)

    async def sweep(self) -> int:
        """Send a command for what is over now; returns how many."""
        count = 0

        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            nonlocal count
            over = memories.expired(connection, not_ahead(connection, now), _CLAIM)
            count = len(over)
            return [_outgoing(memory) for memory in over]

        await self._delivery.transact(self.name, work)
        return count


def _forget(connection: Connection, now: datetime) -> list[Outgoing]:
    outbox.forget_older_than(connection, not_ahead(connection, now) - INBOX_KEPT)
    return []


def _outgoing(memory: Memory) -> Outgoing:
    at = memory.expires_at
    assert at is not None  # the query asks for it
    command = Command(
        command_id=new_id("expire", memory.id, at.isoformat()),
        kind=CommandKind.EXPIRE,
        tenant=memory.tenant,
        owner_kind=memory.owner_kind,
        owner=memory.owner,
        issued_by="expiry",
        issued_at=at,
        reason="its time is over",
        memory_id=memory.id,
    )
    return Outgoing("commands", command.owner_key, command.owner_key, command.to_bytes())
