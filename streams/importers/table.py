"""The flow, importers: CSV with a header row, under turn field names or a mapping."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from streams.importers.building import bad, build
from streams.importers.fields import GenericFields, typed
from streams.importers.records import BadRecord, ImportOptions, Record, UnreadableFile
from streams.importers.source import Source

_DELIMITERS = ",;\t|"
_NO_UTF8 = "bytes that are no UTF-8; try --encoding"


class _Rows:
    """Lines for the csv module; what is too long is kept aside instead of being parsed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = source.texts()
        self.skipped: list[BadRecord] = []
        self.number = 0
        self.ended_open = False

    def __iter__(self) -> Iterator[str]:
        for number, line, too_long in self._lines:
            self.number = number
            if too_long:
                self.skipped.append(bad(self._source, number, "line_too_long", "the line is over 8 MiB", line))
            else:
                yield line
        self.ended_open = True

    def take_skipped(self) -> list[BadRecord]:
        skipped, self.skipped = self.skipped, []
        return skipped


def read_csv(source: Source, options: ImportOptions) -> Iterator[Record]:
    """One turn per row; unknown columns are kept as unknown fields.

    The delimiter is the commonest of comma, semicolon, tab and bar in the header. Quoted line breaks are kept.

    Raises:
        UnreadableFile: not UTF-8, no header, or a mapped column that the header lacks.
    """
    source.require_utf8()
    rows = _Rows(source)
    lines = iter(rows)
    header_line = next((line for line in lines if line.strip()), None)
    if header_line is None:
        raise UnreadableFile("empty", f"{source.name} is empty")
    delimiter = max(_DELIMITERS, key=header_line.count)
    try:
        header = [name.strip() for name in next(csv.reader([header_line], delimiter=delimiter, strict=True))]
    except csv.Error as error:
        raise UnreadableFile("header", f"{source.name} has no CSV header row") from error
    _check_header(source, header, options)
    turn_field = {column: name for name, column in (options.mapping or {}).items()}
    generic = GenericFields(source, options)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = rows.number + 1
        try:
            row = next(reader, None)
        except csv.Error:
            if rows.ended_open:
                yield bad(source, number, "truncated", "the file ends inside a quoted cell")
            else:
                yield bad(source, number, "not_csv", "a quote is not closed, or a cell is over 128 KiB")
            continue
        yield from rows.take_skipped()
        if row is None:
            return
        if row:
            yield _record(source, number, header, row, turn_field, generic, options, delimiter)


def _check_header(source: Source, header: list[str], options: ImportOptions) -> None:
    absent = sorted(set((options.mapping or {}).values()) - set(header))
    if absent:
        raise UnreadableFile("mapping", f"no column {', '.join(absent)}; the columns are {', '.join(header)}")
    if not options.mapping and not {"text", "sent_at"} <= set(header):
        raise UnreadableFile(
            "mapping",
            f"{source.name} needs a mapping, e.g. text=message,sent_at=date; its columns are {', '.join(header)}",
        )


def _record(
    source: Source,
    number: int,
    header: list[str],
    row: list[str],
    turn_field: dict[str, str],
    generic: GenericFields,
    options: ImportOptions,
    delimiter: str,
) -> Record:
    raw = delimiter.join(row)
    if not _is_text(raw):
        return bad(source, number, "encoding", _NO_UTF8, raw.encode("utf-8", "surrogateescape"))
    if len(row) != len(header):
        return bad(source, number, "wrong_width", f"{len(row)} cells under {len(header)} columns", raw)
    record = {name: typed(cell, turn_field.get(name, name)) for name, cell in zip(header, row, strict=True)}
    try:
        fields = generic.fields(record)
    except ValueError as error:
        return bad(source, number, "bad_sent_at", str(error), raw)
    return build(source, number, fields, options, raw)


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
