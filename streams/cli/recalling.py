"""Command line, asking: `recall` and `explain`, for operators on the machine that holds the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from processors.access import Denied, Grant, OwnerRef, Principal, PrincipalKind, Reach, Scope, authorise_all
from processors.exceptions import PoisonError
from recall.explaining import Grounds, grounds_of
from recall.request import RecallItem, RecallRequest, RecallResult
from recall.screening import TurnScreen
from recall.service import RecallService
from schemas import Category, MemoryType, OwnerKind, Sensitivity
from sinks.truth import Truth, memories
from streams.cli.options import settings_at
from streams.cli.output import as_json, console, memory_view, table
from streams.gating import make_gate
from streams.runtime import open_truth, wall_clock
from streams.settings import Settings
from streams.vectors import open_collections, settle_live

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Data = Annotated[Path | None, typer.Option(help="a directory that `memriver process --data` filled")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("recall")(recall_)
    app.command("explain")(explain)


def recall_(
    query: Annotated[str, typer.Argument(help="the question")],
    owner: Annotated[str, typer.Option(help="whose memories (required: nobody's is never everybody's)")],
    tenant: Annotated[str, typer.Option(help="tenant of the owner")] = "default",
    org: Annotated[list[str] | None, typer.Option(help="organisations whose shared memories are looked at too")] = None,
    type: Annotated[list[MemoryType] | None, typer.Option(help="only these types")] = None,
    category: Annotated[list[Category] | None, typer.Option(help="only these categories")] = None,
    conversation: Annotated[str | None, typer.Option(help="conversation whose recent turns count")] = None,
    limit: Annotated[int, typer.Option(help="results at most, 1 to 20")] = 5,
    floor: Annotated[float | None, typer.Option(help="least relevance, 0 to 1; the embedder's if left out")] = None,
    as_of: Annotated[datetime | None, typer.Option(help="what held then, in UTC")] = None,
    show_parts: Annotated[bool, typer.Option("--explain", help="show where the scores come from")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """What is remembered about a question: at most a handful, current, with scores; or an honest nothing."""
    owners = [OwnerRef(OwnerKind.USER, owner), *(OwnerRef(OwnerKind.ORG, name) for name in org or [])]
    request = RecallRequest(
        reaches=operator_reaches(tenant, owners),
        query=query,
        now=wall_clock(),
        conversation_id=conversation,
        types=tuple(type or ()),
        categories=tuple(category or ()),
        limit=limit,
        floor=floor,
        as_of=as_of.replace(tzinfo=as_of.tzinfo or UTC) if as_of is not None else None,
        explain=show_parts,
    )
    settings = settings_at(data)
    with recall_service(settings) as service:
        result = service.recall(request)
    if json:
        as_json(result_view(result))
        return
    rows = [_row(item) for item in result.items]
    if rows:
        columns = ("score", "relevance", "kind", "what", "said", "id")
        table("Recalled", columns, rows)
    elif result.fallback is not None:
        console.print(result.fallback, markup=False)
    if result.clarification is not None:
        console.print(result.clarification.question, markup=False)


def explain(
    memory_id: Annotated[str, typer.Argument(help="the memory")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Where a memory comes from: its turns, who wrote it, what the policy decided, every version."""
    truth = open_truth(settings_at(data))
    try:
        with truth.reading() as connection:
            memory = memories.get(connection, memory_id)
            found = None
            if memory is not None:
                reaches = operator_reaches(memory.tenant, [OwnerRef(memory.owner_kind, memory.owner)], review=True)
                found = grounds_of(connection, memory_id, reaches)
    finally:
        truth.close()
    if found is None:
        raise PoisonError("not_found", "there is no memory with this id")
    view = _grounds_view(found)
    if json:
        as_json(view)
        return
    table("Memory", ("field", "value"), [(key, view["memory"][key]) for key in ("text", "status", "version", "owner")])
    table("Turns", ("said", "by", "text"), [(turn["sent_at"], turn["role"], turn["text"]) for turn in view["turns"]])
    table(
        "Versions", ("version", "change", "cause"), [(r["version"], r["change"], r["cause"]) for r in view["versions"]]
    )
    audit = found.memory.audit
    table(
        "Writer",
        ("writer", "decision", "policy", "reasons"),
        [(audit.writer, audit.decision, audit.policy_version, " ".join(audit.reasons))],
    )


