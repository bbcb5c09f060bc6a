"""The flow, importers: text logs whose messages run over several lines, each beginning with a header line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.turn import MAX_TEXT
from streams.importers.source import Source

_IGNORED = re.compile("^[\ufeff\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


@dataclass(slots=True)
class Entry:
    """A header's match (None before the first one), its line number, and the lines that follow it.

    `problem` is (reason, detail) of an entry that is no good text.
    """

    number: int
    match: re.Match[str] | None
    line: str
    more: list[str] = field(default_factory=list)
    problem: tuple[str, str] | None = None
    size: int = 0

    @property
    def raw(self) -> str:
        """The entry as it stands in the file."""
        return "\n".join([self.line, *self.more])


def entries(source: Source, header: re.Pattern[str], *, report: bool = True) -> Iterator[Entry]:
    """Entries in order. Direction marks before a header and blank lines before the first one are dropped."""
    current: Entry | None = None
    for number, line, too_long in source.texts(report=report):
        line = line.rstrip("\r\n")
        found = None if too_long else header.fullmatch(_IGNORED.sub("", line))
        if found is not None or current is None:
            if found is None and not too_long and not line.strip():
                continue
            if current is not None:
                yield current
            current = Entry(number, found, line)
        else:
            # Text beyond the limit is dropped as it comes, so that a file without headers does not fill the memory.
            current.size += len(line) + 1
            if current.size <= MAX_TEXT:
                current.more.append(line)
            else:
                current.problem = ("text_too_long", f"a message of more than {MAX_TEXT} characters")
        if too_long:
            current.problem = ("line_too_long", "the line is over 8 MiB")
        elif _has_surrogates(line):
            current.problem = ("encoding", "bytes that are no UTF-8; try --encoding")
    if current is not None:
        yield current


def _has_surrogates(line: str) -> bool:
    if line.isascii():
        return False
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
