"""Command line, replay: the log judged once more beside the live memories, compared with them, put in their place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from processors.exceptions import PoisonError
from streams.cli.admin import replay_batches
from streams.cli.embedded import quiet_logs
from streams.cli.output import as_json, console, errors, table
from streams.replay.building import default_topic
from streams.replay.comparing import Comparison, Kind, by_owner
from streams.replay.judging import chosen
from streams.replay.merging import Merged, report
from streams.replay.operating import Operator, Status
from streams.replay.run import Position
from streams.runtime import wall_clock
from streams.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
_SHOWN = 200
_STEPS: tuple[Kind, ...] = ("added", "gone", "changed")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Doing again what was kept.", no_args_is_help=True)
    for name, command in (
        ("start", start),
        ("status", status),
        ("diff", diff),
        ("switch", switch),
        ("rollback", rollback),
        ("drop", drop),
        ("batches", replay_batches),
    ):
        group.command(name)(command)
    app.add_typer(group, name="replay")


def start(
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="all that the log holds")] = False,
    since: Annotated[str | None, typer.Option(help="only what was published from this time on (ISO 8601)")] = None,
    rules: Annotated[
        str | None, typer.Option(help="version, file or folder of rules; the packaged ones if left out")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="version of the prompt; the present one if left out")] = None,
    topic: Annotated[str | None, typer.Option(help="turns or turns.sealed; the sealed one if it is there")] = None,
    json: Json = False,
) -> None:
    """Judge the log again into a schema beside the live one. Given again, it goes on: after a death, or to catch up."""
    moment = _moment(from_beginning, since)
    settings = _quiet()
    judging, before = chosen(rules, prompt), chosen()
    with _bar(json) as show:

        async def run() -> Status:
            log = topic or await default_topic(settings)
            return await Operator(settings, now=wall_clock).start(judging, before, topic=log, since=moment, report=show)

        found = asyncio.run(run())
    _print_status(found, json)


def status(json: Json = False) -> None:
    """How far it is, where the answers of the model came from, and what there is to do."""
    _print_status(asyncio.run(Operator(_quiet(), now=wall_clock).status()), json)


def diff(
    limit: Annotated[int, typer.Option(min=0, help="differences that are listed one by one")] = _SHOWN,
    json: Json = False,
) -> None:
    """Memories that would come, go or change with a switch; after one, with a rollback. For operators: it sees every owner."""
    found = Operator(_quiet(), now=wall_clock).diff(limit=limit)
    if json:
        as_json(_diff_view(found))
        return
    _print_diff(found)


def switch(json: Json = False) -> None:
    """Catch up, and put the replayed memories in the place of the live ones, all at once. Stop the workers first."""
    with _bar(json) as show:
        merged = asyncio.run(Operator(_quiet(), now=wall_clock).switch(show))
    _print_merged(merged, json, "switched; start the workers, they send what is different to agents and vectors")


def rollback(json: Json = False) -> None:
    """Back to the memories before the switch, with what was said since. Stop the workers first."""
    with _bar(json) as show:
        merged = asyncio.run(Operator(_quiet(), now=wall_clock).rollback(show))
    _print_merged(merged, json, "rolled back; start the workers, they send what is different to agents and vectors")


def drop(json: Json = False) -> None:
    """Away with the schema beside the live one; after a switch that is the way back."""
    Operator(_quiet(), now=wall_clock).drop()
    if json:
        as_json({"dropped": True})
    else:
        console.print("dropped")


def _quiet() -> Settings:
    quiet_logs("ERROR")
    return Settings()


def _moment(from_beginning: bool, since: str | None) -> datetime | None:
    if from_beginning == (since is not None):
        raise PoisonError("invalid_option", "give either --from-beginning or --since TIME")
    if since is None:
        return None
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise PoisonError(
            "invalid_option", f"--since takes a time such as 2026-03-01T00:00:00Z, not {since!r}"
        ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@contextmanager
def _bar(json: bool) -> Iterator[Callable[[Position], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=json or not errors.is_terminal) as bar:
        job = bar.add_task("turns", total=None, rate="")

        def show(position: Position) -> None:
            bar.update(job, total=position.done + position.left, completed=position.done)
            speed = bar.tasks[0].speed
            rate = f"{speed:.0f}/s" if speed else ""
            bar.update(job, description=f"turns of {position.clock:%Y-%m-%d}", rate=rate)

        yield show


def _status_view(found: Status) -> dict[str, Any]:
    progress = found.progress
    return {
        "state": _state(found),
        "running": found.running,
        "topic": found.plan.topic,
        "since": found.plan.since,
        "rules": found.plan.judging.rules_version,
        "prompt": found.plan.judging.prompt,
        "clock": progress.clock if progress.turns else None,
        "caught_up_at": progress.caught_up_at,
        "left": found.left,
        **found.counts,
    }


def _state(found: Status) -> str:
    if found.switched:
        return "switched"
    return "caught_up" if found.progress.caught_up_at is not None and found.left in (0, None) else "behind"


def _print_status(found: Status, json: bool) -> None:
    view = _status_view(found)
    if json:
        as_json(view)
        return
    counts = view.pop("batches")
    rows = [*view.items(), *((f"batches {name}", count) for name, count in counts.items())]
    table("Replay", ("what", ""), rows)
    if counts["waiting"]:
        console.print(
            f"{counts['waiting']} batches wait for the model: what it would find in them is missing here; with "
            "MEMRIVER_MODEL_BASE_URL set, `memriver replay start` asks it"
        )


def _diff_view(found: Comparison) -> dict[str, Any]:
    return {
        "sum": found.total.report() | {"same": found.same},
        "owners": [{"tenant": tenant, "owner": owner, **counts.report()} for tenant, owner, counts in by_owner(found)],
        "differences": [asdict(item) for item in found.differences],
    }


def _print_diff(found: Comparison) -> None:
    rows = [
        (tenant, owner, *(counts.current[step] for step in _STEPS), sum(counts.history.values()))
        for tenant, owner, counts in by_owner(found)
    ]
    table("Differences", ("tenant", "owner", *_STEPS, "in history"), rows)
    table(
        "One by one",
        ("owner", "memory", "attribute", "value", "", "fields", "live", "replayed"),
        [
            (
                item.owner,
                item.memory_id,
                item.attribute,
                item.value,
                item.kind if item.current else f"{item.kind} (history)",
                ", ".join(item.fields),
                item.live_status,
                item.replayed_status,
            )
            for item in found.differences
        ],
    )
    total = found.total.current
    console.print(
        f"{total['added']} added, {total['gone']} gone, {total['changed']} changed; "
        f"{sum(found.total.history.values())} in history; {found.same} the same"
    )


def _print_merged(merged: Merged, json: bool, said: str) -> None:
    view = report(merged)
    if json:
        as_json(view)
        return
    table("Events that will leave", ("change", "memories"), sorted(merged.events.items()))
    console.print(f"{said} ({view['unchanged']} memories are the same)", markup=False)
