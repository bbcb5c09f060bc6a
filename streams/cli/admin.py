"""Command line, keeping house: topics, database schema, contracts, waiting batches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from processors.exceptions import FatalError
from sinks.truth import batches
from sinks.truth.migrate import upgrade
from streams.cli.embedded import quiet_logs
from streams.cli.output import as_json, console, table
from streams.contracts import export
from streams.producer import EventProducer
from streams.runtime import open_truth, settings_url
from streams.settings import Settings
from streams.stages.closing import outgoing
from streams.topics import apply

Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, text, commands in (
        ("topics", "Kafka topics.", {"apply": topics_apply}),
        ("db", "The relational schema.", {"upgrade": db_upgrade}),
        ("schemas", "The contracts.", {"export": schemas_export}),
    ):
        group = typer.Typer(help=text, no_args_is_help=True)
        # A callback keeps "memriver topics apply" a group even while it has one command.
        group.callback()(lambda: None)
        for command, function in commands.items():
            group.command(command)(function)
        app.add_typer(group, name=name)


def topics_apply(
    replication_factor: Annotated[int, typer.Option(min=1, help="copies of each partition")] = 1, json: Json = False
) -> None:
    """Create what is missing and correct what differs; deletes nothing."""
    quiet_logs("ERROR")
    done = asyncio.run(apply(Settings(), replication_factor=replication_factor))
    if json:
        as_json([{"topic": row.name, "action": row.action, "detail": row.detail} for row in done])
    else:
        table("Topics", ("topic", "action", "detail"), [(row.name, row.action, row.detail) for row in done])


def db_upgrade() -> None:
    """Bring the database schema up to date. Safe to run again; run it once before workers start."""
    quiet_logs("ERROR")
    console.print(f"database schema at {upgrade(settings_url(Settings()))}")


def schemas_export(
    directory: Annotated[Path, typer.Argument(help="where to write")] = Path("ops/contracts"),
    check: Annotated[bool, typer.Option("--check", help="only say whether the files are up to date")] = False,
) -> None:
    """Write JSON Schema of each contract, and AsyncAPI of the topics."""
    stale = export(directory, write=not check)
    if check and stale:
        raise FatalError(f"out of date: {', '.join(stale)}; run `memriver schemas export`")
    console.print("up to date" if not stale else f"wrote {', '.join(stale)}", markup=False)


def replay_batches(json: Json = False) -> None:
    """Send the batches that waited while the model channel was off to the extract stage."""
    settings = Settings()
    quiet_logs("ERROR")
    if not settings.model_enabled:
        raise FatalError("the model channel is still off: set MEMRIVER_MODEL_BASE_URL")
    sent = asyncio.run(_replay(settings))
    if json:
        as_json({"batches": sent})
    else:
        console.print(f"{sent} batches sent to the extract stage")


async def _replay(settings: Settings) -> int:
    truth = open_truth(settings)
    producer = EventProducer(settings)
    await producer.start()
    sent = 0
    try:
        while True:
            with truth.reading() as connection:
                waiting, gone = batches.rebuild(connection)
            if not waiting and not gone:
                return sent
            await asyncio.to_thread(truth.run, lambda connection, ids=gone: batches.close_empty(connection, ids))
            await producer.publish([outgoing(batch) for batch in waiting])
            # Marked after the broker has them: a death in between sends some twice, and the extract stage knows them.
            ids = [batch.batch_id for batch in waiting]
            await asyncio.to_thread(truth.run, lambda connection, ids=ids: batches.reopen(connection, ids))
            sent += len(waiting)
    finally:
        await producer.stop()
        truth.close()
