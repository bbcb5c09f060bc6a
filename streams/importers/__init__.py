"""The flow, importers: real chat logs to turns (SPEC W1), streaming, with what is wrong in them told line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streams.importers.detect import detect_format, unsure
from streams.importers.discord import read_discord
from streams.importers.langchain import read_langchain
from streams.importers.messenger import read_messenger
from streams.importers.native import read_jsonl
from streams.importers.openai_chat import read_openai
from streams.importers.records import (
    BadRecord,
    DateOrder,
    Importer,
    ImportOptions,
    Progress,
    Record,
    ServiceMessage,
    UnreadableFile,
)
from streams.importers.sharegpt import read_sharegpt
from streams.importers.signal_text import read_signal
from streams.importers.slack import read_slack
from streams.importers.source import Source
from streams.importers.table import read_csv
from streams.importers.telegram import read_telegram
from streams.importers.whatsapp import read_whatsapp

FORMATS: dict[str, Importer] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "openai": read_openai,
    "sharegpt": read_sharegpt,
    "langchain": read_langchain,
    "slack": read_slack,
    "telegram": read_telegram,
    "discord": read_discord,
    "whatsapp": read_whatsapp,
    "messenger": read_messenger,
    "signal": read_signal,
}


def read_log(
    path: Path, format: str | None, options: ImportOptions, progress: Progress | None = None
) -> Iterator[Record]:
    """Every record of a log in its order, in constant memory; importing the same file again yields equal turns.

    `format` None is detected. `progress` is called with the bytes of the file consumed so far, finally with its size.

    Raises:
        UnreadableFile: here for a missing file or an unknown format, else at the first record.
    """
    if not path.exists():
        raise UnreadableFile("missing", f"{path.name}: no such file")
    name = format or (_generic(path) if options.mapping else detect_format(path))
    if name not in FORMATS:
        raise unsure(path)
    return _records(Source(path, options.encoding, progress), name, options)


def _generic(path: Path) -> str:
    return "jsonl" if Source(path).head().lstrip()[:1] in (b"{", b"[") else "csv"


def _records(source: Source, name: str, options: ImportOptions) -> Iterator[Record]:
    yield from FORMATS[name](source, options)
    if source.progress is not None:
        source.progress(source.path.stat().st_size)


__all__ = [
    "FORMATS",
    "BadRecord",
    "DateOrder",
    "ImportOptions",
    "Importer",
    "Progress",
    "Record",
    "ServiceMessage",
    "UnreadableFile",
    "detect_format",
    "read_log",
]
