"""The door: what a caller may see or touch of a memory or a conversation; the ground that all verbs stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from processors.access import Denied, OwnerRef, Principal, Reach, Scope, authorise, require
from processors.exceptions import MemriverError
from schemas import Memory, OwnerKind, Status, digest
from sinks.truth import Truth, access, memories


class NotFound(MemriverError):
    """There is none, or none that this key may see: the two are never told apart."""


class Stale(MemriverError):
    """The memory has moved on. `version` is where it is."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the memory is at version {version}: read it again, then decide")
        self.version = version


class Conflicting(MemriverError):
    """The thing is in a state in which this cannot be done."""


class Door:
    """Everything that is read on a caller's behalf is judged here first."""

    def __init__(self, truth: Truth, now: Callable[[], datetime]) -> None:
        self._truth = truth
        self._now = now

    async def _read(self, work: Callable[[Connection], Any]) -> Any:
        def run() -> Any:
            with self._truth.reading() as connection:
                return work(connection)

        return await asyncio.to_thread(run)

    async def _memory(
        self, principal: Principal, scope: Scope, memory_id: str, *, deleted: bool = False
    ) -> tuple[Memory, Reach]:
        require(principal, scope)
        memory = await self._read(lambda connection: memories.get(connection, memory_id))
        if memory is None or memory.tenant != principal.tenant:
            raise NotFound("there is no such memory")
        try:
            reach = authorise(principal, scope, OwnerRef(memory.owner_kind, memory.owner), self._now())
        except Denied as error:
            raise NotFound("there is no such memory") from error
        if not reach.covers(memory) or (memory.status is Status.DELETED and not deleted):
            raise NotFound("there is no such memory")
        return memory, reach

    async def _at_version(self, principal: Principal, memory_id: str, version: int | None) -> Memory:
        memory, _reach = await self._memory(principal, Scope.WRITE, memory_id)
        if version is not None and memory.version != version:
            raise Stale(memory.version)
        return memory

    async def _conversation(self, principal: Principal, conversation_id: str, *, must_exist: bool = True) -> list[str]:
        """Who speaks in it. A conversation is as private as the most private of them."""
        require(principal, Scope.READ)
        key = digest(principal.tenant, conversation_id)
        people: list[str] = await self._read(lambda connection: access.speakers(connection, key))
        if not people and must_exist:
            raise NotFound("there is no such conversation")
        for name in people:
            try:
                reach = authorise(principal, Scope.READ, OwnerRef(OwnerKind.USER, name), self._now())
            except Denied as error:
                raise NotFound("there is no such conversation") from error
            if not whole(reach):
                raise NotFound("there is no such conversation")
        return people

    def _reaches(self, principal: Principal, owner: OwnerRef) -> list[Reach]:
        """What of an owner is reached in any way; empty: nothing."""
        found = []
        for scope in Scope:
            try:
                found.append(authorise(principal, scope, owner, self._now()))
            except Denied:
                continue
        return found


def whole(reach: Reach) -> bool:
    """Whether all of the owner's namespaces are reached: raw turns belong to none of them."""
    return any(segment == "" for segment, _ceiling in reach.segments)
