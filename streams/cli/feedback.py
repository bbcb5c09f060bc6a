"""Command line, feedback: the labelled data set for fine-tuning, rates of use and correction, hints for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer
from sqlalchemy import Connection

from processors.exceptions import FatalError, PoisonError
from processors.feedback import Label, example, outcomes_of
from processors.hints import hints, proposal
from sinks.truth import feedback
from streams.cli.output import as_json, console, errors, table
from streams.gating import make_gate
from streams.runtime import open_truth, wall_clock
from streams.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Since = Annotated[str | None, typer.Option(help="only what arrived since then: 2026-03-01 or 2026-03-01T08:00Z")]
Tenant = Annotated[str | None, typer.Option(help="only this tenant's")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="What became of recalled memories.", no_args_is_help=True)
    group.command("export")(feedback_export)
    group.command("rate")(feedback_rate)
    group.command("hints")(feedback_hints)
    app.add_typer(group, name="feedback")


def feedback_export(
    since: Since = None,
    tenant: Tenant = None,
    output: Annotated[Path | None, typer.Option(help="file to write; standard output if left out")] = None,
) -> None:
    """The labelled data set as JSONL for fine-tuning, in chat format: masked, without owners and without deleted memories."""
    settings = Settings()
    gate, truth = make_gate(settings), open_truth(settings)
    written = left_out = 0
    try:
        with truth.reading() as connection, _opened(output) as file:
            for labels in feedback.pages(connection, tenant=tenant, since=_moment(since)):
                texts = feedback.texts(connection, labels)
                for label in labels:
                    line = example(label, texts, lambda text: gate.mask_text(text).text)
                    if line is None:
                        left_out += 1
                        continue
                    file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
                    written += 1
    finally:
        truth.close()
    errors.print(f"{written} examples, {left_out} left out (their memories are gone, or the policy kept them out)")


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        stream: BinaryIO = typer.get_binary_stream("stdout")
        yield stream
        stream.flush()
        return
    try:
        with output.open("wb") as file:
            yield file
    except OSError as error:
        raise FatalError(f"the file cannot be written ({error.strerror})") from error


def feedback_rate(since: Since = None, tenant: Tenant = None, json: Json = False) -> None:
    """User correction rate; used and ignored rates per attribute and per agent. For operators: it counts every owner."""
    truth = open_truth(Settings())
    try:
        with truth.reading() as connection:
            report = outcomes_of(_labels(connection, tenant, _moment(since))).report()
    finally:
        truth.close()
    if json:
        as_json(report)
        return
    rows = [("all", "", report["total"])]
    rows += [("attribute", name, row) for name, row in report["attributes"].items()]
    rows += [("agent", name, row) for name, row in report["agents"].items()]
    columns = ("recalled", "used_rate", "ignored_rate", "correction_rate", "forgotten")
    view = [(kind, name, *(row[column] for column in columns)) for kind, name, row in rows]
    table("Outcomes of recalls", ("of", "name", "recalled", "used", "ignored", "corrected", "forgotten"), view)


def feedback_hints(since: Since = None, tenant: Tenant = None, json: Json = False) -> None:
    """Put retrieval policy hints that outcomes speak for before a person, as reviews; nothing is applied by itself."""
    truth, now, moment = open_truth(Settings()), wall_clock(), _moment(since)
    shown: list[dict[str, Any]] = []
    new = 0
    try:
        with truth.reading() as connection:
            names = [tenant] if tenant is not None else feedback.tenants(connection)
            found = {name: hints(outcomes_of(_labels(connection, name, moment))) for name in names}
        for name, proposed in found.items():
            commands = [proposal(hint, name, now) for hint in proposed]
            new += truth.run(partial(feedback.propose, commands=commands, now=now))
            shown += [
                {"tenant": name, "about": hint.about, "action": hint.action, "value": hint.value, "detail": hint.detail}
                for hint in proposed
            ]
    finally:
        truth.close()
    if json:
        as_json({"hints": shown, "new": new})
        return
    table("Policy hints", ("tenant", "about", "proposal"), [(r["tenant"], r["about"], r["detail"]) for r in shown])
    console.print(f"{new} new in the review queue")


def _labels(connection: Connection, tenant: str | None, since: datetime | None) -> Iterator[Label]:
    for page in feedback.pages(connection, tenant=tenant, since=since):
        yield from page


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PoisonError("invalid_option", "--since takes a date or a time such as 2026-03-01T08:00Z") from error
