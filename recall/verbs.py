"""Verbs: remember, recall, forget, summarize, build_context, explain, history, feedback — once, for every entrance.

HTTP, MCP and the command line parse and print; who may do what, and what goes out, is decided here and below: `door`
(who may see what), `looking` (truth alone), `ordering` (changes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from processors.access import Denied, OwnerRef, Principal, PrincipalKind, Reach, Scope, authorise_all
from recall import views
from recall.access import ReadLog
from recall.door import Conflicting, NotFound, Stale, whole
from recall.looking import Looking
from recall.ordering import Ordering, Publish
from recall.requests import ContextAsked, RecallAsked, SummarizeAsked
from recall.writing import Writer
from schemas import Memory, OwnerKind, Status, Turn, digest
from sinks.truth import Truth, turns

__all__ = ["Conflicting", "Context", "Found", "NotFound", "Publish", "Reader", "Recalled", "Stale", "Verbs"]


A = TypeVar("A", bound=RecallAsked)


@dataclass(frozen=True, slots=True)
class Found:
    """One result: a memory, or a turn that nothing was extracted from yet.

    `parts` are the score's terms, `sources` what proposed it; `confirm`: ask the person before relying on it.
    """

    score: float
    memory: Memory | None = None
    turn: Turn | None = None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found, best first.

    `note` says why nothing was; `clarify` what to ask the user instead of guessing; `degraded` what was away meanwhile.
    """

    found: tuple[Found, ...]
    note: str | None = None
    clarify: Mapping[str, Any] | None = None
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """Text for a prompt; `cited` are the memories by the number they have in it."""

    text: str
    tokens: int
    cited: Mapping[int, Memory] = field(default_factory=dict)


class Reader(Protocol):
    """The read side's judgement. Every call gets the reaches it must stay within; they are checked again afterwards."""

    def recall(self, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> Recalled:
        """At most `asked.limit` results from these reaches."""

    def context(self, reaches: Sequence[Reach], asked: ContextAsked, now: datetime) -> Context:
        """The same, assembled within the budget."""

    async def summarize(self, tenant: str, conversation_id: str, owner: str, now: datetime) -> Mapping[str, Any]:
        """What `owner`, who takes part, has of a conversation, brought up to date first.

        Facts, decisions, key points, open loops, and who wrote them.
        """


class Verbs(Looking, Ordering):
    """All verbs. `reader` answers questions, `writer` makes commands, `publish` sends them.

    `screen` gives a raw turn's text as it may be shown, or None.
    """

    def __init__(
        self,
        truth: Truth,
        reader: Reader,
        writer: Writer,
        publish: Publish,
        reads: ReadLog,
        now: Callable[[], datetime],
        screen: Callable[[str], str | None],
    ) -> None:
        Looking.__init__(self, truth, reads, now)
        Ordering.__init__(self, truth, writer, publish, now)
        self._reader = reader
        self._screen = screen

    async def recall(self, principal: Principal, asked: RecallAsked) -> dict[str, Any]:
        """Raises Denied: see `processors.access.authorise_all`."""
        now = self._now()
        reaches = authorise_all(principal, Scope.READ, asked.refs, now, asked.namespaces)
        recalled = await asyncio.to_thread(self._reader.recall, reaches, _for_agent(principal, asked), now)
        kept = [item for item in recalled.found if _may_leave(item, reaches)][: asked.limit]
        memories = [item.memory for item in kept if item.memory is not None]
        self._reads.note(principal, "recall", memories, agent=asked.agent_id)
        return {
            "results": [_result(item, explain=asked.explain) for item in kept],
            "note": recalled.note if recalled.note or kept else "nothing relevant is remembered",
            # A question back shows candidates: only where every one of them may be shown.
            "clarify": recalled.clarify if len(kept) == len(recalled.found) else None,
            "degraded": list(recalled.degraded),
        }

    async def context(self, principal: Principal, asked: ContextAsked) -> dict[str, Any]:
        """Raises Denied; also when the builder cites what the caller may not read, since its text cannot be unsaid."""
        now = self._now()
        reaches = authorise_all(principal, Scope.READ, asked.refs, now, asked.namespaces)
        if asked.conversation_id is not None:
            await self._conversation(principal, asked.conversation_id, must_exist=False)
        built = await asyncio.to_thread(self._reader.context, reaches, _for_agent(principal, asked), now)
        if not all(any(reach.covers(memory) for reach in reaches) for memory in built.cited.values()):
            raise Denied("owner_not_granted", "the context could not be built within what this key may read")
        self._reads.note(principal, "context", built.cited.values(), agent=asked.agent_id)
        cited = [{"number": n, "id": memory.id, "version": memory.version} for n, memory in sorted(built.cited.items())]
        return {"text": built.text, "tokens": built.tokens, "citations": cited}

    async def summarize(self, principal: Principal, asked: SummarizeAsked) -> dict[str, Any]:
        """Raises Denied, NotFound."""
        people = await self._conversation(principal, asked.conversation_id)
        summary = await self._reader.summarize(principal.tenant, asked.conversation_id, people[0], self._now())
        return {"conversation_id": asked.conversation_id, **summary}

    async def session(self, principal: Principal, conversation_id: str, limit: int) -> dict[str, Any]:
        """The last turns, filtered ones included. Raises Denied, NotFound."""
        await self._conversation(principal, conversation_id)
        key = digest(principal.tenant, conversation_id)
        recent = await self._read(lambda connection: turns.recent(connection, key, limit=limit))
        return {
            "conversation_id": conversation_id,
            "turns": [self._shown(turn) for turn in recent if not turn.deleted],
        }

    def _shown(self, turn: Turn) -> dict[str, Any]:
        """A raw turn has not been through the gate: numbers are masked, and what gives orders is held back."""
        text = self._screen(turn.text)
        return views.turn_view(turn) | {"text": text, "withheld": text is None}


def _for_agent(principal: Principal, asked: A) -> A:
    """Hints speak of agents as feedback does (`recall.writing.Writer.feedback`): an agent's key is that agent."""
    if principal.kind is not PrincipalKind.AGENT or asked.agent_id == principal.id:
        return asked
    return asked.model_copy(update={"agent_id": principal.id})


def _may_leave(item: Found, reaches: Iterable[Reach]) -> bool:
    """The last look before anything leaves: a reader that erred, or read before a change, cannot leak through here."""
    if item.memory is not None:
        return item.memory.status is Status.ACTIVE and any(reach.covers(item.memory) for reach in reaches)
    if item.turn is None:
        return False
    owner = OwnerRef(OwnerKind.USER, item.turn.user_id)
    return any(reach.tenant == item.turn.tenant and reach.owner == owner and whole(reach) for reach in reaches)


def _result(item: Found, *, explain: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"score": round(item.score, 4)}
    if item.memory is not None:
        view |= {"kind": "memory", "memory": views.memory_view(item.memory)}
    elif item.turn is not None:
        view |= {"kind": "turn", "turn": views.turn_view(item.turn)}
    if item.confirm:
        view["confirm"] = True
    if explain:
        view["parts"] = {name: None if value is None else round(value, 4) for name, value in item.parts.items()}
        view["sources"] = list(item.sources)
    return view
