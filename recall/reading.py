"""Reading: recall, session and context put behind the verbs, each kept within what the caller reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from processors.access import Reach
from recall.context import ContextBuilder, ContextQuestion, Hit
from recall.request import RecallRequest, RecallResult
from recall.requests import ContextAsked, RecallAsked
from recall.service import RecallService
from recall.session import SessionMemory
from recall.verbs import Context, Found, Recalled
from schemas import Memory
from sinks.truth import Truth, sessions

_DIGEST_TURNS = 10


class MemoryReader:
    """`recall.verbs.Reader`, by the recall service, the context builder and the session memory."""

    def __init__(self, truth: Truth, service: RecallService, builder: ContextBuilder, session: SessionMemory) -> None:
        self._truth = truth
        self._service = service
        self._builder = builder
        self._session = session

    def recall(self, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> Recalled:
        """See `RecallService.recall`."""
        result = self._ask(reaches, asked, asked.query, asked.limit, now)
        found = tuple(
            Found(
                item.score,
                item.memory,
                item.turn,
                item.parts._asdict() if item.parts is not None else {},
                item.sources,
                item.confirm,
            )
            for item in result.items
        )
        clarify = asdict(result.clarification) if result.clarification is not None else None
        return Recalled(found, result.fallback, clarify, result.degraded)

    def context(self, reaches: Sequence[Reach], asked: ContextAsked, now: datetime) -> Context:
        """See `ContextBuilder.build`. A session is a person's: it is looked at where that person's all is reached."""
        question = ContextQuestion(
            tenant=reaches[0].tenant,
            owner=asked.owner,
            question=asked.query,
            conversation_id=asked.conversation_id,
            budget=asked.budget_tokens,
            language=asked.language,
            timezone=asked.timezone if "timezone" in asked.model_fields_set else None,
        )
        # The text's numbers count turns and documents too; `memories` has those that are memories', under the same numbers.
        built = self._builder.build(question, _Reached(self, reaches, asked, now))
        return Context(built.context.text, built.context.tokens, dict(built.memories))

    async def summarize(self, tenant: str, conversation_id: str, owner: str, now: datetime) -> Mapping[str, Any]:
        """See `SessionMemory.refresh` and `view`; masked, and extractive where no model made it, which `method` says."""
        await self._session.refresh(tenant, conversation_id, force=True)
        view = await asyncio.to_thread(self._session.view, tenant, conversation_id, owner, turns=_DIGEST_TURNS)
        summary = view.summary
        return {
            "method": summary.method if summary is not None else None,
            "turns": summary.turns if summary is not None else 0,
            "unsummarised": view.unsummarised,
            "facts": [note.text for note in view.facts],
            "decisions": [note.text for note in view.decisions],
            "open_loops": [loop.text for loop in view.loops],
            "key_points": [note.text for note in view.key_points],
            "digests": [digest.text for digest in view.digests],
        }

    def held(self, reaches: Sequence[Reach], now: datetime) -> list[Memory]:
        """What stands of these owners, as far as it is reached."""
        found: list[Memory] = []
        with self._truth.reading() as connection:
            for reach in reaches:
                standing = sessions.standing_memories(connection, reach.owner_key, now)
                found += [memory for memory in standing if reach.covers(memory)]
        return found

    def relevant(
        self, reaches: Sequence[Reach], asked: RecallAsked, query: str, limit: int, now: datetime
    ) -> list[Hit]:
        """Memories that answer the question."""
        result = self._ask(reaches, asked, query, limit, now)
        return [Hit(item.memory, item.score) for item in result.items if item.memory is not None]

    def _ask(self, reaches: Sequence[Reach], asked: RecallAsked, query: str, limit: int, now: datetime) -> RecallResult:
        request = RecallRequest(
            reaches=tuple(reaches),
            query=query,
            now=now,
            agent=asked.agent_id,
            conversation_id=asked.conversation_id,
            types=asked.types,
            limit=limit,
            explain=asked.explain,
        )
        return self._service.recall(request)


class _Reached:
    """`recall.context.Memories` for one request."""

    def __init__(self, reader: MemoryReader, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> None:
        self._reader, self._reaches, self._asked, self._now = reader, reaches, asked, now

    def held(self) -> Sequence[Memory]:
        """Private ones first."""
        return self._reader.held(self._reaches, self._now)

    def relevant(self, question: str, limit: int) -> Sequence[Hit]:
        """Best first."""
        return self._reader.relevant(self._reaches, self._asked, question, limit, self._now)
