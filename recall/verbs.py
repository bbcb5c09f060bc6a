"""Verbs: remember, recall, forget, summarize, build_context, explain, history, feedback — once, for every entrance.

HTTP, MCP and the command line parse and print; who may do what, and what goes out, is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection

from processors.access import HIDDEN, Denied, OwnerRef, Principal, Reach, Scope, authorise, authorise_all, require
from processors.exceptions import MemriverError
from processors.slots import normal_attribute
from recall import views
from recall.access import ReadLog
from recall.requests import (
    ContextAsked,
    DecideAsked,
    EditAsked,
    FeedbackAsked,
    ForgetAsked,
    RecallAsked,
    RememberAsked,
    RestoreAsked,
    SummarizeAsked,
)
from recall.writing import Ordered, Writer
from schemas import CommandKind, Memory, OwnerKind, Status, Turn, digest
from sinks.truth import Truth, access, memories, reviews, turns
from sinks.truth.outbox import Outgoing

Publish = Callable[[Sequence[Outgoing]], Awaitable[None]]
"""On the brokers' disks when it returns; raises TransientError when they are away."""

FORGET_LIMIT = 500
"""Memories that one "forget everything about X" may name."""


class NotFound(MemriverError):
    """There is none, or none that this key may see: the two are never told apart."""


class Stale(MemriverError):
    """The memory has moved on. `version` is where it is."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the memory is at version {version}: read it again, then decide")
        self.version = version


class Conflicting(MemriverError):
    """The thing is in a state in which this cannot be done."""


@dataclass(frozen=True, slots=True)
class Found:
    """One result: a memory, or a turn that nothing was extracted from yet. `parts` are the score's terms."""

    score: float
    memory: Memory | None = None
    turn: Turn | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found, best first. `note` says why nothing was; `clarify` what to ask the user instead of guessing."""

    found: tuple[Found, ...]
    note: str | None = None
    clarify: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Text for a prompt; `cited` are the memories by the number they have in it."""

    text: str
    tokens: int
    cited: tuple[Memory, ...] = ()


