"""Replica, HTTP source: truth asked through the API, after a gap, at a new start, and when contents conflict."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from memriver_client.async_client import AsyncMemriver
from memriver_client.exceptions import Forbidden, NotFound
from memriver_client.model import DELETED, Memory
from memriver_client.owners import Owner
from memriver_client.replica.listeners import Conflict

_OPEN = ("active", "superseded", "retracted", "expired", "demoted", "archived")
_FOR_REVIEWERS = ("pending", "quarantined")


class HttpSource:
    """`Source` over an `AsyncMemriver`, which stays the caller's to close. Its key must be of the replica's tenant."""

    def __init__(self, client: AsyncMemriver) -> None:
        self._client = client

    async def memories_of(self, tenant: str, owner: Owner) -> Sequence[Memory]:
        """All that the key may read; raises MemriverError."""
        try:
            found = await self._list(tenant, owner, (*_OPEN, *_FOR_REVIEWERS))
        except Forbidden:
            # What waits for a decision is listed for reviewers only.
            found = await self._list(tenant, owner, _OPEN)
        return found

    async def deleted_at(self, memory_id: str) -> int | None:
        """From the history, which a deleted memory keeps, without content. Raises MemriverError."""
        try:
            history = await self._client.history(memory_id)
        except NotFound:
            return None
        last = max(history.versions, key=lambda version: version.version, default=None)
        return last.version if last is not None and last.status == DELETED else None

    async def report_conflict(self, conflict: Conflict) -> None:
        """Which memory and version; neither content goes with it. Raises MemriverError."""
        await self._client.report_conflict(
            conflict.memory_id, conflict.version, "a replica received two contents for the same version"
        )

    async def _list(self, tenant: str, owner: Owner, statuses: Sequence[str]) -> list[Memory]:
        listed = self._client.memories.list(owner.id, owner_kind=owner.kind, statuses=statuses)
        # The API leaves the tenant out, since the key decides about it; the replica's scope asks for it again.
        return [Memory.from_view(memory.raw, tenant) async for memory in listed]


def http_snapshot(
    client: AsyncMemriver, tenant: str, owners: Iterable[str | Owner]
) -> Callable[[], AsyncIterator[Memory]]:
    """`Replica(snapshot=…)` for these owners: truth is read instead of the log from its beginning."""
    source = HttpSource(client)
    named = [owner if isinstance(owner, Owner) else Owner("user", owner) for owner in owners]

    async def read() -> AsyncIterator[Memory]:
        for owner in named:
            for memory in await source.memories_of(tenant, owner):
                yield memory

    return read
