"""The flow, importers: JSON documents and arrays, element by element, however large the file is."""

from __future__ import annotations

import codecs
import json
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import ijson
import orjson

from streams.importers.building import bad
from streams.importers.records import BadRecord, UnreadableFile
from streams.importers.source import Source, not_utf8

BREAKS = (ijson.JSONError, UnicodeDecodeError)
"""What the parser raises where the JSON stops: some bytes that are no UTF-8 pass its own look and fail at Python's."""

_MISSING = "no JSON of this format in it"


class Found(NamedTuple):
    """Something met on the way: an `element`, a `scalar` outside elements, or the start of an `array`."""

    prefix: str
    kind: str
    value: Any


class Document(NamedTuple):
    """One JSON value of an array or of a file of lines; `raw` is the line where there is one."""

    number: int
    value: Any
    raw: object


class BrokenJson(ValueError):
    """The JSON stops here; `reason` is truncated, encoding or not_json.

    The parser's own message quotes the file, so it is dropped.
    """

    def __init__(self, error: Exception, stream: _Tail) -> None:
        message = str(error)
        if isinstance(error, UnicodeDecodeError) and _is_half_a_pair(error):
            self.reason, self.detail = "lone_surrogate", "half of a surrogate pair is not Unicode text"
        elif isinstance(error, UnicodeDecodeError):
            self.reason, self.detail = "encoding", "bytes that are no UTF-8; try --encoding"
        elif "premature EOF" in message or stream.cut:
            self.reason, self.detail = "truncated", "the file ends in the middle of a record"
        elif "UTF8" in message or "UTF-8" in message:
            self.reason, self.detail = "encoding", "bytes that are no UTF-8; try --encoding"
        else:
            self.reason, self.detail = "not_json", "no JSON from here on"
        super().__init__(self.detail)


def _is_half_a_pair(error: UnicodeDecodeError) -> bool:
    try:
        error.object.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


