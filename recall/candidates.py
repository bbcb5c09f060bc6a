"""Recall, candidates: from the vector store and from truth, inside the caller's reaches (SPEC R2, R3, R8).

Vectors are searched first and truth is read after, in one transaction: what truth says then is what counts. A point whose
version is not truth's, or that is not there yet, is scored by embedding the text that truth has.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from processors.access import SHARED, Reach, within
from processors.exceptions import TransientError
from processors.keywords import normalise, sparse_query
from processors.language import detect
from processors.ports import Embedder
from processors.recall import Kind, Question, Ranked, Unit
from processors.slots import known_slots
from recall.request import RecallRequest
from schemas import Cardinality, Category, MemoryType, OwnerKind, Sensitivity, Status, Turn, digest
from sinks.embedders.exceptions import RefusedTexts
from sinks.truth import reading
from sinks.vectors import Hit, Scope, VectorStore

log = logging.getLogger("memriver.recall")

_RANK: dict[str, int] = {level: rank for rank, level in enumerate(Sensitivity)}
_TYPES: dict[str, MemoryType] = {kind: kind for kind in MemoryType}
_CATEGORIES: dict[str, Category] = {category: category for category in Category}
_HISTORY = (Status.ACTIVE, Status.SUPERSEDED, Status.EXPIRED, Status.DEMOTED, Status.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Breadth:
    """How far to look. Counts of candidates per source; `embedded` is how many unknown texts one request may embed."""

    # All of most people's: a hundred memories are usual, and a second search for their cosines is saved.
    dense: int = 120
    sparse: int = 40
    newest: int = 40
    turns: int = 30
    embedded: int = 8


@dataclass(frozen=True, slots=True)
class Searched:
    """What the vector store said: cosines and versions by id, and ids found by keyword.

    `complete`: everything in scope is among `dense`, so a second search would find nothing more.
    """

    dense: Mapping[str, Hit]
    sparse: tuple[str, ...]
    complete: bool = False

    @property
    def ids(self) -> list[str]:
        """All of them, once."""
        return list(dict.fromkeys([*self.dense, *self.sparse]))


@dataclass(frozen=True, slots=True)
class Pool:
    """Units to rank; the turns among them by unit id, and the version that truth has of each memory.

    `named` are the memories whose value or subject stands in the question.
    """

    units: tuple[Unit, ...]
    turns: Mapping[str, Turn]
    versions: Mapping[str, int]
    named: frozenset[str] = frozenset()


def search(store: VectorStore, request: RecallRequest, vector: Sequence[float] | None, breadth: Breadth) -> Searched:
    """Both searches within the request's scope. Raises TransientError while the store is away."""
    scope = scope_of(request)
    dense = {hit.id: hit for hit in store.search_dense(vector, scope, breadth.dense)} if vector is not None else {}
    if 0 < len(dense) < breadth.dense:
        # That was everything in scope: a search by keyword could only find some of it again.
        return Searched(dense, (), complete=True)
    query = sparse_query(request.query)
    return Searched(dense, tuple(hit.id for hit in store.search_sparse(query, scope, breadth.sparse)))


def scope_of(request: RecallRequest) -> Scope:
    """The filter inside the vector store: tenant, owners, namespaces, statuses, kinds and expiry, none of them empty."""
    names = [f"{reach.owner.root}{segment}" for reach in request.reaches for segment, _ in reach.segments]
    return Scope(
        tenant=request.tenant,
        owner_keys=tuple(dict.fromkeys(reach.owner_key for reach in request.reaches)),
        namespaces=tuple(dict.fromkeys(names)),
        statuses=tuple(status.value for status in statuses_of(request)),
        types=tuple(kind.value for kind in request.types) or None,
        categories=tuple(category.value for category in request.categories) or None,
        not_expired_at=None if request.as_of is not None else request.now.timestamp(),
    )


def statuses_of(request: RecallRequest) -> tuple[Status, ...]:
    """The statuses to look at; the past is in the superseded ones too."""
    return tuple(dict.fromkeys([*request.statuses, *_HISTORY])) if request.as_of is not None else request.statuses


