"""HTTP API, changes: `memory_updated` as server-sent events, for those without a Kafka client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import orjson

from processors.access import Denied, OwnerRef, Principal, Scope, authorise_all
from processors.exceptions import TransientError
from recall import views
from recall.access import BadKey
from schemas import MemoryUpdated, digest

_QUEUE = 1_000
"""Events a slow reader may fall behind; then it is told so and must read the memories again."""
_HEARTBEAT_SECONDS = 15.0
_KEPT = 2_000
"""Events kept for those who come back after a broken connection: some seconds of the busiest hour, a few megabytes."""


class ChangeHub:
    """Passes events on to whoever listens now, and the last ones to who comes back with the id of one of them."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._queues: set[asyncio.Queue[MemoryUpdated | None]] = set()
        self._kept: deque[MemoryUpdated] = deque(maxlen=kept)

    def publish(self, event: MemoryUpdated) -> None:
        """To all; one that is full is dropped, and knows it by the None at its end."""
        self._kept.append(event)
        for queue in list(self._queues):
            if queue.qsize() >= _QUEUE:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def close(self) -> None:
        """End all streams. What comes next may come after a gap, so nobody can go on from what was before it."""
        self._kept.clear()
        for queue in list(self._queues):
            self._queues.discard(queue)
            queue.put_nowait(None)

    def listen(self, after: str | None = None) -> asyncio.Queue[MemoryUpdated | None]:
        """From now on; with the id of an event, from that one on. One that is not kept is a loss, said by a None."""
        queue: asyncio.Queue[MemoryUpdated | None] = asyncio.Queue()
        if after is not None:
            ids = [event.event_id for event in self._kept]
            if after not in ids:
                queue.put_nowait(None)
                return queue
            # Where it stands first: the log may have given it twice, and what came in between was not heard.
            for event in list(self._kept)[ids.index(after) + 1 :]:
                queue.put_nowait(event)
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
    after: str | None = None,
) -> AsyncIterator[bytes]:
    """The events of these owners, each judged when it goes out: a grant that was taken away ends the stream.

    `after` is the id of the last event that the listener had (`Last-Event-ID`); one too old to go on from is a loss.
    `owner_seq` counts an owner's events without gaps, so that a reader sees that it missed one.
    """
    queue = hub.listen(after)
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
            if all(event.memory.owner_key != digest(event.memory.tenant, owner.kind, owner.id) for owner in owners):
                # Somebody else's: no reason to ask the database about this listener.
                continue
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
