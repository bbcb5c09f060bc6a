"""Client, results: what the API answers, as plain data classes. Unknown fields are ignored; missing ones are a BadAnswer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memriver_client.model import Memory, MemoryUpdated, optional_time, parse_time


@dataclass(frozen=True)
class RecentTurn:
    """A turn of a conversation that nothing was extracted from yet."""

    turn_id: str
    user_id: str
    role: str
    text: str = field(repr=False)
    sent_at: datetime


@dataclass(frozen=True)
class Found:
    """One result: a memory or a recent turn. `score` in [0, 1].

    With `explain`, `parts` are the score's terms and `sources` what proposed it (dense, keyword, slot, triple, …).
    `confirm`: what is kept of this kind is corrected so often that the person should be asked before it is relied on.
    """

    score: float
    memory: Memory | None = None
    turn: RecentTurn | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    confirm: bool = False

    @property
    def text(self) -> str:
        """What it says."""
        return self.memory.text if self.memory else self.turn.text if self.turn else ""


@dataclass(frozen=True)
class Clarification:
    """What to ask the user instead of guessing, and what is offered."""

    question: str = field(repr=False)
    candidates: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Recalled:
    """Best first. `note` is the honest sentence when nothing is relevant; `clarify` what to ask instead of guessing.

    `degraded` names what was away meanwhile ("embedder", "vectors"): the rest answered, and may have missed something.
    """

    results: tuple[Found, ...]
    note: str | None = None
    clarify: Clarification | None = None
    degraded: tuple[str, ...] = ()

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The results that are memories."""
        return tuple(found.memory for found in self.results if found.memory is not None)


@dataclass(frozen=True)
class Citation:
    """The memory behind a number in a context's text."""

    number: int
    id: str
    version: int


@dataclass(frozen=True)
class Context:
    """Text for a prompt and how many tokens it has."""

    text: str = field(repr=False)
    tokens: int
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True)
class Command:
    """An order on its way to the resolver; `commands.status(command_id)` tells what became of it.

    `decision` is the policy gate's word, None where nothing had to be judged.
    """

    command_id: str
    kind: str
    memory_id: str | None = None
    expected_version: int | None = None
    decision: str | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accepted:
    """The API has taken it; it takes effect in the stream a moment later."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class CommandStatus:
    """What became of a command. `memories`: ids and the version each has since. `review_id`: it waits for a person."""

    command_id: str
    state: str
    memories: tuple[tuple[str, int], ...] = ()
    review_id: str | None = None


@dataclass(frozen=True)
class Version:
    """One version of a memory. A deleted memory's versions say nothing of their content."""

    version: int
    change: str
    status: str
    cause: str
    writer: str
    recorded_at: datetime
    value: str | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)
    valid_from: datetime | None = field(default=None, repr=False)
    valid_to: datetime | None = field(default=None, repr=False)


@dataclass(frozen=True)
class History:
    """Versions, in the order the API gives them."""

    id: str
    versions: tuple[Version, ...]


