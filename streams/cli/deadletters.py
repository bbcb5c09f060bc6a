"""Command line, dead letters: look at them, mend and send them again, or give up on them with a reason.

What a letter holds is somebody's words. It is printed or written only on `--content` and `--save`.
"""

from __future__ import annotations

import asyncio
import base64
import getpass
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from processors.exceptions import PoisonError
from sinks.truth import Truth, deadletters
from sinks.truth.deadletters import LetterFilter, LetterStatus
from sinks.truth.migrate import check as check_schema
from streams.cli.choosing import (
    Everything,
    Ids,
    Newer,
    Older,
    Reason,
    Stage,
    Tenant,
    Topic,
    chosen_letters,
    letter_filter,
)
from streams.cli.embedded import quiet_logs
from streams.cli.output import as_json, console, errors, plain_bytes, table
from streams.producer import EventProducer
from streams.redrive import FINAL, Redriver, Report, check, current, may_be_sent, with_changes
from streams.runtime import open_truth, settings_url, wall_clock
from streams.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Id = Annotated[str, typer.Argument(metavar="ID")]
Dry = Annotated[bool, typer.Option("--dry-run", help="only say which; change nothing")]
By = Annotated[str | None, typer.Option("--by", help="who does it, for the record; the login name if left out")]

_BULK = 100_000
"""Letters that one order may mean; more are a broken release, and the order can be given again."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Messages that could not be processed.", no_args_is_help=True)
    group.command("list")(dlq_list)
    group.command("show")(dlq_show)
    group.command("fix")(dlq_fix)
    group.command("redrive")(dlq_redrive)
    group.command("drop")(dlq_drop)
    app.add_typer(group, name="dlq")


def dlq_list(
    stage: Stage = None,
    topic: Topic = None,
    reason: Reason = None,
    tenant: Tenant = None,
    older_than: Older = None,
    newer_than: Newer = None,
    status: Annotated[LetterStatus, typer.Option(help="where they stand")] = LetterStatus.WAITING,
    limit: Annotated[int, typer.Option(min=1, help="letters on a page")] = 100,
    after: Annotated[str | None, typer.Option(help="the last id of the page before")] = None,
    json: Json = False,
) -> None:
    """Dead letters, those that failed first first."""
    chosen = letter_filter(stage, topic, reason, tenant, older_than, newer_than, status)
    truth = _truth(Settings())
    with truth.reading() as connection:
        rows = deadletters.listing(connection, chosen, after=after, limit=limit)
        total = sum(deadletters.kinds(connection, chosen).values())
    shown = [_view(row) for row in rows]
    if json:
        as_json(shown)
        return
    columns = ("id", "status", "stage", "reason", "detail", "tenant", "where", "size", "attempts", "failed_at")
    shown = [row | {"size": _size(row)} for row in shown]
    table(f"Dead letters ({total})", columns, [[row[name] for name in columns] for row in shown])
    if rows and len(rows) == limit:
        console.print(f"the next page: --after {rows[-1]['dead_letter_id']}", markup=False)


def dlq_show(
    dead_letter_id: Id,
    content: Annotated[bool, typer.Option("--content", help="print the message too: somebody's words")] = False,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="with --content: bytes as a hex dump")] = False,
    save: Annotated[
        Path | None, typer.Option(help="write the message's bytes to a new file that only you can read")
    ] = None,
    json: Json = False,
) -> None:
    """One dead letter: what is wrong, where it came from, and what was done about it."""
    truth = _truth(Settings())
    with truth.reading() as connection:
        row = _one(deadletters.get(connection, dead_letter_id))
        happened = deadletters.log(connection, dead_letter_id)
    if save is not None:
        _save(save, row["mended"] if row["mended"] is not None else row["raw"])
    view = _view(row) | {"mended": row["mended"] is not None, "log": happened}
    if view["bytes_kept"] < view["bytes"]:
        errors.print(f"the message is cut: of its bytes there are {_size(view)}", markup=False)
    if json:
        as_json(view | (_content(row) if content else {}))
        return
    happened_columns = ("at", "action", "attempt", "actor", "note")
    table("Dead letter", ("field", "value"), [(key, value) for key, value in view.items() if key != "log"])
    table("What happened", happened_columns, [[entry[name] for name in happened_columns] for entry in happened])
    if content:
        for name, raw in (("message", row["raw"]), ("message, as mended", row["mended"])):
            if raw is not None:
                console.rule(name, align="left")
                console.print(plain_bytes(raw, hexadecimal=hexadecimal), markup=False, highlight=False)


def dlq_fix(
    dead_letter_id: Id,
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="the whole message, mended")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="PATH=VALUE, JSON or a string; PATH= takes it away; may be repeated"),
    ] = None,
    dry_run: Dry = False,
    by: By = None,
    json: Json = False,
) -> None:
    """Mend a message and send it again; without --file and --set, in $EDITOR. Refused unless the contract takes it."""
    settings = Settings()
    quiet_logs("ERROR")
    truth = _truth(settings)
    with truth.reading() as connection:
        row = _one(deadletters.get(connection, dead_letter_id))
    if not may_be_sent(row):
        raise PoisonError("not_waiting", f"this letter is {row['status']}")
    if file is not None and changes:
        raise PoisonError("invalid_option", "--file gives the whole message; --set changes the one that is there")
    if file is not None:
        raw = file.read_bytes()
    elif changes:
        raw = with_changes(current(row), changes)
    else:
        raw = _edited(current(row))
    check(row, raw)
    if dry_run:
        _say_dry({dead_letter_id: row}, {}, json)
        return
    report = _with_producer(settings, truth, by, lambda redriver: redriver.mend(row, raw))
    _say(report, json)


def dlq_redrive(
    dead_letter_id: Ids = None,
    stage: Stage = None,
    topic: Topic = None,
    reason: Reason = None,
    tenant: Tenant = None,
    older_than: Older = None,
    newer_than: Newer = None,
    everything: Everything = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="also what the contract here does not take: workers may be newer")
    ] = False,
    dry_run: Dry = False,
    by: By = None,
    json: Json = False,
) -> None:
    """Send dead letters through the pipeline again. Doing it twice is doing it once."""
    settings = Settings()
    quiet_logs("ERROR")
    chosen = letter_filter(stage, topic, reason, tenant, older_than, newer_than)
    ids = chosen_letters(dead_letter_id, everything, chosen)
    truth = _truth(settings)
    ids = ids or _waiting_and_unsent(truth, chosen)
    if dry_run:
        rows, refused = _examine(truth, ids, anyway)
        _say_dry(rows, refused, json)
        return
    report = _with_producer(settings, truth, by, lambda redriver: redriver.redrive(ids, anyway=anyway))
    _say(report, json)


def dlq_drop(
    because: Annotated[str, typer.Option(help="why nobody needs it; kept in the record, so no personal words")],
    dead_letter_id: Ids = None,
    stage: Stage = None,
    topic: Topic = None,
    reason: Reason = None,
    tenant: Tenant = None,
    older_than: Older = None,
    newer_than: Newer = None,
    everything: Everything = False,
    dry_run: Dry = False,
    by: By = None,
    json: Json = False,
) -> None:
    """Give up on dead letters. They stay, with the reason and who gave it, and are never sent again."""
    if not because.strip():
        raise PoisonError("invalid_option", "--because says why")
    chosen = letter_filter(stage, topic, reason, tenant, older_than, newer_than)
    ids = chosen_letters(dead_letter_id, everything, chosen)
    truth = _truth(Settings())
    if not ids:
        with truth.reading() as connection:
            ids = deadletters.ids(connection, chosen, limit=_BULK)
    if dry_run:
        with truth.reading() as connection:
            found = deadletters.fetch(connection, ids)
        _say_dry({row["dead_letter_id"]: row for row in found if row["status"] == LetterStatus.WAITING}, {}, json)
        return
    done = truth.run(lambda connection: deadletters.drop(connection, ids, why=because, by=_actor(by), now=wall_clock()))
    if json:
        as_json({"dropped": done})
    else:
        console.print(f"{len(done)} dead letters dropped")


def _truth(settings: Settings) -> Truth:
    check_schema(settings_url(settings))
    return open_truth(settings)


def _actor(by: str | None) -> str:
    return by or getpass.getuser()


def _one(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        raise PoisonError("not_found", "there is no dead letter with this id")
    return row


def _waiting_and_unsent(truth: Truth, chosen: LetterFilter) -> list[str]:
    with truth.reading() as connection:
        return deadletters.ids(connection, chosen, limit=_BULK, unsent=True)


def _examine(truth: Truth, ids: list[str], anyway: bool) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    with truth.reading() as connection:
        rows = {row["dead_letter_id"]: row for row in deadletters.fetch(connection, ids) if may_be_sent(row)}
    refused: dict[str, str] = {}
    for letter, row in rows.items():
        try:
            check(row, current(row))
        except PoisonError as error:
            if not anyway or error.reason in FINAL:
                refused[letter] = str(error)
    return {letter: row for letter, row in rows.items() if letter not in refused}, refused


def _with_producer(
    settings: Settings, truth: Truth, by: str | None, work: Callable[[Redriver], Awaitable[Report]]
) -> Report:
    async def run() -> Report:
        producer = EventProducer(settings)
        await producer.start()
        try:
            return await work(Redriver(truth, producer, by=_actor(by), now=wall_clock()))
        finally:
            await producer.stop()
            truth.close()

    return asyncio.run(run())


def _say(report: Report, json: bool) -> None:
    if json:
        as_json({"redriven": report.redriven, "refused": report.refused, "left": report.left})
        return
    console.print(f"{len(report.redriven)} dead letters sent again")
    if report.refused:
        errors.print(f"{len(report.refused)} were not sent: the contract does not take them", markup=False)
        for reason, number in Counter(report.refused.values()).most_common(10):
            errors.print(f"  {number} × {reason}", markup=False)
        errors.print("mend them with `memriver dlq fix ID`, or give up on them with `memriver dlq drop`", markup=False)
    for status, number in Counter(report.left.values()).items():
        errors.print(f"{number} were left alone: {status} already", markup=False)


def _say_dry(rows: dict[str, dict[str, Any]], refused: dict[str, str], json: bool) -> None:
    if json:
        as_json({"would": list(rows), "refused": refused})
        return
    kinds = Counter((row["stage"], row["reason"]) for row in rows.values())
    table(f"It would be {len(rows)}", ("stage", "reason", "letters"), [(*kind, n) for kind, n in kinds.items()])
    for reason, number in Counter(refused.values()).most_common(10):
        errors.print(f"not these {number}: {reason}", markup=False)


def _view(row: dict[str, Any]) -> dict[str, Any]:
    names = ("stage", "reason", "detail", "topic", "tenant", "status", "attempts")
    times = ("first_failed_at", "failed_at", "sent_at")
    return {
        "id": row["dead_letter_id"],
        **{name: row[name] for name in names},
        "where": row["place"],
        # Of the message as it came: a very long one is kept in part.
        "bytes": row["original_bytes"] or len(row["raw"]),
        "bytes_kept": len(row["raw"]),
        **{name: row[name] for name in times},
    }


def _size(view: dict[str, Any]) -> str:
    whole, kept = view["bytes"], view["bytes_kept"]
    return str(whole) if kept == whole else f"{kept} of {whole}"


def _content(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"key": row["message_key"]}
    for name, raw in (("content", row["raw"]), ("content_mended", row["mended"])):
        if raw is not None:
            found[name] = {"text": _text(raw), "base64": base64.b64encode(raw).decode()}
    return found


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _save(path: Path, raw: bytes) -> None:
    try:
        # New, and nobody else's to read: these are somebody's words.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise PoisonError("invalid_option", f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(handle, "wb") as file:
        file.write(raw)


def _edited(raw: bytes) -> bytes:
    text = _text(raw)
    if text is None:
        raise PoisonError(
            "not_text", "the message is no text: save it with `dlq show ID --save FILE`, mend it, give --file"
        )
    changed = click.edit(text, extension=".json", require_save=True)
    if changed is None:
        raise PoisonError("unchanged", "nothing was saved; nothing is sent")
    return changed.strip().encode()
