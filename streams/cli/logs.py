"""Command line, `import`: a log onto Kafka, for a running memriver to work on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from streams.cli.embedded import quiet_logs
from streams.cli.options import Dates, Encoding, Format, Mapping, Me, SentAt, Tenant, Timezone, UserId, import_options
from streams.cli.output import as_json, console
from streams.importers import read_log
from streams.importers.records import ImportOptions
from streams.position import intake_bound
from streams.producer import EventProducer
from streams.publish import Published, publish_log
from streams.runtime import wall_clock
from streams.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_file)


def import_file(
    file: Annotated[Path, typer.Argument(help="gateway log or chat export")],
    format: Format = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    tenant: Tenant = "default",
    timezone: Timezone = "UTC",
    user_id: UserId = None,
    me: Me = None,
    mapping: Mapping = None,
    encoding: Encoding = None,
    date_order: Dates = "auto",
    sent_at: SentAt = None,
) -> None:
    """Publish a log's turns to Kafka. Importing the same file again changes nothing."""
    settings = Settings()
    quiet_logs("ERROR")
    options = import_options(tenant, timezone, user_id, me, mapping, encoding, date_order, sent_at)
    started = time.monotonic()
    # A file that cannot be read is said before any server is asked.
    next(iter(read_log(file, format, options)), None)
    size = file.stat().st_size
    published = asyncio.run(_publish(settings, file, format, options, size, show_progress=not json))
    report = published.report() | {"file": str(file), "seconds": round(time.monotonic() - started, 3)}
    if json:
        as_json(report)
        return
    console.print(f"{file.name}: {published.turns} turns published", markup=False)
    for row in report["bad_records"]:
        console.print(f"  dead letter {row['where']}: {row['reason']}: {row['detail']}", markup=False)


async def _publish(
    settings: Settings, file: Path, format: str | None, options: ImportOptions, size: int, *, show_progress: bool
) -> Published:
    producer = EventProducer(settings)
    await producer.start()
    try:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, transient=True, disable=not show_progress or not console.is_terminal) as bar:
            job = bar.add_task(file.name, total=size)
            records = read_log(file, format, options, lambda count: bar.update(job, completed=count))
            room = await intake_bound(settings, producer)
            return await publish_log(producer, records, now=wall_clock(), room=room)
    finally:
        await producer.stop()
