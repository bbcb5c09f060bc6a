"""The flow, importers: which format a file is in, by its ending and its first bytes."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

import ijson

from streams.importers.jsonstream import BREAKS
from streams.importers.records import UnreadableFile
from streams.importers.signal_text import HEADER as SIGNAL
from streams.importers.source import HEAD, Source, open_archive
from streams.importers.whatsapp_header import HEADER as WHATSAPP

NAMES = (
    "jsonl", "csv", "openai", "sharegpt", "langchain", "slack", "telegram", "discord", "whatsapp", "messenger",
    "signal",
)  # fmt: skip

# Paths as ijson names them, from the most telling to the least; the first format with a path in the head wins.
_PATHS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("discord", re.compile(r"guild\.id|messages\.item\.author\.(isBot|nickname|discriminator)")),
    (
        "messenger",
        re.compile(r"messages\.item\.(sender_name|senderName|timestamp_ms)|participants\.item(\.name)?|threadName"),
    ),
    (
        "telegram",
        re.compile(
            r"(chats|left_chats)\.list|messages\.item\.(date_unixtime|from_id|text_entities|actor_id)|personal_information"
            r"|frequent_contacts|profile_pictures|(chats\.list\.item\.)?messages\.item\.from"
        ),
    ),
    ("sharegpt", re.compile(r"(item\.)?conversations?\.item\.(from|value|role)")),
    (
        "langchain",
        re.compile(r"((item|messages\.item|item\.messages\.item|item\.item)\.)?(lc|data\.content)|item\.item\.type"),
    ),
    ("openai", re.compile(r"(item\.)?((body|request)\.)?messages\.item\.role")),
    ("jsonl", re.compile(r"(item\.)?(turn_id|conversation_id)")),
)
_LINES = 200
_DEEPEST = 1_000
"""Characters of a path: no format here has nearly as many, and each level of "[[[[…" makes every further path longer."""
_MESSAGE_KEYS = ({"type", "content"}, {"role", "content"}, {"item.type", "item.content"}, {"item.role", "item.content"})
_CSV_HEADER = re.compile(r"(?=.*\btext\b)(?=.*\bsent_at\b)[\w .-]+([,;\t|][\w .-]+)+\s*")


def detect_format(path: Path) -> str:
    """One of the format names.

    Raises:
        UnreadableFile: missing or empty, or its content tells nothing; the message lists the formats.
    """
    source = Source(path)
    with source.open(report=False) as stream:
        magic = stream.peek(4)[:4] if hasattr(stream, "peek") else b""
    if magic.startswith(b"PK"):
        return _in_zip(path)
    if path.suffix.lower() in (".csv", ".tsv"):
        return "csv"
    head = source.head()
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if not text:
        raise UnreadableFile("empty", f"{path.name} is empty")
    found = _in_json(head) if text[0] in "{[" else None
    found = found or _in_text(text)
    if found is None:
        raise unsure(path)
    return found


def unsure(path: Path) -> UnreadableFile:
    """The error that lists the formats."""
    return UnreadableFile("unknown_format", f"cannot tell the format of {path.name}; name one of: {', '.join(NAMES)}")


def _in_zip(path: Path) -> str:
    with open_archive(path) as archive:
        names = archive.namelist()
    if any(re.fullmatch(r"(?:[^/]+/)?(?:channels|dms|groups|mpims|users)\.json", name) for name in names):
        return "slack"
    if any(re.fullmatch(r"(?:[^/]+/)?[^/]+/\d{4}-\d{2}-\d{2}\.json", name) for name in names):
        return "slack"
    if any(name.lower().endswith(".txt") for name in names):
        return "whatsapp"
    raise unsure(path)


def _in_json(head: bytes) -> str | None:
    prefixes: set[str] = set()
    _gather(head, prefixes)
    found = _by_paths(prefixes)
    if found is None:
        # A broken record at the beginning hides the others, which in JSON Lines begin at the margin.
        for line in head.split(b"\n")[1:_LINES]:
            if line.startswith(b"{"):
                _gather(line, prefixes)
        found = _by_paths(prefixes)
    return found


def _gather(head: bytes, prefixes: set[str]) -> None:
    """The paths in this JSON, until it is cut or breaks: what was seen until there is often enough."""
    try:
        # Without `use_float` an integer of five thousand digits ends the process, in the parser's C code, which also keeps
        # the paths of all that is in its buffer.
        for prefix, event, _ in ijson.parse(BytesIO(head), multiple_values=True, use_float=True, buf_size=_DEEPEST):
            if len(prefix) > _DEEPEST:
                return
            if event != "map_key":
                prefixes.add(prefix)
    except BREAKS:
        return


def _by_paths(prefixes: set[str]) -> str | None:
    found = next((name for name, path in _PATHS if any(path.fullmatch(prefix) for prefix in prefixes)), None)
    return found or ("langchain" if any(keys <= prefixes for keys in _MESSAGE_KEYS) else None)


def _in_text(text: str) -> str | None:
    lines = [line.strip("\u200e\u200f\r ") for line in text[:HEAD].split("\n", _LINES)]
    for line in lines:
        signal = SIGNAL.fullmatch(line)
        if signal is not None and "," in line[:12] and signal[2].count(":") == 1:
            return "signal"
        if WHATSAPP.fullmatch(line):
            return "whatsapp"
    return "csv" if _CSV_HEADER.fullmatch(lines[0]) else None
