"""The flow, importers: JSON Lines, memriver's own line or (with a mapping) anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.importers.building import bad, build
from streams.importers.fields import GenericFields
from streams.importers.jsonstream import decode_line, documents
from streams.importers.records import BadRecord, ImportOptions, Record
from streams.importers.source import Source

_DEFAULTS = ("tenant", "timezone", "user_id", "conversation_id")


def read_jsonl(source: Source, options: ImportOptions) -> Iterator[Record]:
    """One turn per line (SPEC W1), or per element of one JSON array. Blank lines are no records.

    Raises:
        UnreadableFile: not UTF-8.
    """
    generic = GenericFields(source, options) if options.mapping else None
    if source.head().lstrip()[:1] == b"[":
        for document in documents(source):
            if isinstance(document, BadRecord):
                yield document
            else:
                yield _record(source, document.number, document.value, options, generic, document.raw)
        return
    source.require_utf8(mostly=True)
    for number, line, too_long in source.lines():
        if too_long:
            yield bad(source, number, "line_too_long", "the line is over 8 MiB", line)
            continue
        if line.isspace():
            continue
        value = decode_line(source, number, line)
        if isinstance(value, BadRecord):
            yield value
        else:
            yield _record(source, number, value, options, generic, line)


def _record(
    source: Source, number: int, value: Any, options: ImportOptions, generic: GenericFields | None, raw: object
) -> Record:
    if not isinstance(value, dict):
        return bad(source, number, "not_an_object", "a turn is a JSON object", raw)
    if generic is None:
        for name in _DEFAULTS:
            if value.get(name) is None and (default := getattr(options, name)) is not None:
                value[name] = default
        return build(source, number, value, options, raw)
    try:
        fields = generic.fields(value)
    except ValueError as error:
        return bad(source, number, "bad_sent_at", str(error), raw)
    return build(source, number, fields, options, raw)