class _Tail:
    """Remembers whether the stream ended in the middle of a character, which the parser calls a wrong encoding."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._last = b""
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._last = (self._last + data)[-3:]
        self._ended = not data
        return data

    @property
    def cut(self) -> bool:
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        # Continuation bytes at the start belong to a character before; what is left pending at the end is the cut one.
        decoder.decode(self._last)
        return self._ended and bool(decoder.getstate()[0])


def walk(stream: IO[bytes], elements: frozenset[str]) -> Iterator[Found]:
    """Events of one document (ijson's prefixes), with the values at `elements` put together.

    Raises:
        BrokenJson: after everything before the break was yielded.
    """
    tail = _Tail(stream)
    events = iter(ijson.parse(tail, use_float=True))
    try:
        for prefix, event, value in events:
            if event in ("map_key", "end_map", "end_array"):
                continue
            if prefix in elements:
                yield Found(prefix, "element", _assemble(event, value, events))
            elif event == "start_array":
                yield Found(prefix, "array", None)
            elif event != "start_map":
                yield Found(prefix, "scalar", value)
    except BREAKS as error:
        raise BrokenJson(error, tail) from None


def _assemble(event: str, value: Any, events: Iterator[tuple[str, str, Any]]) -> Any:
    if event not in ("start_map", "start_array"):
        return value
    builder = ijson.ObjectBuilder()
    builder.event(event, value)
    depth = 1
    while depth:
        _, event, value = next(events)
        builder.event(event, value)
        if event in ("start_map", "start_array"):
            depth += 1
        elif event in ("end_map", "end_array"):
            depth -= 1
    return builder.value


def export(source: Source, elements: frozenset[str], marks: frozenset[str]) -> Iterator[Found | BadRecord]:
    """A chat export. A break in it becomes a bad record at the end.

    Raises:
        UnreadableFile: none of the arrays in `marks` begins anywhere, or not even the first element is UTF-8.
    """
    opened = False
    count = 0
    with source.open() as stream:
        try:
            for found in walk(stream, elements):
                opened = opened or (found.kind == "array" and found.prefix in marks)
                count += found.kind == "element"
                yield found
        except BrokenJson as broken:
            if not opened or (not count and broken.reason == "encoding"):
                raise _unreadable(source, broken) from None
            yield bad(source, count + 1, broken.reason, broken.detail)
    if not opened:
        raise UnreadableFile("format", f"{source.name}: {_MISSING}")


def documents(source: Source) -> Iterator[Document | BadRecord]:
    """The values of a JSON array, of JSON Lines, or of one pretty-printed object.

    Raises:
        UnreadableFile: the file is empty or begins with something that is no JSON.
    """
    head = source.head().lstrip()
    if not head:
        raise UnreadableFile("empty", f"{source.name} is empty")
    if head[:1] not in (b"{", b"["):
        raise not_utf8(source.name) if head[0] > 127 else UnreadableFile("format", f"{source.name} is not JSON")
    if _is_lines(head):
        source.require_utf8(mostly=True)
        yield from _lines(source)
    else:
        yield from _values(source, "item" if head.startswith(b"[") else "")


def array_elements(source: Source) -> Iterator[Document | BadRecord]:
    """The values of one JSON array inside an export of many files: whatever is wrong costs only this file."""
    number = 0
    try:
        with source.open() as stream:
            tail = _Tail(stream)
            try:
                for value in ijson.items(tail, "item", use_float=True):
                    number += 1
                    yield Document(number, value, value)
            except BREAKS as error:
                broken = BrokenJson(error, tail)
                yield bad(source, number + 1, broken.reason, broken.detail)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        yield bad(source, number + 1, "truncated", "this member of the zip is damaged")


def _is_lines(head: bytes) -> bool:
    lines = [line for line in head.split(b"\n", 64) if line.strip()]
    if len(lines) == 1:
        return head.startswith(b"{")
    # A broken first line is still a line if the next one begins an object at the margin; pretty-printed JSON indents.
    return _parses(lines[0]) or (head.startswith(b"{") and lines[1].startswith(b"{"))


def _parses(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _values(source: Source, prefix: str) -> Iterator[Document | BadRecord]:
    number = 0
    with source.open() as stream:
        tail = _Tail(stream)
        try:
            for value in ijson.items(tail, prefix, use_float=True, multiple_values=True):
                number += 1
                yield Document(number, value, value)
        except BREAKS as error:
            broken = BrokenJson(error, tail)
            if not number and (not prefix or broken.reason != "truncated"):
                raise _unreadable(source, broken) from None
            yield bad(source, number + 1, broken.reason, broken.detail)


def _lines(source: Source) -> Iterator[Document | BadRecord]:
    for number, line, too_long in source.lines():
        if too_long:
            yield bad(source, number, "line_too_long", "the line is over 8 MiB", line)
        elif line.strip():
            value = decode_line(source, number, line)
            yield value if isinstance(value, BadRecord) else Document(number, value, line)


def decode_line(source: Source, number: int, line: bytes) -> Any:
    """The line's value, or a bad record that says what is wrong with it."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _undecodable(source, number, line)


def _undecodable(source: Source, number: int, line: bytes) -> BadRecord:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return bad(source, number, "encoding", "bytes that are no UTF-8; try --encoding", line)
    if _has_lone_surrogate(text):
        return bad(source, number, "lone_surrogate", "half of a surrogate pair is not Unicode text", line)
    if not line.endswith(b"\n"):
        return bad(source, number, "truncated", "the last line ends in the middle of a record", line)
    return bad(source, number, "not_json", "the line is not JSON", line)


def _has_lone_surrogate(text: str) -> bool:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _unreadable(source: Source, broken: BrokenJson) -> UnreadableFile:
    if broken.reason == "encoding":
        return not_utf8(source.name)
    return UnreadableFile("format", f"{source.name}: {_MISSING} ({broken.detail})")
