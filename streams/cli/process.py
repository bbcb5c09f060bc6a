"""Command line, `process`: a log in, memories out, in one process and one go."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import orjson
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from processors.exceptions import FatalError
from schemas import Memory, Status
from sinks.truth import deadletters, memories, turns
from streams.cli.embedded import Embedded, quiet_logs
from streams.cli.options import Dates, Encoding, Format, Mapping, Me, SentAt, Tenant, Timezone, UserId, import_options
from streams.cli.output import as_json, console, event_view, memory_view, table, turn_view
from streams.importers import read_log
from streams.importers.records import ImportOptions, Record
from streams.publish import Published, publish_log
from streams.runtime import wall_clock
from streams.settings import Settings, StageName

# Without the clocks: a run's result must depend on its log, not on the day it is processed; recall looks at
# `expires_at` in any case, and what waits for a batch is closed when the log has been read.
_STAGES: tuple[StageName, ...] = ("ingest", "extract", "resolve", "bury")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(process)


def process(
    files: Annotated[list[Path], typer.Argument(help="gateway logs or chat exports", metavar="FILE...")],
    format: Format = None,
    data: Annotated[Path | None, typer.Option(help="keep the result in this directory")] = None,
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
    """Run logs through the whole pipeline without any server, and print what was remembered and why."""
    settings = Settings()
    quiet_logs("ERROR" if json else settings.log_level if settings.log_level != "INFO" else "ERROR")
    options = import_options(tenant, timezone, user_id, me, mapping, encoding, date_order, sent_at)
    for path in files:
        # A file that cannot be read must not leave the others half done: look at all of them first.
        _open(path, format, options)
    with tempfile.TemporaryDirectory(prefix="memriver-") as scratch:
        result = asyncio.run(_run(settings, data or Path(scratch), files, format, options, show_progress=not json))
    if json:
        as_json(result)
    else:
        _print(result, data)


def _open(path: Path, format: str | None, options: ImportOptions) -> None:
    next(iter(read_log(path, format, options)), None)


async def _run(
    settings: Settings,
    directory: Path,
    files: list[Path],
    format: str | None,
    options: ImportOptions,
    *,
    show_progress: bool,
) -> dict[str, Any]:
    embedded = Embedded(settings, directory, _STAGES)
    try:
        await embedded.start()
        logs: list[tuple[Path, Published]] = []
        with _progress(show_progress) as bar:
            for path in files:
                job = bar.add_task(path.name, total=path.stat().st_size)
                records = _records(path, format, options, bar, job)
                done = await publish_log(embedded.runtime.producer, records, now=wall_clock(), room=embedded.room)
                logs.append((path, done))
                # A file at a time, so that a second file's turns meet the first one's memories.
                await embedded.drained()
        await _events_in(embedded)
        return await asyncio.to_thread(_result, embedded, logs)
    except RuntimeError as error:
        raise FatalError(f"a stage stopped: {error}") from error
    finally:
        await embedded.stop()


def _records(path: Path, format: str | None, options: ImportOptions, bar: Progress, job: Any) -> Iterator[Record]:
    yield from read_log(path, format, options, lambda count: bar.update(job, completed=count))


async def _events_in(embedded: Embedded) -> None:
    """What was published, tombstones too, has come back to a consumer; the bound is for a broker that lost something."""
    for _attempt in range(1_500):
        if embedded.heard >= embedded.runtime.producer.sent["memory_updated"]:
            return
        await asyncio.sleep(0.02)


def _result(embedded: Embedded, logs: list[tuple[Path, Published]]) -> dict[str, Any]:
    with embedded.runtime.truth.reading() as connection:
        held = memories.listing(connection)
        outcomes = turns.outcomes(connection)
        letters = deadletters.listing(connection, limit=10_000)
        questions = memories.reviews_open(connection)
    rows = [turn_view(row) for row in outcomes]
    rows += [_lost_turn(letter) for letter in letters if letter["stage"] in ("import", "ingest")]
    return {
        "memories": [memory_view(memory) for memory in held],
        "turns": rows,
        "events": [event_view(event) for event in embedded.events],
        "dead_letters": [
            {
                "id": row["dead_letter_id"],
                "stage": row["stage"],
                "reason": row["reason"],
                "detail": row["detail"],
                "where": row["place"],
            }
            for row in letters
        ],
        "reviews": [
            {"id": row["review_id"], "kind": row["kind"], "memory_id": row["memory_id"], "detail": row["detail"]}
            for row in questions
        ],
        "summary": _summary(embedded, logs, held, rows),
    }


def _summary(
    embedded: Embedded, logs: list[tuple[Path, Published]], held: list[Memory], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    filtered = Counter(row["reason"] for row in rows if row["outcome"] == "filtered")
    return {
        "files": [{"file": str(path), **published.report()} for path, published in logs],
        "turns": len(rows),
        "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "filtered": dict(filtered),
        "memories": len(held),
        "statuses": dict(Counter(memory.status.value for memory in held)),
        "events": len(embedded.events),
        "model_channel": "on" if embedded.settings.model_enabled else "off",
        "embedder": embedded.settings.embedder,
    }


def _lost_turn(letter: dict[str, Any]) -> dict[str, Any]:
    """A dead letter as the outcome of the turn that it would have been, as far as its bytes tell."""
    try:
        raw = orjson.loads(letter["raw"])
    except orjson.JSONDecodeError:
        raw = {}
    if not isinstance(raw, dict):
        raw = {}
    names = ("tenant", "conversation_id", "turn_id", "user_id", "role", "sent_at")
    return {
        **{name: raw.get(name) for name in names},
        "revision": None,
        "outcome": "dead_lettered",
        "reason": letter["reason"],
        "where": letter["place"],
    }


def _progress(enabled: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, transient=True, disable=not enabled or not console.is_terminal)


def _day(at: datetime | None, timezone: str) -> str:
    """The day as the speaker's own calendar has it."""
    return f"{at.astimezone(ZoneInfo(timezone)):%Y-%m-%d}" if at is not None else ""