@dataclass(frozen=True)
class Explanation:
    """Where a memory comes from. The mappings are the API's, as JSON."""

    memory: Memory
    versions: tuple[Version, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    policy: Mapping[str, Any] = field(default_factory=dict, repr=False)
    decisions: tuple[Any, ...] = field(default=(), repr=False)
    reads: tuple[Any, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Summary:
    """The summary of a conversation; `raw` has everything the API says of it.

    `method` says who made it (None: there is none yet), `turns` how many it covers, `unsummarised` how many came since.
    `digests` are the last turns as lines of 80 characters.
    """

    conversation_id: str
    method: str | None = None
    turns: int = 0
    unsummarised: int = 0
    facts: tuple[str, ...] = field(default=(), repr=False)
    decisions: tuple[str, ...] = field(default=(), repr=False)
    open_loops: tuple[str, ...] = field(default=(), repr=False)
    key_points: tuple[str, ...] = field(default=(), repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class TurnStatus:
    """What became of a turn; `outcome` is stored, filtered, batched, extracted, remembered or dead_lettered."""

    conversation_id: str
    turn_id: str
    outcome: str
    reason: str | None = None
    revision: int = 0
    arrived_at: datetime | None = None


@dataclass(frozen=True)
class Page:
    """Some memories, and where the next page starts (None: this was the last)."""

    memories: tuple[Memory, ...]
    next_cursor: str | None = None


def recalled(data: Any) -> Recalled:
    """From JSON."""
    asking = data.get("clarify")
    return Recalled(
        results=tuple(_found(item) for item in data["results"]),
        note=data.get("note"),
        clarify=Clarification(asking["question"], tuple(asking.get("candidates") or ())) if asking else None,
        degraded=tuple(data.get("degraded") or ()),
    )


def context(data: Any) -> Context:
    """From JSON."""
    cited = tuple(Citation(item["number"], item["id"], item["version"]) for item in data.get("citations") or ())
    return Context(data["text"], data["tokens"], cited)


def accepted(data: Any) -> Accepted:
    """From JSON."""
    return Accepted(
        tuple(
            Command(
                command_id=item["command_id"],
                kind=item["kind"],
                memory_id=item.get("memory_id"),
                expected_version=item.get("expected_version"),
                decision=item.get("decision"),
                reasons=tuple(item.get("reasons") or ()),
            )
            for item in data["commands"]
        )
    )


def command_status(data: Any) -> CommandStatus:
    """From JSON."""
    held = tuple((item["id"], item["version"]) for item in data.get("memories") or ())
    return CommandStatus(data["command_id"], data["state"], held, data.get("review_id"))


def history(data: Any) -> History:
    """From JSON."""
    return History(data["id"], tuple(_version(item) for item in data["versions"]))


def explanation(data: Any) -> Explanation:
    """From JSON."""
    return Explanation(
        memory=Memory.from_view(data["memory"]),
        versions=tuple(_version(item) for item in data.get("versions") or ()),
        provenance=data.get("provenance") or {},
        policy=data.get("policy") or {},
        decisions=tuple(data.get("decisions") or ()),
        reads=tuple(data.get("reads") or ()),
    )


def summary(data: Any) -> Summary:
    """From JSON."""
    return Summary(
        conversation_id=data["conversation_id"],
        method=data.get("method"),
        turns=data.get("turns") or 0,
        unsummarised=data.get("unsummarised") or 0,
        **{name: tuple(data.get(name) or ()) for name in _NOTES},
        raw=dict(data),
    )


_NOTES = ("facts", "decisions", "open_loops", "key_points", "digests")


def turn_status(data: Any) -> TurnStatus:
    """From JSON; also the answer to a turn that was just sent, which has no outcome yet."""
    return TurnStatus(
        conversation_id=data["conversation_id"],
        turn_id=data["turn_id"],
        outcome=data.get("outcome") or data.get("status") or "accepted",
        reason=data.get("reason"),
        revision=data.get("revision") or 0,
        arrived_at=optional_time(data.get("arrived_at")),
    )


def page(data: Any) -> Page:
    """From JSON."""
    return Page(tuple(Memory.from_view(item) for item in data["memories"]), data.get("next_cursor"))


def change(data: Any) -> MemoryUpdated:
    """From one message of the change feed."""
    return MemoryUpdated(
        event_id=data["event_id"],
        change=data["change"],
        memory=Memory.from_view(data["memory"]),
        owner_seq=data["owner_seq"],
        occurred_at=parse_time(data["occurred_at"]),
        replaces=tuple(data.get("replaces") or ()),
    )


def _found(item: Any) -> Found:
    memory, turn = item.get("memory"), item.get("turn")
    return Found(
        score=float(item["score"]),
        memory=Memory.from_view(memory) if memory else None,
        turn=_turn(turn) if turn else None,
        parts=item.get("parts") or {},
        sources=tuple(item.get("sources") or ()),
        confirm=bool(item.get("confirm")),
    )


def _turn(data: Any) -> RecentTurn:
    return RecentTurn(data["turn_id"], data["user_id"], data["role"], data["text"], parse_time(data["sent_at"]))


def _version(data: Any) -> Version:
    return Version(
        version=data["version"],
        change=data["change"],
        status=data["status"],
        cause=str(data.get("cause") or ""),
        writer=str(data.get("writer") or ""),
        recorded_at=parse_time(data["recorded_at"]),
        value=data.get("value"),
        text=data.get("text"),
        valid_from=optional_time(data.get("valid_from")),
        valid_to=optional_time(data.get("valid_to")),
    )
