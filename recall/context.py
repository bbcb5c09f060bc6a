"""Context, the read side: gathers what is known for a question and has it assembled (SPEC R5, R6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, Protocol

from processors.context import Context, Item, Layer, RefKind, Surfaced, assemble, surfaced
from processors.context.assembly import DEFAULT_BUDGET
from processors.context.wording import Wording, wording
from processors.keywords import tokens
from processors.language import detect
from processors.session import Loop, Mask, Note, Said
from processors.session.digests import digest_of
from processors.session.said import one_line, shown
from processors.slots import slot_for
from recall.session import SessionMemory, SessionView
from schemas import Category, Memory, OwnerKind, Sensitivity, digest
from sinks.truth import Truth, sessions

Language = Literal["zh", "en"]

RETRIEVED_TOP: Final = 5
"""Experience and documents together (SPEC R5)."""
_HITS: Final = 10
_DECISIONS: Final = 5
_LOOPS: Final = 6
_ORDERS: Final = 4
_PROFILE: Final = ("nickname", "name", "occupation", "residence")
_EXPERIENCE: Final = frozenset({Category.EVENT, Category.TASK, Category.LESSON})


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that a recall found, best first; `score` in [0, 1]."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document; `version` is the document's."""

    id: str
    version: int
    title: str
    text: str
    date: datetime | None = None


class Memories(Protocol):
    """What the asker may read, and nothing else: whoever makes one has settled tenant, owner, grants and status."""

    def relevant(self, question: str, limit: int) -> Sequence[Hit]:
        """At most `limit` memories that answer the question, best first, quotas applied."""

    def held(self) -> Sequence[Memory]:
        """The person's active memories, for the profile and for what nobody asked for."""


class Documents(Protocol):
    """Documents that the asker may read."""

    def passages(self, question: str, limit: int) -> Sequence[Passage]:
        """At most `limit`, best first."""


@dataclass(frozen=True, slots=True)
class ContextQuestion:
    """What is asked. None: the session's own language and zone, else the question's language and UTC."""

    tenant: str
    owner: str
    question: str
    conversation_id: str | None = None
    budget: int = DEFAULT_BUDGET
    language: Language | None = None
    timezone: str | None = None
    turns: int = 6


@dataclass(frozen=True, slots=True)
class Built:
    """A context; `memories` by the number they have in its text, `surfaced` what was brought up unasked and why."""

    context: Context
    memories: Mapping[int, Memory]
    surfaced: tuple[Surfaced, ...] = ()
    session: SessionView | None = field(default=None, repr=False)


class ContextBuilder:
    """Builds contexts; blocks, and belongs in a thread."""

    def __init__(self, session: SessionMemory, mask: Mask, now: Callable[[], datetime]) -> None:
        self._session = session
        self._mask = mask
        self._now = now

    def build(self, asked: ContextQuestion, memories: Memories, documents: Documents | None = None) -> Built:
        """The context for one question.

        Raises:
            zoneinfo.ZoneInfoNotFoundError: `timezone` is none.
        """
        view = None
        if asked.conversation_id is not None:
            view = self._session.view(asked.tenant, asked.conversation_id, asked.owner, turns=asked.turns + 1)
        held = memories.held()
        language = asked.language or _language(asked.question, view)
        timezone = asked.timezone or _timezone(view, held)
        brought = surfaced(asked.question, held, now=self._now(), timezone=timezone)
        hits = [hit.memory for hit in memories.relevant(asked.question, _HITS)]
        passages = documents.passages(asked.question, RETRIEVED_TOP) if documents is not None else ()
        words = wording(language)
        items = [*self._of_session(view, asked, words)] if view is not None else []
        items += _of_memories(held, brought, hits, words, language)
        items = _top(items, [_of_passage(passage, words) for passage in passages])
        context = assemble(asked.question, items, language=language, timezone=timezone, budget=asked.budget)
        known = {memory.id: memory for memory in (*held, *hits)}
        cited = {n: known[c.id] for n, c in context.citations.items() if c.kind is RefKind.MEMORY}
        return Built(context, MappingProxyType(cited), brought, view)

    def _of_session(self, view: SessionView, asked: ContextQuestion, words: Wording) -> Iterator[Item]:
        said = _before_the_question(view.recent, asked.question)[-asked.turns :] if asked.turns else []
        for note in view.decisions[:_DECISIONS]:
            yield _of_note(note, Layer.DECISIONS, words.decision, words.session, words)
        question = one_line(asked.question)
        for loop in [loop for loop in reversed(view.loops) if loop.text not in question][:_LOOPS]:
            yield _of_loop(loop, words)
        made = words.summary[view.summary.method] if view.summary else words.session
        for note in view.facts:
            yield _of_note(note, Layer.SUMMARY, words.fact, made, words)
        for item in said:
            yield self._of_turn(item, words)

    def _of_turn(self, said: Said, words: Wording) -> Item:
        turn = said.turn
        return Item(
            layer=Layer.RECENT,
            ref_kind=RefKind.TURN,
            ref_id=turn.turn_id,
            version=turn.revision,
            text=self._mask(shown(turn)),
            short=digest_of(said, self._mask).text,
            type=words.turn,
            source=words.roles[turn.role],
            date=turn.sent_at,
        )


def _of_note(note: Note, layer: Layer, kind: str, source: str, words: Wording) -> Item:
    return Item(
        layer=layer,
        ref_kind=RefKind.TURN,
        ref_id=note.turn_id,
        version=note.sources[-1].revision,
        text=note.text,
        type=kind,
        source=source,
        date=note.said_at,
        label=words.roles[note.role],
    )


