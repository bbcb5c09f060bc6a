"""Command line, context: what an agent would be told before it answers; for operators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from processors.exceptions import PoisonError
from processors.policy.threats import ThreatScanner
from recall.context import Built, ContextBuilder, ContextQuestion, KeywordMemories
from recall.session import SessionMemory
from streams.cli.output import as_json
from streams.runtime import make_gate, open_truth, wall_clock
from streams.settings import Settings


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

    Memories are found by keywords in the database. For operators: it needs no key and reads any owner.
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
    built = _build(Settings(), asked)
    if json:
        as_json(_view(built))
    else:
        typer.echo(built.context.text)


def _zone(name: str | None) -> str | None:
    try:
        return ZoneInfo(name).key if name is not None else None
    except (KeyError, ValueError, OSError):
        raise PoisonError("invalid_option", "--timezone takes an IANA name such as Asia/Shanghai") from None


def _build(settings: Settings, asked: ContextQuestion) -> Built:
    gate, scanner, truth = make_gate(settings), ThreatScanner(), open_truth(settings)

    def mask(text: str) -> str:
        return gate.mask_text(text).text

    try:
        session = SessionMemory(truth, mask=mask, suspect=lambda text: bool(scanner.scan(text)), now=wall_clock)
        memories = KeywordMemories(truth, asked.tenant, asked.owner, wall_clock)
        return ContextBuilder(session, mask, wall_clock).build(asked, memories)
    finally:
        truth.close()


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
        "found_by": "keywords",
    }
