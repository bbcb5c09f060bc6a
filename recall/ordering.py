"""Ordering: what people and agents want changed, and what reviewers decide; authorised here, done by the resolver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from processors.access import HIDDEN, Denied, OwnerRef, Principal, Reach, Scope, authorise, require
from processors.slots import normal_attribute
from recall import views
from recall.door import Conflicting, Door, NotFound, whole
from recall.requests import DecideAsked, EditAsked, FeedbackAsked, ForgetAsked, RememberAsked, ReportAsked, RestoreAsked
from recall.writing import Ordered, Writer
from schemas import CommandKind, Memory, OwnerKind, Status, Turn
from sinks.truth import Truth, access, memories, reviews
from sinks.truth.outbox import Outgoing

Publish = Callable[[Sequence[Outgoing]], Awaitable[None]]
"""On the brokers' disks when it returns; raises TransientError when they are away."""

FORGET_LIMIT = 500
"""Memories that one "forget everything about X" may name."""

_FORGETTABLE = (Status.ACTIVE, Status.DEMOTED)
_DELETABLE = (*_FORGETTABLE, Status.SUPERSEDED, Status.EXPIRED, Status.ARCHIVED)


class Ordering(Door):
    """Turns onto the log, commands to the resolver. Nothing is changed here."""

    def __init__(self, truth: Truth, writer: Writer, publish: Publish, now: Callable[[], datetime]) -> None:
        Door.__init__(self, truth, now)
        self._writer = writer
        self._publish = publish

    async def accept(self, principal: Principal, turn: Turn) -> None:
        """Onto the log, nothing else: neither database nor model is waited for (SPEC W2). Raises Denied."""
        authorise(principal, Scope.WRITE, OwnerRef(OwnerKind.USER, turn.user_id), self._now())
        key = turn.conversation_key
        await self._publish([Outgoing("turns", key, key, turn.to_bytes())])

    async def remember(self, principal: Principal, asked: RememberAsked, token: str | None = None) -> dict[str, Any]:
        """Raises Denied, Refused; NotFound and Stale for the memory that it replaces."""
        reach = authorise(principal, Scope.WRITE, asked.ref, self._now())
        if asked.memory_id is not None:
            await self._at_version(principal, asked.memory_id, asked.expected_version)
        # The rules and the gate are plain computing; the loop belongs to everybody.
        orders = await asyncio.to_thread(self._writer.remember, principal, asked, token)
        for item in orders:
            _within(reach, str(item.command.payload["namespace"]))
        return await self._send(orders)

    async def forget(self, principal: Principal, asked: ForgetAsked, token: str | None = None) -> dict[str, Any]:
        """Raises Denied, NotFound: there is nothing to forget."""
        kind = CommandKind.DELETE if asked.mode == "delete" else CommandKind.FORGET
        reach = authorise(principal, Scope.WRITE, asked.ref, self._now())
        if asked.memory_id is not None:
            memory, _reach = await self._memory(principal, Scope.WRITE, asked.memory_id)
            found = [memory] if reach.covers(memory) else []
        else:
            found, _end = await self._read(
                lambda connection: access.page(
                    connection,
                    reach,
                    statuses=_FORGETTABLE if asked.mode == "forget" else _DELETABLE,
                    now=self._now(),
                    attribute=normal_attribute(asked.attribute or ""),
                    limit=FORGET_LIMIT,
                )
            )
        if not found:
            raise NotFound("there is nothing of that to forget")
        return await self._send(
            [self._writer.order(principal, memory, kind, asked.reason, token=token) for memory in found]
        )

    async def edit(
        self, principal: Principal, memory_id: str, version: int, asked: EditAsked, token: str | None = None
    ) -> dict[str, Any]:
        """Raises Denied, NotFound, Stale, Refused."""
        memory = await self._at_version(principal, memory_id, version)
        order = await asyncio.to_thread(self._writer.edit, principal, memory, version, asked, token)
        return await self._send([order])

    async def delete(self, principal: Principal, memory_id: str, version: int, reason: str) -> dict[str, Any]:
        """Raises Denied, NotFound, Stale."""
        memory = await self._at_version(principal, memory_id, version)
        return await self._send([self._writer.order(principal, memory, CommandKind.DELETE, reason, version=version)])

    async def confirm(
        self, principal: Principal, memory_id: str, version: int, token: str | None = None
    ) -> dict[str, Any]:
        """Still true. Raises Denied, NotFound, Stale."""
        memory = await self._at_version(principal, memory_id, version)
        order = self._writer.order(principal, memory, CommandKind.CONFIRM, "confirmed", version=version, token=token)
        return await self._send([order])

    async def restore(
        self, principal: Principal, memory_id: str, version: int, asked: RestoreAsked, token: str | None = None
    ) -> dict[str, Any]:
        """Back to `asked.version`. Raises Denied, NotFound (also for a version that was never let in), Stale."""
        memory = await self._at_version(principal, memory_id, version)
        rows = await self._read(lambda connection: memories.history(connection, memory_id))
        then = next((row["memory"] for row in rows if row["version"] == asked.version), None)
        if then is None or then.status in HIDDEN or then.status is Status.DELETED:
            raise NotFound("the memory never held this version")
        payload = {"version": asked.version}
        order = self._writer.order(
            principal, memory, CommandKind.RESTORE, asked.reason, version=version, payload=payload, token=token
        )
        return await self._send([order])

    async def feedback(self, principal: Principal, asked: FeedbackAsked, token: str | None = None) -> dict[str, Any]:
        """Raises Denied; NotFound when a memory it is about is not this owner's."""
        # A correction becomes an edit, and who may only read may not edit by way of an opinion.
        scope = Scope.WRITE if asked.correction else Scope.READ
        reach = authorise(principal, scope, asked.ref, self._now())
        held = await self._read(lambda connection: memories.fetch(connection, asked.memory_ids))
        if any(name not in held or not reach.covers(held[name]) for name in asked.memory_ids):
            raise NotFound("one of the memories is not there")
        item = self._writer.feedback(principal, asked, token)
        key = reach.owner_key
        await self._publish([Outgoing("feedback", key, key, item.to_bytes())])
        return {"status": "accepted", "feedback_id": item.feedback_id}

    async def reviews(
        self, principal: Principal, owner: OwnerRef | None, *, status: str, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """Questions about one owner's memories. Raises Denied; ValueError for a cursor of another make."""
        reach = authorise(principal, Scope.REVIEW, owner, self._now())
        after = views.cursor_from(cursor)

        def read(connection: Connection) -> tuple[list[reviews.Review], dict[str, Memory]]:
            found = reviews.listing(connection, [reach.owner_key], status=status, after=after, limit=limit + 1)
            return found, reviews.memories_of(connection, found)

        found, held = await self._read(read)
        end = (found[limit - 1].opened_at, found[limit - 1].review_id) if len(found) > limit else None
        seen = [review for review in found[:limit] if _may_review(reach, review, held)]
        return {"reviews": [views.review_view(review, held) for review in seen], "next_cursor": views.cursor_of(end)}

    async def decide(
        self, principal: Principal, review_id: str, asked: DecideAsked, token: str | None = None
    ) -> dict[str, Any]:
        """Raises Denied, NotFound, Conflicting: it is answered already (or, for undo, not yet)."""
        require(principal, Scope.REVIEW)

        def read(connection: Connection) -> tuple[reviews.Review | None, dict[str, Memory]]:
            review = reviews.get(connection, review_id)
            return review, reviews.memories_of(connection, [review] if review is not None else [])

        review, held = await self._read(read)
        if review is None or review.tenant != principal.tenant:
            raise NotFound("there is no such review")
        owner = OwnerRef(OwnerKind(review.owner_kind), review.owner)
        try:
            reach = authorise(principal, Scope.REVIEW, owner, self._now())
        except Denied as error:
            raise NotFound("there is no such review") from error
        if not _may_review(reach, review, held):
            raise NotFound("there is no such review")
        if (review.status == "open") == (asked.decision == "undo"):
            raise Conflicting(f"the review is {review.status}")
        if asked.into is not None:
            await self._memory(principal, Scope.REVIEW, asked.into)
        return await self._send([self._writer.decide(principal, owner, review_id, asked, token)])

    async def report(self, principal: Principal, asked: ReportAsked) -> dict[str, Any]:
        """A question for a reviewer, who may read is enough: it changes nothing, and is there once however many ask it.

        Raises Denied, NotFound; Conflicting: the memory has not had this version.
        """
        memory, _reach = await self._memory(principal, Scope.READ, asked.memory_id)
        if asked.version > memory.version:
            raise Conflicting(f"the memory is at version {memory.version}")
        return await self._send([await asyncio.to_thread(self._writer.report, principal, memory, asked)])

    async def _send(self, orders: list[Ordered]) -> dict[str, Any]:
        await self._publish([item.message() for item in orders])
        return views.accepted_view(orders)


def _within(reach: Reach, namespace: str) -> None:
    reach.narrowed([namespace])


def _may_review(reach: Reach, review: reviews.Review, held: Mapping[str, Memory]) -> bool:
    names = [name for name in (review.memory_id, review.other_memory_id) if name is not None]
    if not names:
        return whole(reach)
    return all(name in held and reach.covers(held[name]) for name in names)
