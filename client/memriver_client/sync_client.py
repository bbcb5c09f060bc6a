"""Client, sync client: the API's verbs for programs without an event loop."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TypeVar

import httpx

from memriver_client import calls, exchange, results
from memriver_client.calls import Call
from memriver_client.exceptions import ApiError, ConnectionFailed, FeedLost
from memriver_client.feed import FeedReader
from memriver_client.model import MemoryUpdated
from memriver_client.owners import Owner
from memriver_client.resources import Memories, Turns
from memriver_client.retries import Retry

T = TypeVar("T")


class Memriver:
    """One connection pool to one memriver, with one API key. Use as a context manager, or close it.

    Calls are repeated on 429, 502, 503, 504 and broken connections, after what `Retry-After` asks for plus a random part;
    writes carry an `Idempotency-Key`, so that a repetition has no second effect. Errors: see `exceptions`.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        timeout: float = 10.0,
        retry: Retry | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        new_key: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """`timeout` in seconds, for each attempt. `transport`: httpx's, for proxies and tests."""
        self._http = httpx.Client(
            base_url=base_url, headers=exchange.headers(api_key), timeout=timeout, transport=transport
        )
        self._retry = retry or Retry()
        self._sleep = sleep
        self._chance = chance
        self._new_key = new_key
        self.turns = Turns(self._send)
        self.memories = Memories(self._send)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Memriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def remember(
        self,
        owner: str,
        text: str,
        *,
        owner_kind: str = "user",
        attribute: str | None = None,
        value: str | None = None,
        source: str | None = None,
        quote: str | None = None,
        event_time: datetime | None = None,
        ttl_days: int | None = None,
        timezone: str | None = None,
        memory_id: str | None = None,
        expected_version: int | None = None,
    ) -> results.Accepted:
        """Keep this. With `memory_id` and `expected_version` it replaces that memory; a stale version raises VersionConflict."""
        return self._send(
            calls.remember(
                owner,
                text,
                owner_kind=owner_kind,
                attribute=attribute,
                value=value,
                source=source,
                quote=quote,
                event_time=event_time,
                ttl_days=ttl_days,
                timezone=timezone,
                memory_id=memory_id,
                expected_version=expected_version,
            )
        )

    def recall(
        self,
        owner: str,
        query: str,
        *,
        owner_kind: str = "user",
        shared: Sequence[Owner] = (),
        namespaces: Sequence[str] = (),
        types: Sequence[str] = (),
        limit: int | None = None,
        conversation_id: str | None = None,
        agent_id: str | None = None,
        timezone: str | None = None,
        explain: bool = False,
    ) -> results.Recalled:
        """What is relevant to the question, best first; empty with a `note` when nothing is."""
        return self._send(
            calls.recall(
                owner,
                query,
                owner_kind=owner_kind,
                shared=[{"owner_kind": kind, "owner": name} for kind, name in shared],
                namespaces=list(namespaces),
                types=list(types),
                limit=limit,
                conversation_id=conversation_id,
                agent_id=agent_id,
                timezone=timezone,
                explain=explain or None,
            )
        )

    def build_context(
        self,
        owner: str,
        query: str,
        *,
        owner_kind: str = "user",
        shared: Sequence[Owner] = (),
        namespaces: Sequence[str] = (),
        limit: int | None = None,
        conversation_id: str | None = None,
        agent_id: str | None = None,
        timezone: str | None = None,
        budget_tokens: int | None = None,
        language: str | None = None,
    ) -> results.Context:
        """Text for the prompt within `budget_tokens`, with numbered citations."""
        return self._send(
            calls.build_context(
                owner,
                query,
                owner_kind=owner_kind,
                shared=[{"owner_kind": kind, "owner": name} for kind, name in shared],
                namespaces=list(namespaces),
                limit=limit,
                conversation_id=conversation_id,
                agent_id=agent_id,
                timezone=timezone,
                budget_tokens=budget_tokens,
                language=language,
            )
        )

    def forget(
        self,
        owner: str,
        *,
        owner_kind: str = "user",
        memory_id: str | None = None,
        attribute: str | None = None,
        mode: str | None = None,
        reason: str | None = None,
    ) -> results.Accepted:
        """Forget one memory or all of one attribute: `mode` "forget" (traceable, the default) or "delete" (content goes)."""
        return self._send(
            calls.forget(
                owner, owner_kind=owner_kind, memory_id=memory_id, attribute=attribute, mode=mode, reason=reason
            )
        )

    def summarize(self, conversation_id: str) -> results.Summary:
        """The summary of a conversation."""
        return self._send(calls.summarize(conversation_id))

    def explain(self, memory_id: str) -> results.Explanation:
        """Where a memory comes from: turns, policy, versions, readers."""
        return self._send(calls.explain(memory_id))

    def history(self, memory_id: str) -> results.History:
        """Every version; also of a deleted memory, without its content."""
        return self._send(calls.history(memory_id))

    def feedback(
        self,
        owner: str,
        kind: str,
        *,
        owner_kind: str = "user",
        memory_ids: Sequence[str] = (),
        query: str | None = None,
        correction: str | None = None,
        agent_id: str | None = None,
    ) -> str:
        """What became of recalled memories: "used", "ignored", "corrected", "forgotten". Returns the feedback's id."""
        return self._send(
            calls.feedback(
                owner,
                kind,
                owner_kind=owner_kind,
                memory_ids=list(memory_ids),
                query=query,
                correction=correction,
                agent_id=agent_id,
            )
        )

    def command(self, command_id: str) -> results.CommandStatus:
        """What became of an accepted command."""
        return self._send(calls.command(command_id))

    def report_conflict(self, memory_id: str, version: int, detail: str) -> results.Accepted:
        """Two contents under one version were seen: put it before a reviewer. Asked once, however many report it."""
        return self._send(calls.report_conflict(memory_id, version, detail))

    def changes(
        self,
        owner: str,
        *,
        owner_kind: str = "user",
        namespaces: Sequence[str] = (),
        after: str | None = None,
    ) -> Iterator[MemoryUpdated]:
        """The owner's changes as they happen, from now on or after the event of that id, if the server still has it.

        `Replica` does more: it misses nothing and keeps the state.

        Raises:
            FeedLost: the feed ended or skipped something. With its `after`, listen again from there; without one, read the
                memories again first.
        """
        call = calls.changes(owner, after=after, owner_kind=owner_kind, namespace=list(namespaces))
        request = exchange.request(self._http, call, "")
        # The feed is silent while nothing changes; the server's heartbeat comes every 15 seconds.
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": 60.0}
        reader = FeedReader()
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as failure:
            raise exchange.connection_failed(call, failure) from failure
        try:
            if response.is_error:
                response.read()
                raise exchange.error(response)
            for line in response.iter_lines():
                found = reader.line(line)
                event = exchange.message(found) if found is not None else None
                if event is not None:
                    after = event.event_id
                    yield event
        except httpx.TransportError as failure:
            raise FeedLost(f"the connection broke ({type(failure).__name__})", after=after) from failure
        finally:
            response.close()
        raise FeedLost("the feed ended", after=after)

    def _send(self, call: Call[T]) -> T:
        key, attempt = self._new_key(), 0
        while True:
            attempt += 1
            error: ApiError | ConnectionFailed
            try:
                response = self._http.send(exchange.request(self._http, call, key))
                return exchange.result(call, response)
            except httpx.TransportError as failure:
                error = exchange.connection_failed(call, failure)
            except ApiError as failure:
                error = failure
            pause = exchange.pause(call, self._retry, attempt, error, self._chance())
            if pause is None:
                raise error
            self._sleep(pause)
