"""Command line, context: what an agent would be told before it answers; for operators."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from processors.access import OwnerRef
from processors.exceptions import FatalError, PoisonError, TransientError
from processors.policy.threats import ThreatScanner
from recall.context import Built, ContextBuilder, ContextQuestion, Hit, KeywordMemories
from recall.request import MAX_LIMIT, RecallRequest
from recall.service import RecallService
from recall.session import SessionMemory
from schemas import Memory, OwnerKind, Sensitivity
from streams.cli.output import as_json
from streams.cli.recalling import operator_reaches, recall_service
from streams.gating import make_gate
from streams.runtime import open_truth, wall_clock
from streams.settings import Settings

log = logging.getLogger("memriver.context")


class Frame(StrEnum):
    """The language of the words around the memories."""

    ZH = "zh"
    EN = "en"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("context")(context)


def context(
    question: Annotated[str, typer.Argument(help="what the user asks")],
    owner: Annotated[str, typer.Option(help="whose memories (required: nobody's is never everybody's)")],
    conversation: Annotated[str | None, typer.Option(help="conversation that the question belongs to")] = None,
    tenant: Annotated[str, typer.Option(help="tenant of the owner")] = "default",
    budget: Annotated[int, typer.Option(min=1, max=200_000, help="tokens at most")] = 1_500,
    language: Annotated[Frame | None, typer.Option(help="of the frame; the question's own if left out")] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA zone of the dates; the owner's if left out")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """The context for a question: session, memories and what nobody asked for, within a budget.

    Memories are found as a recall finds them, with the configured embedder; by keywords in the database alone where another
    process owns the vectors. For operators: it needs no key and reads any owner.
    """
    if not owner.strip() or not question.strip():
        raise PoisonError("invalid_option", "an owner and a question are needed")
    asked = ContextQuestion(
        tenant=tenant,
        owner=owner,
        question=question,
        conversation_id=conversation,
        budget=budget,
        language="zh" if language is Frame.ZH else "en" if language is Frame.EN else None,
        timezone=_zone(timezone),
    )
    built, found_by = _build(Settings(), asked)
    if json:
        as_json(_view(built) | {"found_by": found_by})
    else:
        typer.echo(built.context.text)


def _zone(name: str | None) -> str | None:
    try:
        return ZoneInfo(name).key if name is not None else None
    except (KeyError, ValueError, OSError):
        raise PoisonError("invalid_option", "--timezone takes an IANA name such as Asia/Shanghai") from None


def _build(settings: Settings, asked: ContextQuestion) -> tuple[Built, str]:
    gate, scanner, truth = make_gate(settings), ThreatScanner(), open_truth(settings)

    def mask(text: str) -> str:
        return gate.mask_text(text).text

    with ExitStack() as stack:
        stack.callback(truth.close)
        session = SessionMemory(truth, mask=mask, suspect=lambda text: bool(scanner.scan(text)), now=wall_clock)
        held = KeywordMemories(truth, asked.tenant, asked.owner, wall_clock)
        builder = ContextBuilder(session, mask, wall_clock)
        try:
            service = stack.enter_context(recall_service(settings))
        except (FatalError, TransientError) as error:
            log.warning("without vectors: %s", error)
            return builder.build(asked, held), "keywords"
        return builder.build(asked, _Recalled(service, held, asked)), "recall"


class _Recalled:
    """`recall.context.Memories` of one owner by the recall service."""

    def __init__(self, service: RecallService, held: KeywordMemories, asked: ContextQuestion) -> None:
        self._service, self._held, self._asked = service, held, asked

    def held(self) -> Sequence[Memory]:
        """All that stands."""
        return self._held.held()

    def relevant(self, question: str, limit: int) -> Sequence[Hit]:
        """Best first."""
        request = RecallRequest(
            reaches=operator_reaches(self._asked.tenant, [OwnerRef(OwnerKind.USER, self._asked.owner)]),
            query=question,
            now=wall_clock(),
            conversation_id=self._asked.conversation_id,
            limit=min(limit, MAX_LIMIT),
        )
        result = self._service.recall(request)
        found = [Hit(item.memory, item.score) for item in result.items if item.memory is not None]
        return [hit for hit in found if hit.memory.sensitivity is not Sensitivity.RESTRICTED]


def _view(built: Built) -> dict[str, Any]:
    made = built.context
    summary = built.session.summary if built.session else None
    return {
        "text": made.text,
        "language": made.language,
        "tokens": made.tokens,
        "budget": made.budget,
        "over_budget": made.over_budget,
        "citations": [
            {"number": n, "kind": c.kind.value, "id": c.id, "version": c.version, "layer": c.layer.value}
            for n, c in made.citations.items()
        ],
        "dropped": {layer.value: count for layer, count in made.dropped.items()},
        "shortened": made.shortened,
        "surfaced": [{"id": item.memory.id, "why": item.why} for item in built.surfaced],
        "summary": {"method": summary.method, "turns": summary.turns} if summary else None,
    }
