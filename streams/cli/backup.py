"""Command line, backup: truth into one file and back, and the events topic brought up to truth."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from processors.exceptions import PoisonError
from sinks.truth.migrate import current
from streams.backup.file import Manifest
from streams.backup.positions import Place, positions, reset
from streams.backup.republish import republish
from streams.backup.taking import look, restore, take
from streams.cli.embedded import quiet_logs
from streams.cli.output import as_json, console
from streams.portability.signing import Signer
from streams.runtime import open_truth, settings_url, wall_clock
from streams.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("backup")(backup)
    app.command("restore")(restore_file)
    group = typer.Typer(help="The topic that agents follow.", no_args_is_help=True)
    group.callback()(lambda: None)
    group.command("republish")(events_republish)
    app.add_typer(group, name="events")


def backup(
    file: Annotated[Path, typer.Argument(help="file to write; it holds everything, so keep it encrypted")],
    without_positions: Annotated[
        bool, typer.Option("--without-positions", help="ask no broker; after a restore the whole log is read again")
    ] = False,
    json: Json = False,
) -> None:
    """All of truth, as it is at one moment, in one file. Workers may go on; it is there whole or not at all."""
    settings = Settings()
    quiet_logs("ERROR")
    found = None if without_positions else asyncio.run(positions(settings))
    truth = open_truth(settings)
    try:
        with _bar("backup", None, json) as (bar, job):
            manifest = take(
                truth,
                file,
                revision=current(settings_url(settings)),
                positions=found,
                signer=Signer.of(settings),
                now=wall_clock(),
                progress=lambda rows: bar.update(job, advance=rows),
            )
    finally:
        truth.close()
    _say(manifest, {"file": str(file), "bytes": file.stat().st_size}, json, f"{file}: ")


def restore_file(
    file: Annotated[Path, typer.Argument(help="what `memriver backup` wrote")],
    into: Annotated[
        str | None, typer.Option("--into", help="address of an empty database; MEMRIVER_DATABASE_URL if left out")
    ] = None,
    reset_groups: Annotated[
        bool, typer.Option("--reset-groups", help="set the consumer groups to the backup's positions")
    ] = False,
    other_key: Annotated[
        bool, typer.Option("--other-key", help="although it was made under another MEMRIVER_HASH_KEY")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only look whether it is whole and fits")] = False,
    json: Json = False,
) -> None:
    """Truth from a file into an empty database. Refused: a damaged file, another schema revision, a database with rows.

    Stop all workers first. Afterwards start them, let them catch up, and run `memriver events republish`.
    """
    settings = Settings()
    quiet_logs("ERROR")
    if not file.is_file():
        raise PoisonError("no_such_file", f"{file} is no file")
    manifest = look(file, Signer.of(settings), other_key=other_key)
    if reset_groups and manifest.positions is None:
        raise PoisonError("no_positions", "the backup holds no positions: leave out --reset-groups (see the runbook)")
    repaired: list[str] = []
    places: list[Place] = []
    if not dry_run:
        with _bar("restore", sum(manifest.counts.values()), json) as (bar, job):
            url = into or settings_url(settings)
            repaired = restore(url, file, lambda rows: bar.update(job, advance=rows))
        if reset_groups and manifest.positions is not None:
            places = asyncio.run(reset(settings, manifest.positions))
    lost = [f"{place.topic}:{place.partition}" for place in places if place.lost]
    about = {
        "file": str(file),
        "dry_run": dry_run,
        "collections_to_repair": repaired,
        "partitions_reset": len(places),
        "partitions_with_loss": lost,
        "partitions_of_another_log": [f"{place.topic}:{place.partition}" for place in places if place.remade],
    }
    _say(manifest, about, json, f"{file}: {'whole; it holds' if dry_run else 'restored'} ")
    if lost and not json:
        console.print(f"  the log no longer has what came after the backup in {', '.join(lost)}", markup=False)


def events_republish(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only compare")] = False, json: Json = False
) -> None:
    """Compare the events topic with truth and publish what differs, so that every replica ends where truth is.

    For after a restore, when the workers have caught up. Again: nothing differs any more.
    """
    settings = Settings()
    quiet_logs("ERROR")
    truth = open_truth(settings)
    try:
        found = asyncio.run(republish(settings, truth, now=wall_clock(), dry_run=dry_run))
    finally:
        truth.close()
    view = found.view() | {"dry_run": dry_run}
    if json:
        as_json(view)
        return
    words = ", ".join(f"{value} {name}" for name, value in view.items() if name != "dry_run")
    console.print(f"events: {words}{' (nothing was sent)' if dry_run else ''}", markup=False)


def _say(manifest: Manifest, about: dict[str, Any], json: bool, words: str) -> None:
    if json:
        as_json(about | {"manifest": manifest.to_json()})
        return
    rows = sum(manifest.counts.values())
    held = ", ".join(f"{manifest.counts[name]} {name}" for name in ("memories", "memory_versions", "claims", "turns"))
    console.print(f"{words}{rows} rows ({held}), schema {manifest.revision}, of {manifest.created_at}", markup=False)


@contextmanager
def _bar(words: str, total: int | None, json: bool) -> Iterator[tuple[Progress, Any]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=json or not console.is_terminal) as bar:
        yield bar, bar.add_task(words, total=total)
