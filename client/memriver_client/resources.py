"""Client, resources: turns and memories, hung below both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from memriver_client import calls, results
from memriver_client.calls import Call
from memriver_client.model import Memory

T = TypeVar("T")


class Send(Protocol):
    """Sends a call and gives its result."""

    def __call__(self, call: Call[T], /) -> T: ...


class AsyncSend(Protocol):
    """The same, awaited."""

    async def __call__(self, call: Call[T], /) -> T: ...


class Turns:
    """Turns of conversations."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def send(
        self,
        *,
        conversation_id: str,
        turn_id: str,
        user_id: str,
        role: str,
        text: str,
        sent_at: datetime,
        timezone: str = "UTC",
        **more: Any,
    ) -> results.TurnStatus:
        """Publish one turn; accepted is on the log, not yet read. `more`: other fields of a turn, such as `agent_id`, `group`."""
        turn = {
            "conversation_id": conversation_id,
            "turn_id": turn_id,
            "user_id": user_id,
            "role": role,
            "text": text,
            "sent_at": sent_at,
            "timezone": timezone,
            **more,
        }
        return self._send(calls.send_turn(turn))

    def status(self, conversation_id: str, turn_id: str) -> results.TurnStatus:
        """What became of a turn. Raises NotFound until it has come through."""
        return self._send(calls.turn_status(conversation_id, turn_id))


class Memories:
    """Memories by id. Every write names the version that was read and raises VersionConflict when that has passed."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def get(self, memory_id: str) -> Memory:
        """The present version. Raises NotFound."""
        return self._send(calls.get_memory(memory_id))

    def page(
        self,
        owner: str,
        *,
        owner_kind: str = "user",
        namespaces: Sequence[str] = (),
        statuses: Sequence[str] = (),
        attribute: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> results.Page:
        """One page of an owner's memories; active ones unless `statuses` says otherwise."""
        return self._send(
            calls.list_memories(
                owner,
                statuses=statuses,
                owner_kind=owner_kind,
                namespace=list(namespaces),
                attribute=attribute,
                cursor=cursor,
                limit=limit,
            )
        )

    def list(
        self, owner: str, *, owner_kind: str = "user", namespaces: Sequence[str] = (), statuses: Sequence[str] = ()
    ) -> Iterator[Memory]:
        """All of an owner's memories, page by page."""
        cursor: str | None = None
        while True:
            page = self.page(
                owner, owner_kind=owner_kind, namespaces=namespaces, statuses=statuses, cursor=cursor, limit=200
            )
            yield from page.memories
            cursor = page.next_cursor
            if cursor is None:
                return

    def edit(
        self,
        memory_id: str,
        version: int,
        *,
        text: str | None = None,
        value: str | None = None,
        source: str | None = None,
        quote: str | None = None,
        reason: str | None = None,
    ) -> results.Accepted:
        """New text, new value, or both, over that version."""
        return self._send(
            calls.edit_memory(memory_id, version, text=text, value=value, source=source, quote=quote, reason=reason)
        )

    def replace(
        self,
        memory_id: str,
        version: int,
        *,
        text: str,
        value: str,
        source: str | None = None,
        quote: str | None = None,
        reason: str | None = None,
    ) -> results.Accepted:
        """The whole content anew, over that version."""
        return self._send(
            calls.replace_memory(memory_id, version, text=text, value=value, source=source, quote=quote, reason=reason)
        )

    def delete(self, memory_id: str, version: int) -> results.Accepted:
        """Delete it: the content goes everywhere."""
        return self._send(calls.delete_memory(memory_id, version))

    def confirm(self, memory_id: str, version: int) -> results.Accepted:
        """Still true."""
        return self._send(calls.confirm_memory(memory_id, version))

    def restore(self, memory_id: str, version: int, to: int, *, reason: str | None = None) -> results.Accepted:
        """Back to the content of version `to`."""
        return self._send(calls.restore_memory(memory_id, version, to, reason=reason))


class AsyncTurns:
    """Turns of conversations."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def send(
        self,
        *,
        conversation_id: str,
        turn_id: str,
        user_id: str,
        role: str,
        text: str,
        sent_at: datetime,
        timezone: str = "UTC",
        **more: Any,
    ) -> results.TurnStatus:
        """Publish one turn; accepted is on the log, not yet read. `more`: other fields of a turn, such as `agent_id`, `group`."""
        turn = {
            "conversation_id": conversation_id,
            "turn_id": turn_id,
            "user_id": user_id,
            "role": role,
            "text": text,
            "sent_at": sent_at,
            "timezone": timezone,
            **more,
        }
        return await self._send(calls.send_turn(turn))

    async def status(self, conversation_id: str, turn_id: str) -> results.TurnStatus:
        """What became of a turn. Raises NotFound until it has come through."""
        return await self._send(calls.turn_status(conversation_id, turn_id))


class AsyncMemories:
    """Memories by id. Every write names the version that was read and raises VersionConflict when that has passed."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def get(self, memory_id: str) -> Memory:
        """The present version. Raises NotFound."""
        return await self._send(calls.get_memory(memory_id))

    async def page(
        self,
        owner: str,
        *,
        owner_kind: str = "user",
        namespaces: Sequence[str] = (),
        statuses: Sequence[str] = (),
        attribute: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> results.Page:
        """One page of an owner's memories; active ones unless `statuses` says otherwise."""
        return await self._send(
            calls.list_memories(
                owner,
                statuses=statuses,
                owner_kind=owner_kind,
                namespace=list(namespaces),
                attribute=attribute,
                cursor=cursor,
                limit=limit,
            )
        )

    async def list(
        self, owner: str, *, owner_kind: str = "user", namespaces: Sequence[str] = (), statuses: Sequence[str] = ()
    ) -> AsyncIterator[Memory]:
        """All of an owner's memories, page by page."""
        cursor: str | None = None
        while True:
            page = await self.page(
                owner, owner_kind=owner_kind, namespaces=namespaces, statuses=statuses, cursor=cursor, limit=200
            )
            for memory in page.memories:
                yield memory
            cursor = page.next_cursor
            if cursor is None:
                return

    async def edit(
        self,
        memory_id: str,
        version: int,
        *,
        text: str | None = None,
        value: str | None = None,
        source: str | None = None,
        quote: str | None = None,
        reason: str | None = None,
    ) -> results.Accepted:
        """New text, new value, or both, over that version."""
        return await self._send(
            calls.edit_memory(memory_id, version, text=text, value=value, source=source, quote=quote, reason=reason)
        )

    async def replace(
        self,
        memory_id: str,
        version: int,
        *,
        text: str,
        value: str,
        source: str | None = None,
        quote: str | None = None,
        reason: str | None = None,
    ) -> results.Accepted:
        """The whole content anew, over that version."""
        return await self._send(
            calls.replace_memory(memory_id, version, text=text, value=value, source=source, quote=quote, reason=reason)
        )

    async def delete(self, memory_id: str, version: int) -> results.Accepted:
        """Delete it: the content goes everywhere."""
        return await self._send(calls.delete_memory(memory_id, version))

    async def confirm(self, memory_id: str, version: int) -> results.Accepted:
        """Still true."""
        return await self._send(calls.confirm_memory(memory_id, version))

    async def restore(self, memory_id: str, version: int, to: int, *, reason: str | None = None) -> results.Accepted:
        """Back to the content of version `to`."""
        return await self._send(calls.restore_memory(memory_id, version, to, reason=reason))