def gather(
    connection: Connection,
    request: RecallRequest,
    question: Question,
    found: Searched,
    breadth: Breadth,
) -> Pool:
    """Read truth: rows behind the hits, in the slots and with the names of the question, the newest, and turns not yet
    extracted."""
    by_owner = {reach.owner_key: reach for reach in request.reaches}
    plain = normalise(request.query)
    rows = reading.candidates(
        connection,
        list(by_owner),
        [status.value for status in statuses_of(request)],
        ids=found.ids,
        attributes=question.slots,
        question=plain,
        # Who has few memories has all of them read at once.
        newest=breadth.newest + breadth.dense if found.complete else breadth.newest,
    )
    kept = [row for row in rows.values() if _may_be_seen(row, by_owner[row.owner_key], request)]
    units = [_unit_of(row, by_owner[row.owner_key]) for row in kept]
    said = _turns(connection, request, breadth) if _wants_turns(request) else []
    spoken = _units_of_turns(said)
    return Pool(
        (*units, *spoken),
        {unit.id: turn for unit, turn in zip(spoken, said, strict=True)},
        {row.id: row.version for row in kept},
        frozenset(row.id for row in kept if _is_named(plain, row)),
    )


def _is_named(plain: str, row: reading.Candidate) -> bool:
    names = (row.value, row.subject if row.subject != reading.SELF else "")
    return any(2 <= len(name) <= reading.LONGEST_NAME and name.lower() in plain for name in names)


def sources_of(item: Ranked, question: Question, pool: Pool) -> tuple[str, ...]:
    """What proposed it: `turn`, `slot` and `triple` (named by the question), `dense`, `keyword`; `newest` if nothing else."""
    unit = item.unit
    proposed = {
        "turn": unit.kind is Kind.TURN,
        "slot": bool(unit.attribute) and unit.attribute in question.slots,
        "triple": unit.id in pool.named,
        "dense": item.parts.cosine is not None,
        "keyword": bool(item.holds),
    }
    return tuple(name for name, so in proposed.items() if so) or ("newest",)


def cosines(
    store: VectorStore,
    embedder: Embedder,
    request: RecallRequest,
    vector: Sequence[float] | None,
    found: Searched,
    pool: Pool,
    breadth: Breadth,
) -> list[float | None]:
    """The cosine of each unit to the question; None where it is not known and too many texts would have to be embedded."""
    if vector is None:
        return [None] * len(pool.units)
    known = {name: hit.score for name, hit in found.dense.items() if hit.version == pool.versions.get(name)}
    asked = [name for name in pool.versions if name not in known and name not in found.dense]
    if asked and not found.complete:
        scope = _only(scope_of(request), asked)
        try:
            hits = store.search_dense(vector, scope, len(asked))
        except TransientError:
            hits = []
        known |= {hit.id: hit.score for hit in hits if hit.version == pool.versions.get(hit.id)}
    missing = [unit for unit in pool.units if unit.id not in known]
    # Memories before turns, and the newest of each: a memory's vector is missing for a moment only.
    missing.sort(key=lambda unit: (unit.kind is Kind.TURN, -unit.at))
    chosen = missing[: breadth.embedded]
    for unit, text_vector in zip(chosen, _embedded(embedder, [unit.passage for unit in chosen]), strict=True):
        if text_vector is not None:
            known[unit.id] = sum(a * b for a, b in zip(vector, text_vector, strict=True))
    return [known.get(unit.id) for unit in pool.units]


def _embedded(embedder: Embedder, texts: list[str]) -> Sequence[Sequence[float] | None]:
    if not texts:
        return []
    try:
        return embedder.embed_documents(texts)
    except RefusedTexts as error:
        return error.vectors
    except TransientError:
        return [None] * len(texts)


def _only(scope: Scope, ids: Sequence[str]) -> Scope:
    return Scope(
        scope.tenant,
        scope.owner_keys,
        scope.namespaces,
        scope.statuses,
        scope.types,
        scope.categories,
        scope.attributes,
        tuple(ids),
        scope.not_expired_at,
    )


