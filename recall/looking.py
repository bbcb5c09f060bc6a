"""Looking: memories, their history and their grounds, turns and commands; what truth alone can answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from processors.access import HIDDEN, Denied, OwnerRef, Principal, Scope, authorise
from recall import views
from recall.access import ReadLog
from recall.door import Door, NotFound
from schemas import Memory, OwnerKind, Status, Turn, digest
from sinks.truth import Truth, access, memories, turns


class Looking(Door):
    """Reads by id and by page; every memory that goes out is noted."""

    def __init__(self, truth: Truth, reads: ReadLog, now: Callable[[], datetime]) -> None:
        Door.__init__(self, truth, now)
        self._reads = reads

    async def listing(
        self,
        principal: Principal,
        owner: OwnerRef | None,
        *,
        namespaces: Sequence[str] = (),
        statuses: Sequence[Status] = (Status.ACTIVE,),
        attribute: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """One owner's memories, a page at a time. Raises Denied; ValueError for a cursor of another make."""
        now = self._now()
        reach = authorise(principal, Scope.READ, owner, now, namespaces)
        after = views.cursor_from(cursor)
        if not reach.review and set(statuses) & HIDDEN:
            raise Denied("scope_missing", "memories that wait for a decision are for reviewers")
        found, end = await self._read(
            lambda connection: access.page(
                connection, reach, statuses=statuses, now=now, attribute=attribute, after=after, limit=limit
            )
        )
        self._reads.note(principal, "list", found)
        return {"memories": [views.memory_view(memory) for memory in found], "next_cursor": views.cursor_of(end)}

    async def memory(self, principal: Principal, memory_id: str) -> dict[str, Any]:
        """Raises Denied, NotFound."""
        memory, _reach = await self._memory(principal, Scope.READ, memory_id)
        self._reads.note(principal, "read", [memory])
        return views.memory_view(memory)

    async def history(self, principal: Principal, memory_id: str) -> dict[str, Any]:
        """Every version that the caller may see. Raises Denied, NotFound."""
        memory, reach = await self._memory(principal, Scope.READ, memory_id, deleted=True)
        rows = await self._read(lambda connection: memories.history(connection, memory_id))
        deleted = memory.status is Status.DELETED
        seen = [row for row in rows if deleted or reach.covers(row["memory"])]
        if not deleted:
            self._reads.note(principal, "history", [memory])
        return {"id": memory_id, "versions": [views.version_view(row, deleted=deleted) for row in seen]}

    async def explain(self, principal: Principal, memory_id: str) -> dict[str, Any]:
        """Where a memory comes from: turns, writer, policy, versions, and who read it (SPEC R7). Raises Denied, NotFound."""
        memory, reach = await self._memory(principal, Scope.READ, memory_id)
        known = await self._read(lambda connection: _known_of(connection, memory))
        self._reads.note(principal, "explain", [memory])
        return {
            "memory": views.memory_view(memory),
            "provenance": {name: item.model_dump(mode="json") for name, item in memory.provenance.items()},
            "policy": {
                "decision": memory.audit.decision,
                "reasons": list(memory.audit.reasons),
                "version": memory.audit.policy_version,
            },
            "decisions": known["decisions"],
            "versions": [
                views.version_view(row, deleted=False) for row in known["versions"] if reach.covers(row["memory"])
            ],
            "reads": known["reads"],
        }

    async def turn(self, principal: Principal, conversation_id: str, turn_id: str) -> dict[str, Any]:
        """What became of a turn. Raises Denied, NotFound: it has not come through, or is somebody else's."""
        key = digest(principal.tenant, conversation_id, turn_id)
        found = await self._read(lambda connection: _turn(connection, key))
        if found is None or not self._reaches(principal, OwnerRef(OwnerKind.USER, found[0].user_id)):
            raise NotFound("no such turn has come through yet")
        turn, state = found
        return {
            "conversation_id": turn.conversation_id,
            "turn_id": turn.turn_id,
            "turn_key": key,
            "revision": state["revision"],
            "outcome": state["outcome"],
            "reason": state["reason"],
            "arrived_at": state["arrived_at"],
        }

    async def command(self, principal: Principal, command_id: str) -> dict[str, Any]:
        """What became of a command. One of somebody else's owners looks like one that has not arrived."""
        state = await self._read(lambda connection: access.command_state(connection, command_id))
        if state.owner_key is not None:
            ids = [memory_id for memory_id, _version in state.memories]
            held = await self._read(lambda connection: memories.fetch(connection, ids))
            owner = await self._read(lambda connection: access.owner_of(connection, state.owner_key or ""))
            same = owner is not None and owner[0] == principal.tenant
            reaches = self._reaches(principal, owner[1]) if same else []
            if not reaches:
                return {"command_id": command_id, "state": "pending", "memories": [], "review_id": None}
            seen = {name for name, memory in held.items() if any(reach.covers(memory) for reach in reaches)}
            return {
                "command_id": command_id,
                "state": state.state,
                "memories": [{"id": name, "version": version} for name, version in state.memories if name in seen],
                "review_id": state.review_id,
            }
        return {"command_id": command_id, "state": state.state, "memories": [], "review_id": None}


def _known_of(connection: Connection, memory: Memory) -> dict[str, Any]:
    versions = memories.history(connection, memory.id)
    causes = [row["cause"] for row in versions]
    return {
        "versions": versions,
        "decisions": access.decisions_about(connection, causes),
        "reads": access.reads_of(connection, memory.id),
    }


def _turn(connection: Connection, key: str) -> tuple[Turn, dict[str, Any]] | None:
    state = access.turn_state(connection, key)
    turn = turns.bodies(connection, [key]).get(key)
    return (turn, state) if turn is not None and state is not None else None