def result_view(result: RecallResult) -> dict[str, Any]:
    """A result as programs read it."""
    asking = result.clarification
    return {
        "items": [_item_view(item) for item in result.items],
        "empty_reason": result.empty_reason,
        "fallback": result.fallback,
        "clarification": None
        if asking is None
        else {"question": asking.question, "candidates": list(asking.candidates)},
        "triggers": list(result.triggers),
        "degraded": list(result.degraded),
        "left_out": result.left_out,
    }


def _item_view(item: RecallItem) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": item.id,
        "kind": "memory" if item.memory is not None else "turn",
        "score": round(item.score, 4),
        "relevance": round(item.relevance, 4),
        "shared": item.shared,
        "stands_behind": item.stands_behind,
    }
    if item.memory is not None:
        view["memory"] = memory_view(item.memory)
    if item.turn is not None:
        names = ("conversation_id", "turn_id", "user_id", "role", "sent_at", "timezone", "text")
        view["turn"] = {name: getattr(item.turn, name) for name in names} | {"role": item.turn.role.value}
    if item.parts is not None:
        view["parts"] = {
            name: None if value is None else round(value, 4) for name, value in item.parts._asdict().items()
        }
        view["sources"] = list(item.sources)
    return view


def _row(item: RecallItem) -> tuple[Any, ...]:
    score, relevance = f"{item.score:.3f}", f"{item.relevance:.2f}"
    if item.memory is not None:
        memory = item.memory
        return score, relevance, memory.category.value, memory.text, memory.last_stated_at, memory.id
    assert item.turn is not None
    return score, relevance, "turn", item.turn.text, item.turn.sent_at, item.turn.turn_id


def _grounds_view(found: Grounds) -> dict[str, Any]:
    memory = found.memory
    return {
        "memory": memory_view(memory),
        "writer": memory.audit.model_dump(mode="json", exclude={"schema_version"}),
        "provenance": {name: item.model_dump(mode="json") for name, item in memory.provenance.items()},
        "turns": [
            {
                "turn_id": t.turn_id,
                "conversation_id": t.conversation_id,
                "role": t.role.value,
                "sent_at": t.sent_at,
                "text": t.text,
            }
            for t in found.turns
        ],
        "versions": [row | {"memory": memory_view(row["memory"])} for row in found.versions],
        "decisions": [dict(row) for row in found.decisions],
        "superseded_by": None if found.superseded_by is None else memory_view(found.superseded_by),
    }


def operator_reaches(tenant: str, owners: list[OwnerRef], *, review: bool = False) -> tuple[Reach, ...]:
    """An operator's reach: everything of the owners that were named, and of nobody else."""
    if not tenant or not all(owner.id for owner in owners):
        raise Denied(
            "owner_missing", "name a tenant and an owner; a request that names none is never answered with everything"
        )
    scopes = frozenset({Scope.READ, Scope.REVIEW} if review else {Scope.READ})
    grants = tuple(Grant(owner.kind, owner.id, scopes=scopes, sensitivity=Sensitivity.RESTRICTED) for owner in owners)
    operator = Principal(tenant, PrincipalKind.AGENT, "command-line", "", scopes, grants)
    return authorise_all(operator, Scope.READ, owners, wall_clock())


@contextmanager
def recall_service(settings: Settings) -> Iterator[RecallService]:
    """The recall service on the configured stores. Raises FatalError: another process owns an embedded vector store."""
    truth: Truth = open_truth(settings)
    try:
        opened = open_collections(settings, truth)
        try:
            settle_live(settings, truth, opened, wall_clock())
            yield RecallService(truth, opened, screen=TurnScreen(make_gate(settings)))
        finally:
            opened.close()
    finally:
        truth.close()