def _may_be_seen(row: reading.Candidate, reach: Reach, request: RecallRequest) -> bool:
    at = request.as_of or request.now
    if request.as_of is None and row.expires_at is not None and row.expires_at <= at:
        return False
    if request.types and row.type not in request.types:
        return False
    if request.categories and row.category not in request.categories:
        return False
    level = _RANK[row.sensitivity]
    return any(
        within(row.namespace, reach.owner.root, segment) and level <= _RANK[ceiling]
        for segment, ceiling in reach.segments
    )


def _unit_of(row: reading.Candidate, reach: Reach) -> Unit:
    slot = known_slots().get(row.attribute)
    single = slot is not None and slot.cardinality is Cardinality.SINGLE
    return Unit(
        id=row.id,
        text=row.text,
        # The value is searched like the text, as it is in the vector store.
        aside="" if row.value in row.text else row.value[:_ASIDE],
        at=row.last_stated_at.timestamp(),
        language=row.language,
        owner=row.owner_key,
        shared=reach.owner.kind in SHARED,
        slot=row.slot_key if single else "",
        attribute=row.attribute,
        type=_TYPES[row.type],
        category=_CATEGORIES[row.category],
        confidence=row.confidence,
        heat=_heat(row.used),
        subject="" if row.subject == reading.SELF else row.subject,
    )


_ASIDE = 1_000
_UNJUDGED = 0.5
"""Confidence in a raw turn: a joke, a wish and a fact look alike until they are extracted."""
_OFTEN = 20


def _heat(used: int) -> float:
    """0 for never, 0.5 for five times, 1 from twenty on: the second use says more than the twentieth.

    What agents said that they used, not what was handed out: what is recalled and ignored again and again would climb by
    being recalled.
    """
    return float(min(1.0, (used / _OFTEN) ** 0.5))


def _wants_turns(request: RecallRequest) -> bool:
    """Turns have no type, category or history: a request that asks for those is not about them."""
    return not request.types and not request.categories and request.as_of is None and Status.ACTIVE in request.statuses


def _turns(connection: Connection, request: RecallRequest, breadth: Breadth) -> list[Turn]:
    """Turns of people whose every namespace is within reach: what will come out of a turn is not known yet."""
    owners = [
        reach.owner_key
        for reach in request.reaches
        if reach.owner.kind is OwnerKind.USER and any(segment == "" for segment, _ in reach.segments)
    ]
    if not owners:
        return []
    found = reading.unextracted_turns(connection, owners, breadth.turns)
    if request.conversation_id is not None:
        key = digest(request.tenant, request.conversation_id)
        found = [*reading.turns_of_conversation(connection, key, owners, breadth.turns), *found]
    unique = {turn.turn_key: turn for turn in found if _tells(turn, request.query, request.now)}
    return sorted(unique.values(), key=lambda turn: (turn.sent_at, turn.turn_id))


def _tells(turn: Turn, query: str, now: datetime) -> bool:
    if turn.deleted or turn.consent is False or not turn.text.strip() or turn.sent_at > now:
        return False
    # The question itself, which the gateway published too, is no answer to itself.
    return turn.text.strip() != query.strip()


def _units_of_turns(said: Collection[Turn]) -> list[Unit]:
    positions: dict[str, int] = {}
    units: list[Unit] = []
    for turn in said:
        # Two apart: the assistant's answer stood in between, which is not among them.
        position = positions[turn.conversation_key] = positions.get(turn.conversation_key, -2) + 2
        summaries = " ".join(item.summary for item in turn.attachments if item.summary)
        units.append(
            Unit(
                id=turn.turn_key,
                text=turn.text,
                kind=Kind.TURN,
                at=turn.sent_at.timestamp(),
                language=detect(turn.text),
                speaker=turn.speaker_name or "",
                aside=summaries,
                group=turn.conversation_key,
                position=position,
                owner=turn.owner_key,
                confidence=_UNJUDGED,
            )
        )
    return units