class Reader(Protocol):
    """The read side's judgement. Every call gets the reaches it must stay within; they are checked again afterwards."""

    def recall(self, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> Recalled:
        """At most `asked.limit` results from these reaches."""

    def context(self, reaches: Sequence[Reach], asked: ContextAsked, now: datetime) -> Context:
        """The same, assembled within the budget."""

    def summarize(self, tenant: str, conversation_id: str, now: datetime) -> Mapping[str, Any]:
        """Summary, key points and open loops of a conversation, and who wrote them (a model, or extracted)."""


class Verbs:
    """All verbs. `reader` answers questions, `writer` makes commands, `publish` sends them."""

    def __init__(
        self,
        truth: Truth,
        reader: Reader,
        writer: Writer,
        publish: Publish,
        reads: ReadLog,
        now: Callable[[], datetime],
    ) -> None:
        self._truth = truth
        self._reader = reader
        self._writer = writer
        self._publish = publish
        self._reads = reads
        self._now = now

    # reading

    async def recall(self, principal: Principal, asked: RecallAsked) -> dict[str, Any]:
        """Raises Denied: see `processors.access.authorise_all`."""
        now = self._now()
        reaches = authorise_all(principal, Scope.READ, asked.refs, now, asked.namespaces)
        recalled = await asyncio.to_thread(self._reader.recall, reaches, asked, now)
        kept = [item for item in recalled.found if _may_leave(item, reaches)][: asked.limit]
        self._reads.note(principal, "recall", [item.memory for item in kept if item.memory is not None])
        return {
            "results": [_result(item, explain=asked.explain) for item in kept],
            "note": recalled.note if recalled.note or kept else "nothing relevant is remembered",
            "clarify": recalled.clarify,
        }

    async def context(self, principal: Principal, asked: ContextAsked) -> dict[str, Any]:
        """Raises Denied; also when the builder cites what the caller may not read, since its text cannot be unsaid."""
        now = self._now()
        reaches = authorise_all(principal, Scope.READ, asked.refs, now, asked.namespaces)
        if asked.conversation_id is not None:
            await self._conversation(principal, asked.conversation_id, must_exist=False)
        built = await asyncio.to_thread(self._reader.context, reaches, asked, now)
        if not all(any(reach.covers(memory) for reach in reaches) for memory in built.cited):
            raise Denied("owner_not_granted", "the context could not be built within what this key may read")
        self._reads.note(principal, "context", built.cited)
        cited = [{"number": n, "id": memory.id, "version": memory.version} for n, memory in enumerate(built.cited, 1)]
        return {"text": built.text, "tokens": built.tokens, "citations": cited}

    async def summarize(self, principal: Principal, asked: SummarizeAsked) -> dict[str, Any]:
        """Raises Denied, NotFound."""
        await self._conversation(principal, asked.conversation_id)
        summary = await asyncio.to_thread(self._reader.summarize, principal.tenant, asked.conversation_id, self._now())
        return {"conversation_id": asked.conversation_id, **summary}

    async def session(self, principal: Principal, conversation_id: str, limit: int) -> dict[str, Any]:
        """The last turns, filtered ones included. Raises Denied, NotFound."""
        await self._conversation(principal, conversation_id)
        key = digest(principal.tenant, conversation_id)
        recent = await self._read(lambda connection: turns.recent(connection, key, limit=limit))
        return {
            "conversation_id": conversation_id,
            "turns": [views.turn_view(turn) for turn in recent if not turn.deleted],
        }

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
        if found is None or not self._may_any(principal, OwnerRef(OwnerKind.USER, found[0].user_id)):
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
            if owner is None or owner[0] != principal.tenant or not self._may_any(principal, owner[1]):
                return {"command_id": command_id, "state": "pending", "memories": [], "review_id": None}
            return {
                "command_id": command_id,
                "state": state.state,
                "memories": [{"id": name, "version": version} for name, version in state.memories if name in held],
                "review_id": state.review_id,
            }
        return {"command_id": command_id, "state": state.state, "memories": [], "review_id": None}

    # writing

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
        reach = authorise(principal, Scope.READ, asked.ref, self._now())
        held = await self._read(lambda connection: memories.fetch(connection, asked.memory_ids))
        if any(name not in held or not reach.covers(held[name]) for name in asked.memory_ids):
            raise NotFound("one of the memories is not there")
        item = self._writer.feedback(principal, asked, token)
        key = reach.owner_key
        await self._publish([Outgoing("feedback", key, key, item.to_bytes())])
        return {"status": "accepted", "feedback_id": item.feedback_id}

    # reviewing

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

    # what all of them do

    async def _read(self, work: Callable[[Connection], Any]) -> Any:
        def run() -> Any:
            with self._truth.reading() as connection:
                return work(connection)

        return await asyncio.to_thread(run)

    async def _send(self, orders: list[Ordered]) -> dict[str, Any]:
        await self._publish([item.message() for item in orders])
        return views.accepted_view(orders)

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

    async def _conversation(self, principal: Principal, conversation_id: str, *, must_exist: bool = True) -> None:
        """A conversation is as private as the most private of those who speak in it."""
        require(principal, Scope.READ)
        key = digest(principal.tenant, conversation_id)
        people = await self._read(lambda connection: access.speakers(connection, key))
        if not people and must_exist:
            raise NotFound("there is no such conversation")
        for name in people:
            try:
                reach = authorise(principal, Scope.READ, OwnerRef(OwnerKind.USER, name), self._now())
            except Denied as error:
                raise NotFound("there is no such conversation") from error
            if not _whole(reach):
                raise NotFound("there is no such conversation")

    def _may_any(self, principal: Principal, owner: OwnerRef) -> bool:
        for scope in Scope:
            try:
                authorise(principal, scope, owner, self._now())
            except Denied:
                continue
            return True
        return False


_FORGETTABLE = (Status.ACTIVE, Status.DEMOTED)
_DELETABLE = (*_FORGETTABLE, Status.SUPERSEDED, Status.EXPIRED, Status.ARCHIVED)


def _may_leave(item: Found, reaches: Iterable[Reach]) -> bool:
    """The last look before anything leaves: a reader that erred, or read before a change, cannot leak through here."""
    if item.memory is not None:
        return item.memory.status is Status.ACTIVE and any(reach.covers(item.memory) for reach in reaches)
    if item.turn is None:
        return False
    owner = OwnerRef(OwnerKind.USER, item.turn.user_id)
    return any(reach.tenant == item.turn.tenant and reach.owner == owner and _whole(reach) for reach in reaches)


def _whole(reach: Reach) -> bool:
    return any(segment == "" for segment, _ceiling in reach.segments)


def _within(reach: Reach, namespace: str) -> None:
    reach.narrowed([namespace])


def _may_review(reach: Reach, review: reviews.Review, held: Mapping[str, Memory]) -> bool:
    names = [name for name in (review.memory_id, review.other_memory_id) if name is not None]
    if not names:
        return _whole(reach)
    return all(name in held and reach.covers(held[name]) for name in names)


def _result(item: Found, *, explain: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"score": round(item.score, 4)}
    if item.memory is not None:
        view |= {"kind": "memory", "memory": views.memory_view(item.memory)}
    elif item.turn is not None:
        view |= {"kind": "turn", "turn": views.turn_view(item.turn)}
    if explain:
        view["parts"] = {name: round(value, 4) for name, value in item.parts.items()}
    return view


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