_ORDER = {status.value: rank for rank, status in enumerate(Status)}


def _print(result: dict[str, Any], data: Path | None) -> None:
    held = sorted(result["memories"], key=lambda row: (row["owner"], _ORDER[row["status"]], row["attribute"]))
    table(
        "Memories",
        ("owner", "status", "attribute", "value", "text", "v", "from", "until", "evidence"),
        [
            (
                row["owner"],
                row["status"],
                row["attribute"],
                row["value"],
                row["text"] if row["text"] != row["value"] else "",
                row["version"],
                _day(row["valid_from"], row["timezone"]),
                _day(row["valid_to"], row["timezone"]),
                ", ".join(row["source_turn_ids"]),
            )
            for row in held
        ],
    )
    quiet = Counter((row["outcome"], row["reason"] or "") for row in result["turns"])
    table("Turns", ("outcome", "reason", "turns"), [(*key, count) for key, count in sorted(quiet.items())])
    if result["dead_letters"]:
        columns = ("where", "reason", "detail")
        table("Dead letters", columns, [[row[name] for name in columns] for row in result["dead_letters"]])
    if result["reviews"]:
        table(
            "For a person to decide",
            ("kind", "memory", "why"),
            [(r["kind"], r["memory_id"], r["detail"]) for r in result["reviews"]],
        )
    summary = result["summary"]
    console.print(
        f"{summary['turns']} turns, {summary['statuses'].get('active', 0)} active memories, {summary['events']} events; "
        f"model channel {summary['model_channel']}, embedder {summary['embedder']}"
    )
    if data is not None:
        url = f"MEMRIVER_DATABASE_URL=sqlite:///{data / 'memriver.db'}"
        console.print(
            f"Look further: {url} memriver memories list; … memories history ID; … turns status ID", markup=False
        )
    else:
        console.print(
            "Keep the result and look further with --data DIR; --json gives all of it to a program", markup=False
        )