def _of_loop(loop: Loop, words: Wording) -> Item:
    return Item(
        layer=Layer.LOOPS,
        ref_kind=RefKind.TURN,
        ref_id=loop.turn_id,
        version=loop.revision,
        text=loop.text,
        type=words.loops[loop.kind],
        source=words.session,
        date=loop.said_at,
        label=words.roles[loop.role],
    )


def _of_memories(
    held: Sequence[Memory], brought: Sequence[Surfaced], hits: Sequence[Memory], words: Wording, language: Language
) -> list[Item]:
    """Unasked but needed first, then what answers the question, then standing orders and who the person is."""
    pinned = {item.memory.id for item in brought if item.pinned}
    orders = [m for m in held if m.category is Category.INSTRUCTION and m.expires_at is None][:_ORDERS]
    profile = [m for name in _PROFILE for m in held if m.attribute == name and m.subject == "user"]
    first = [item.memory for item in brought if item.pinned]
    others = [item.memory for item in brought if not item.pinned]
    ranked = dict.fromkeys(m.id for m in (*first, *hits, *others, *orders, *profile))
    by_id = {m.id: m for m in (*held, *hits)}
    return [_of_memory(by_id[key], words, language, pinned=key in pinned) for key in ranked]


def _of_memory(memory: Memory, words: Wording, language: Language, *, pinned: bool) -> Item:
    slot = slot_for(memory.attribute)
    label = (slot.label_zh if language == "zh" else slot.label_en) or memory.attribute.replace("_", " ")
    if memory.subject != "user":
        label = words.of_subject.format(label=label, subject=memory.subject)
    return Item(
        layer=Layer.RETRIEVED if memory.category in _EXPERIENCE else Layer.FACTS,
        ref_kind=RefKind.MEMORY,
        ref_id=memory.id,
        version=memory.version,
        text=memory.text or memory.value,
        type=f"{words.types[memory.type]}/{words.categories[memory.category]}",
        source=words.sources[memory.source_kind],
        date=memory.valid_from or memory.last_stated_at,
        until=memory.valid_to or memory.expires_at if memory.category is Category.INSTRUCTION else None,
        confidence=memory.confidence,
        label=label,
        pinned=pinned,
    )


def _of_passage(passage: Passage, words: Wording) -> Item:
    return Item(
        layer=Layer.RETRIEVED,
        ref_kind=RefKind.DOCUMENT,
        ref_id=passage.id,
        version=passage.version,
        text=passage.text,
        type=words.document,
        source=passage.title,
        date=passage.date,
    )


def _top(items: Sequence[Item], passages: Sequence[Item]) -> list[Item]:
    """Experience and documents share five places, a document after each two memories; pinned ones come first."""
    experience = [item for item in items if item.layer is Layer.RETRIEVED]
    free = [item for item in experience if not item.pinned]
    mixed: list[Item] = [item for item in experience if item.pinned]
    left = list(passages)
    for place, item in enumerate(free, start=1):
        mixed.append(item)
        if place % 2 == 0 and left:
            mixed.append(left.pop(0))
    return [*(item for item in items if item.layer is not Layer.RETRIEVED), *[*mixed, *left][:RETRIEVED_TOP]]


def _before_the_question(said: Sequence[Said], question: str) -> list[Said]:
    """The turns to show: no system prompt, nothing a framework injected, and not the question itself once more."""
    spoken = [item for item in said if not item.nobodys]
    if spoken and spoken[-1].by_user and one_line(spoken[-1].turn.text) == one_line(question):
        spoken.pop()
    return spoken


def _language(question: str, view: SessionView | None) -> Language:
    language = detect(question)
    if language in ("zh", "en"):
        return "zh" if language == "zh" else "en"
    if view is not None and view.recent:
        return view.language
    return "zh" if language == "mixed" else "en"


def _timezone(view: SessionView | None, held: Sequence[Memory]) -> str:
    if view is not None and view.recent:
        return view.timezone
    newest = max(held, key=lambda memory: (memory.last_stated_at, memory.id), default=None)
    return newest.timezone if newest is not None else "UTC"


class KeywordMemories:
    """A person's own memories from truth, found by keywords: what works without vectors, for operators and tests.

    Restricted memories are left out; superseded, expired and deleted ones are never in.
    """

    def __init__(self, truth: Truth, tenant: str, owner: str, now: Callable[[], datetime]) -> None:
        with truth.reading() as connection:
            found = sessions.standing_memories(connection, digest(tenant, OwnerKind.USER, owner), now())
        self._held = [memory for memory in found if memory.sensitivity is not Sensitivity.RESTRICTED]

    def held(self) -> Sequence[Memory]:
        """Newest first."""
        return self._held

    def relevant(self, question: str, limit: int) -> Sequence[Hit]:
        """Those that share words with the question, by the share of its words that they have."""
        asked = frozenset(tokens(question))
        hits = [Hit(memory, _share(asked, memory)) for memory in self._held]
        return sorted((hit for hit in hits if hit.score > 0), key=lambda hit: -hit.score)[:limit]


def _share(asked: Collection[str], memory: Memory) -> float:
    slot = slot_for(memory.attribute)
    words = set(tokens(f"{memory.text} {memory.value} {slot.label_zh} {slot.label_en}"))
    return len(words & set(asked)) / len(asked) if asked else 0.0
