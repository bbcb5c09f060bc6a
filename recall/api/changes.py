"""HTTP API, changes: `memory_updated` as server-sent events, for those without a Kafka client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import orjson

from processors.access import Denied, OwnerRef, Principal, Scope, authorise_all
from processors.exceptions import TransientError
from recall import views
from recall.access import BadKey
from schemas import MemoryUpdated

_QUEUE = 1_000
"""Events a slow reader may fall behind; then it is told so and must read the memories again."""
_HEARTBEAT_SECONDS = 15.0


class ChangeHub:
    """Passes events on to whoever listens now."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[MemoryUpdated | None]] = set()

    def publish(self, event: MemoryUpdated) -> None:
        """To all; one that is full is dropped, and knows it by the None at its end."""
        for queue in list(self._queues):
            if queue.qsize() >= _QUEUE:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def close(self) -> None:
        """End all streams."""
        for queue in list(self._queues):
            self._queues.discard(queue)
            queue.put_nowait(None)

    def listen(self) -> asyncio.Queue[MemoryUpdated | None]:
        """From now on."""
        queue: asyncio.Queue[MemoryUpdated | None] = asyncio.Queue()
        self._queues.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[MemoryUpdated | None]) -> None:
        """No more."""
        self._queues.discard(queue)

    @property
    def listeners(self) -> int:
        """How many there are."""
        return len(self._queues)


async def stream(
    hub: ChangeHub,
    who: Callable[[], Principal],
    owners: Sequence[OwnerRef],
    namespaces: Sequence[str],
    now: Callable[[], datetime],
) -> AsyncIterator[bytes]:
    """The events of these owners, each judged when it goes out: a grant that was taken away ends the stream.

    `owner_seq` counts an owner's events without gaps, so that a reader sees that it missed one.
    """
    queue = hub.listen()
    try:
        yield b": listening\n\n"
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _HEARTBEAT_SECONDS)
            except TimeoutError:
                event = None
                yield b": still here\n\n"
                if not await _still(who, owners, namespaces, now):
                    return
                continue
            if event is None:
                yield b'event: lost\ndata: {"detail":"fell behind or closing; read the memories again"}\n\n'
                return
            try:
                principal = await asyncio.to_thread(who)
                reaches = authorise_all(principal, Scope.READ, owners, now(), namespaces)
            except (BadKey, Denied, TransientError):
                yield b'event: closed\ndata: {"detail":"no longer granted"}\n\n'
                return
            if any(reach.covers(event.memory) for reach in reaches):
                data = orjson.dumps(views.event_view(event))
                yield b"id: " + event.event_id.encode() + b"\nevent: memory_updated\ndata: " + data + b"\n\n"
    finally:
        hub.leave(queue)


async def _still(
    who: Callable[[], Principal],
    owners: Sequence[OwnerRef],
    namespaces: Sequence[str],
    now: Callable[[], datetime],
) -> bool:
    try:
        principal = await asyncio.to_thread(who)
        authorise_all(principal, Scope.READ, owners, now(), namespaces)
    except (BadKey, Denied):
        return False
    except TransientError:
        return True
    return True
