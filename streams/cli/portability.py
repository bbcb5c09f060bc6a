"""Command line, portability: one owner's memories out as JSON lines, and memories from elsewhere in."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from processors.access import OwnerRef
from processors.exceptions import PoisonError
from schemas import OwnerKind
from streams.cli.embedded import quiet_logs
from streams.cli.output import as_json, console, errors
from streams.gating import make_gate
from streams.portability.foreign import foreign_messages
from streams.portability.importing import Import, send, started, write_whole
from streams.portability.sending import Report, Target
from streams.portability.signing import Signer
from streams.portability.writing import SCHEMA_FILE, export_lines, schema_bytes
from streams.runtime import open_truth, wall_clock
from streams.settings import Settings

Kind = Annotated[OwnerKind, typer.Option("--owner-kind", help="what the owner is")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
FormatName = Literal["memriver", "mem0", "zep", "graphiti"]

BY = "operator:import"
"""Who signs what an import writes."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("export")(export)
    app.command("import-memories")(import_memories)


def export(
    owner: Annotated[str, typer.Option(help="whose memories (required: nobody's is never everybody's)")],
    tenant: Annotated[str, typer.Option(help="the owner's tenant")] = "default",
    owner_kind: Kind = OwnerKind.USER,
    out: Annotated[str, typer.Option(help="file to write, - for standard output")] = "-",
    with_turns: Annotated[bool, typer.Option("--with-turns", help="the owner's turns as well, in their words")] = False,
) -> None:
    """One owner's memories with every version, claim, quote and review, as JSON lines with a checksum.

    Beside a file, the JSON Schema of its lines is written. It is one moment: what is written meanwhile is not in it.
    """
    settings = Settings()
    quiet_logs("ERROR")
    truth = open_truth(settings)
    try:
        lines = export_lines(
            truth,
            tenant,
            OwnerRef(owner_kind, owner),
            with_turns=with_turns,
            signer=Signer.of(settings),
            now=wall_clock(),
        )
        if out == "-":
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        path = Path(out)
        written = write_whole(path, lines)
        write_whole(path.with_name(SCHEMA_FILE), [schema_bytes()])
        errors.print(f"{path}: {written} bytes; schema in {SCHEMA_FILE}", markup=False, highlight=False)
    finally:
        truth.close()


def import_memories(
    file: Annotated[str, typer.Argument(help="an export; - for standard input")],
    format: Annotated[FormatName, typer.Option("--format", help="whose export it is")] = "memriver",
    tenant: Annotated[str, typer.Option(help="the tenant that takes them")] = "default",
    as_owner: Annotated[
        str | None, typer.Option("--as-owner", help="take them as this owner's; required where the file names nobody")
    ] = None,
    owner_kind: Kind = OwnerKind.USER,
    timezone: Annotated[str, typer.Option(help="IANA zone of times that name none (other systems' exports)")] = "UTC",
    origin_key_file: Annotated[
        Path | None, typer.Option("--origin-key-file", help="hash key of the deployment that signed the export")
    ] = None,
    with_turns: Annotated[
        bool, typer.Option("--with-turns", help="store the export's turns too; a replay of the log does not know them")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="look at all of it and send nothing")] = False,
    json: Json = False,
) -> None:
    """Memories from an export, as commands to their owner's single writer. Importing the same file again changes nothing.

    A memriver export is checked whole first, and refused with the line that is wrong. Of another system's, a record that
    cannot be read is reported and the rest goes on. Chat logs are for `memriver import`.
    """
    settings = Settings()
    quiet_logs("ERROR")
    owner = OwnerRef(owner_kind, as_owner) if as_owner is not None else None
    with _on_disk(file) as path:
        if format == "memriver":
            origin = _origin(origin_key_file)
            done = Import(
                path,
                tenant=tenant,
                as_owner=owner,
                gate=make_gate(settings),
                signer=Signer.of(settings),
                origin=origin,
                now=wall_clock(),
                by=BY,
                with_turns=with_turns,
            )
            report = done.report
            about: dict[str, Any] = {
                "tenant": done.target.tenant,
                "owner": done.target.owner.id,
                "vouched": done.checked.vouched,
            }
            if not dry_run:
                asyncio.run(_send(settings, done))
                report = done.report
        else:
            target = Target(tenant, owner) if owner is not None else None
            report, messages = foreign_messages(
                path, format, tenant, target, make_gate(settings), timezone=timezone, now=wall_clock(), by=BY
            )
            about = {"tenant": tenant, "owner": as_owner, "vouched": False}
            if not dry_run:
                asyncio.run(_send_all(settings, messages))
    _say(file, about, report, dry_run, json)


async def _send(settings: Settings, done: Import) -> None:
    async with started(settings) as producer:
        await send(producer, done.messages())


async def _send_all(settings: Settings, messages: list[Any]) -> None:
    async with started(settings) as producer:
        await send(producer, messages)


def _say(file: str, about: dict[str, Any], report: Report, dry_run: bool, json: bool) -> None:
    view: dict[str, Any] = {"file": file, "dry_run": dry_run} | about | report.view()
    if json:
        as_json(view)
        return
    what = "would send" if dry_run else "sent"
    counted = ", ".join(f"{view[name]} {name}" for name in ("memories", "versions", "claims", "reviews", "turns"))
    console.print(f"{file}: {what} {counted} in {view['commands']} messages", markup=False)
    if report.without_history:
        console.print(f"  {report.without_history} slots without their history: policy changed what they say")
    for reason, count in view["left_out"].items():
        console.print(f"  left out {count}: {reason}", markup=False)
    for row in report.bad_records:
        console.print(f"  {row['where']}: {row['reason']}: {row['detail']}", markup=False)


def _origin(path: Path | None) -> Signer | None:
    if path is None:
        return None
    try:
        return Signer(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise PoisonError("invalid_option", "the key file cannot be read") from error


@contextmanager
def _on_disk(file: str) -> Iterator[Path]:
    """The file itself; standard input is put aside first, since it is read more than once."""
    if file != "-":
        path = Path(file)
        if not path.is_file():
            raise PoisonError("no_such_file", f"{file} is no file")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="memriver-") as scratch:
        path = Path(scratch) / "import"
        with path.open("wb") as aside:
            shutil.copyfileobj(sys.stdin.buffer, aside)
        yield path
