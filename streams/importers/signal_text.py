"""The flow, importers: Signal chats as text (sigexport and alike)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from streams.importers.building import Ordinals, attachment, bad, build, from_iso, person, service
from streams.importers.records import ImportOptions, Record, UnreadableFile
from streams.importers.source import Source
from streams.importers.textlog import Entry, entries

HEADER = re.compile(r"\[(\d{4}-\d{2}-\d{2}),? (\d{2}:\d{2}(?::\d{2})?)\] ([^:\n]{1,200}?): ?(.*)", re.DOTALL)
_FILE = re.compile(r"!?\[([^\]\n]*)\]\((\.?/?media/[^)\n]+)\)")
_REACTIONS = re.compile(r"\s*\(- [^\n]+ -\)\s*$")
_QUOTE = re.compile(r"(?:>[^\n]*\n)+\n?")


def read_signal(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Turns `[2019-12-24, 12:23] Name: text`, with the lines up to the next such line. Times are local (`timezone`).

    A quoted message at the beginning is somebody else's words: it goes to the unknown field `quoted`.

    Raises:
        UnreadableFile: not UTF-8, or no message line in it.
    """
    source.require_utf8()
    speakers: set[str] = set()
    for entry in entries(source, HEADER, report=False):
        if entry.match is not None and len(speakers) < 3:
            speakers.add(entry.match[3])
    if not speakers:
        raise UnreadableFile("format", f"{source.name} has no line like [2019-12-24, 12:23] Name: text")
    ordinals = Ordinals()
    for entry in entries(source, HEADER):
        yield _turn(source, entry, len(speakers) > 2, ordinals, options)


def _turn(source: Source, entry: Entry, group: bool, ordinals: Ordinals, options: ImportOptions) -> Record:
    if entry.problem is not None:
        return bad(source, entry.number, *entry.problem, entry.raw)
    if entry.match is None:
        return bad(source, entry.number, "no_header", "text before the first message", entry.raw)
    day, clock, name = entry.match.group(1, 2, 3)
    try:
        sent_at: datetime = from_iso(f"{day}T{clock}", options)
    except ValueError:
        return bad(source, entry.number, "bad_sent_at", "the header is no date of the calendar", entry.raw)
    body = _REACTIONS.sub("", "\n".join([entry.match[4], *entry.more])).rstrip()
    fields: dict[str, Any] = person(options, name, name)
    quote = _QUOTE.match(body)
    if quote is not None and body[quote.end() :].strip():
        fields["quoted"] = quote[0].strip()
        body = body[quote.end() :]
    files = [attachment(found[1] or found[2].rsplit("/", 1)[-1], found[2]) for found in _FILE.finditer(body)]
    text = _FILE.sub("", body).strip()
    if not text and not files:
        return service(source, entry.number, "empty")
    fields |= {
        "tenant": options.tenant,
        "conversation_id": options.conversation_id or source.title,
        "turn_id": ordinals.turn_id(day, clock, name, body),
        "text": text,
        "sent_at": sent_at,
        "timezone": options.timezone,
        "gateway": "signal",
        "group": group,
        "attachments": files,
    }
    return build(source, entry.number, fields, options, entry.raw)
