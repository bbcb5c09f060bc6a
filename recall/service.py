"""Recall, the service: filter, gather, rank, select, check once more; an honest nothing (SPEC R2–R8).

1. the question is read and embedded
2. the vector store is searched inside the caller's scope
3. truth is read in one transaction: candidates, turns, and the whole of what is chosen
4. ranking, newest first where a value changed, selection
5. each result is checked against truth: status, version, expiry, owner, namespace, sensitivity
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from processors.exceptions import FatalError, TransientError
from processors.recall import Question, Quotas, Ranked, Weights, clarify, fallback, newest_first, rank, select, triggers
from processors.recall.guidance import Guidance
from recall.candidates import (
    Breadth,
    Pool,
    Searched,
    cosines,
    gather,
    search,
    sources_of,
    statuses_of,
)
from recall.request import EmptyReason, RecallItem, RecallRequest, RecallResult
from recall.scales import floor_of, scales_of
from schemas import Memory, Turn
from sinks.truth import Truth, reading
from sinks.vectors.collection import Collection, LiveCollection

log = logging.getLogger("memriver.recall")

Screen = Callable[[str], str | None]
"""A raw turn's text as it may be shown (numbers masked), or None when it must not be: it orders the reader about."""

_OFFERED = 2
_TOLD_APART = 3
"""Times the limit: as many of the ranking's first are looked at when some fall away."""


class RecallService:
    """Answers questions. Blocking; callers on an event loop run it in a thread."""

    def __init__(
        self,
        truth: Truth,
        collections: LiveCollection,
        *,
        screen: Screen,
        weights: Weights | None = None,
        quotas: Quotas | None = None,
        breadth: Breadth | None = None,
        floor: float | None = None,
        hints: Callable[[Connection, str, datetime], Guidance] = lambda _connection, _tenant, _now: Guidance(),
    ) -> None:
        """`hints` are the tenant's approved ones (`recall.guidance`); without, none are followed."""
        self._hints = hints
        self._truth = truth
        self._collections = collections
        self._screen = screen
        self._weights = weights or Weights()
        self._quotas = quotas or Quotas()
        self._breadth = breadth or Breadth()
        self._floor = floor

    def recall(self, request: RecallRequest) -> RecallResult:
        """At most `request.limit` results.

        A vector store or an embedder that is away does not fail the recall: keywords and truth answer, and the result
        says what was missing. The question is embedded by the model of the collection that is searched: the two come as
        one, and stay so when another collection becomes the live one in the middle.

        Raises:
            TransientError: truth is away.
        """
        with self._collections.live() as collection:
            try:
                return self._answer(request, collection)
            except FatalError:
                self._collections.refresh()
                with self._collections.live() as other:
                    if other.name == collection.name:
                        raise
                    # The collection was dropped under the question, since another one is live by now.
                    return self._answer(request, other)

    def _answer(self, request: RecallRequest, collection: Collection) -> RecallResult:
        degraded: list[str] = []
        question = Question.of(request.query)
        vector = self._embed(collection, request.query, degraded)
        found = self._search(collection, request, vector, degraded)
        floor = floor_of(collection.calibration) if self._floor is None else self._floor
        with self._truth.reading() as connection:
            guidance = self._hints(connection, request.tenant, request.now)
            request = replace(request, limit=guidance.limit(request.agent, request.limit))
            floor = guidance.floor(request.agent, floor)
            pool = gather(connection, request, question, found, self._breadth)
            known = cosines(collection.store, collection.embedder, request, vector, found, pool, self._breadth)
            scales = scales_of(collection.calibration)
            ranking = rank(question, pool.units, known, scales, now=request.now.timestamp(), weights=self._weights)
            ordered = newest_first(question, guidance.follow(question, ranking), window=request.limit)
            result = self._result(connection, request, question, ordered, pool, tuple(degraded), floor)
        if not guidance.confirm:
            return result
        return replace(result, items=tuple(_to_confirm(item, guidance) for item in result.items))

    def _embed(self, collection: Collection, text: str, degraded: list[str]) -> Sequence[float] | None:
        try:
            return collection.embedder.embed_query(text)
        except TransientError as error:
            log.warning("recall without vectors: the embedder is away (%s)", type(error).__name__)
            degraded.append("embedder")
            return None

    def _search(
        self, collection: Collection, request: RecallRequest, vector: Sequence[float] | None, degraded: list[str]
    ) -> Searched:
        try:
            return search(collection.store, request, vector, self._breadth)
        except TransientError as error:
            log.warning("recall from truth alone: the vector store is away (%s)", type(error).__name__)
            degraded.append("vectors")
            return Searched({}, ())

    def _result(
        self,
        connection: Connection,
        request: RecallRequest,
        question: Question,
        ordered: Sequence[Ranked],
        pool: Pool,
        degraded: tuple[str, ...],
        floor: float,
    ) -> RecallResult:
        floor = floor if request.floor is None else request.floor
        quotas = self._quotas.without(request.categories)
        cleared, shown = self._cleared(connection, request, ordered, pool, floor)
        chosen = select(cleared, limit=request.limit, floor=floor, quotas=quotas)
        items = tuple(_item(ranked, shown) for ranked in chosen.chosen)
        if request.explain:
            items = tuple(
                replace(item, parts=ranked.parts, sources=sources_of(ranked, question, pool))
                for item, ranked in zip(items, chosen.chosen, strict=True)
            )
        pointing = tuple(trigger.word for trigger in triggers(request.query))
        # Whoever asks for "that restaurant" means something that was said; a question about the world is not turned back.
        asking = clarify(request.query, chosen.chosen or cleared, floor=floor) if pointing or items else None
        reason = None
        if not items:
            reason = EmptyReason.NOTHING_RELEVANT if pool.units or self._any(connection, request) else None
            reason = reason or EmptyReason.NOTHING_STORED
        return RecallResult(
            items=items,
            empty_reason=reason,
            fallback=fallback(request.query) if not items else None,
            clarification=asking,
            triggers=pointing,
            degraded=degraded,
            left_out=dict(chosen.left_out) if request.explain else {},
        )

    def _any(self, connection: Connection, request: RecallRequest) -> bool:
        owners = [reach.owner_key for reach in request.reaches]
        return reading.any_held(connection, owners, [status.value for status in statuses_of(request)])

    def _cleared(
        self, connection: Connection, request: RecallRequest, ordered: Sequence[Ranked], pool: Pool, floor: float
    ) -> tuple[list[Ranked], dict[str, Memory | Turn]]:
        """The first of the ranking that truth lets go, with what they are; read whole in one statement."""
        wanted = [item for item in ordered if item.parts.relevance >= floor][: request.limit * _TOLD_APART]
        if not wanted:
            # For the clarifying question, which may offer what is almost good enough.
            wanted = sorted(ordered, key=lambda item: -item.parts.relevance)[:_OFFERED]
        held = reading.whole(connection, [item.unit.id for item in wanted if item.unit.id in pool.versions])
        cleared: list[Ranked] = []
        shown: dict[str, Memory | Turn] = {}
        for item in wanted:
            name = item.unit.id
            thing: Memory | Turn | None
            if name in pool.turns:
                thing = self._screened(pool.turns[name])
            else:
                thing = held.get(name)
                if thing is not None and not may_leave(thing, request, pool.versions[name]):
                    thing = None
            if thing is not None:
                cleared.append(item)
                shown[name] = thing
        return cleared, shown

    def _screened(self, turn: Turn) -> Turn | None:
        text = self._screen(turn.text)
        if text is None:
            return None
        return turn if text == turn.text else turn.model_copy(update={"text": text})


def may_leave(memory: Memory, request: RecallRequest, version: int) -> bool:
    """The last look at a memory's whole state, whatever the searches said of it."""
    if memory.version != version or memory.status not in statuses_of(request):
        return False
    if not any(reach.covers(memory) for reach in request.reaches):
        return False
    if request.as_of is not None:
        return _held_at(memory, request.as_of)
    return memory.expires_at is None or memory.expires_at > request.now


def _held_at(memory: Memory, at: datetime) -> bool:
    if memory.expires_at is not None and memory.expires_at <= at:
        return False
    return any(span.start <= at and (span.end is None or at < span.end) for span in memory.intervals)


def _to_confirm(item: RecallItem, guidance: Guidance) -> RecallItem:
    asked = item.memory is not None and item.memory.attribute in guidance.confirm
    return replace(item, confirm=True) if asked else item


def _item(ranked: Ranked, shown: dict[str, Memory | Turn]) -> RecallItem:
    thing = shown[ranked.unit.id]
    return RecallItem(
        id=ranked.unit.id,
        score=ranked.score,
        relevance=ranked.parts.relevance,
        memory=thing if isinstance(thing, Memory) else None,
        turn=thing if isinstance(thing, Turn) else None,
        shared=ranked.unit.shared,
        stands_behind=ranked.stands_behind,
    )
