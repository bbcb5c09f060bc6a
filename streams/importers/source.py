"""The flow, importers: a log as a stream of UTF-8 bytes, whatever it was stored as."""

from __future__ import annotations

import codecs
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from streams.importers.records import Progress, UnreadableFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE = 8 * 1024 * 1024
"""Bytes of the longest line that is read: a turn has at most 100,000 characters, and a whole conversation fits too."""

HEAD = 64 * 1024
_BUFFER = 256 * 1024
_COPY_SUFFIX = re.compile(r"\s*\(\d{1,3}\)$")


@dataclass(frozen=True, slots=True)
class Source:
    """One file, or one member of a zip.

    `base` is what earlier members already counted towards `progress`.
    """

    path: Path
    encoding: str | None = None
    progress: Progress | None = None
    archive: zipfile.ZipFile | None = None
    member: zipfile.ZipInfo | None = None
    base: int = 0

    @property
    def name(self) -> str:
        """The file's name as it appears in `where`."""
        return self.path.name if self.member is None else f"{self.path.name}/{self.member.filename}"

    @property
    def title(self) -> str:
        """The chat's name for formats that keep it nowhere else; the " (1)" of a second download is dropped."""
        stem = self.path.stem
        if self.member is None and stem.lstrip("_").lower() in {"chat", "index"} and self.path.absolute().parent.name:
            stem = self.path.absolute().parent.name
        return _COPY_SUFFIX.sub("", stem) or stem

    def where(self, number: int | None) -> str:
        """`file.jsonl:17`."""
        return self.name if number is None else f"{self.name}:{number}"

    @contextmanager
    def open(self, *, report: bool = True) -> Iterator[IO[bytes]]:
        """The content as UTF-8 without a byte order mark. `report` is off in a first pass.

        Raises:
            UnreadableFile: the file cannot be opened, or is not in its declared encoding.
        """
        with self._raw() as raw:
            scale = 1.0
            if self.member is not None and self.member.file_size:
                scale = self.member.compress_size / self.member.file_size
            meter = _Meter(raw, self.progress if report else None, self.base, scale)
            stream = io.BufferedReader(meter, _BUFFER)
            encoding = self._encoding(stream.peek(4)[:4])
            if encoding == "utf-8":
                yield stream
                return
            if encoding == "utf-8-sig":
                stream.read(len(codecs.BOM_UTF8))
                yield stream
                return
            text = io.TextIOWrapper(stream, encoding=encoding, newline="")
            yield io.BufferedReader(_Recoded(text, self.name, encoding), _BUFFER)

    def lines(self, *, report: bool = True) -> Iterator[tuple[int, bytes, bool]]:
        """(1-based number, line with its newline, whether it is over `MAX_LINE` and only its beginning is given)."""
        with self.open(report=report) as stream:
            number = 0
            readline = stream.readline
            while line := readline(MAX_LINE + 1):
                number += 1
                if len(line) <= MAX_LINE:
                    yield number, line, False
                    continue
                rest = line
                while rest and not rest.endswith(b"\n"):
                    rest = readline(_BUFFER)
                yield number, line[:HEAD], True

    def texts(self, *, report: bool = True) -> Iterator[tuple[int, str, bool]]:
        """Lines as text; bytes that are no UTF-8 become lone surrogates, which no good record may contain."""
        for number, line, too_long in self.lines(report=report):
            yield number, line.decode("utf-8", "surrogateescape"), too_long

    def head(self) -> bytes:
        """The first 64 KiB as UTF-8."""
        with self.open(report=False) as stream:
            return stream.read(HEAD)

    def require_utf8(self, *, mostly: bool = False) -> None:
        """Refuse a file in another encoding; single broken lines are left to the reader.

        `mostly`: only if half of all lines are broken. For JSONL, where one broken line says little about the file.

        Raises:
            UnreadableFile: no line with a character beyond ASCII is UTF-8.
        """
        head = self.head()
        cut = head.rfind(b"\n") if len(head) == HEAD else len(head)
        lines = [line for line in head[: cut if cut > 0 else len(head)].split(b"\n") if line.strip()]
        beyond = [line for line in lines if not line.isascii()]
        broken = sum(1 for line in beyond if not _is_utf8(line))
        if broken and broken == len(beyond) and (not mostly or 2 * broken >= len(lines)):
            raise not_utf8(self.name)

    @contextmanager
    def _raw(self) -> Iterator[IO[bytes]]:
        try:
            if self.archive is not None and self.member is not None:
                raw: IO[bytes] = self.archive.open(self.member)
            else:
                raw = self.path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise UnreadableFile("missing", f"{self.name}: no such file") from error
        except IsADirectoryError as error:
            raise UnreadableFile("folder", f"{self.name} is a folder; give one file, or the export as a zip") from error
        except RuntimeError as error:
            raise UnreadableFile("encrypted", f"{self.name} is encrypted; unpack it first") from error
        except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
            raise UnreadableFile("unopenable", f"{self.name} cannot be opened") from error
        with raw:
            yield raw

    def _encoding(self, mark: bytes) -> str:
        if self.encoding is not None:
            try:
                name = codecs.lookup(self.encoding).name
            except LookupError as error:
                raise UnreadableFile("encoding", "this encoding is not known; try utf-8, gb18030 or utf-16") from error
            return "utf-8-sig" if name == "utf-8" and mark.startswith(codecs.BOM_UTF8) else name
        if mark.startswith(codecs.BOM_UTF8):
            return "utf-8-sig"
        if mark in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
            return "utf-32"
        if mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        return "utf-8"


def not_utf8(name: str) -> UnreadableFile:
    """The advice for a file in an undeclared encoding."""
    return UnreadableFile("encoding", f"{name} is not UTF-8; name its encoding, e.g. --encoding gb18030")


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip, open.

    Raises:
        UnreadableFile: missing, no zip, or cut off (the directory of a zip is at its end).
    """
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise UnreadableFile("missing", f"{path.name}: no such file") from error
    except (zipfile.BadZipFile, OSError, zlib.error, struct.error, NotImplementedError, ValueError) as error:
        # The last three: a directory of random bytes, a newer kind of zip, and a file name that is no UTF-8.
        raise UnreadableFile("zip", f"{path.name} is not a zip, or it is cut off") from error
    with archive:
        yield archive


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _Meter(io.RawIOBase):
    """Counts what is read, in bytes of the file on disk."""

    def __init__(self, raw: IO[bytes], progress: Progress | None, base: int, scale: float) -> None:
        super().__init__()
        self._raw = raw
        self._progress = progress
        self._base = base
        self._scale = scale
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._raw.read(len(view))
        view[: len(data)] = data
        self._count += len(data)
        if self._progress is not None and data:
            self._progress(self._base + int(self._count * self._scale))
        return len(data)


class _Recoded(io.RawIOBase):
    """Text of any encoding, as UTF-8 bytes."""

    def __init__(self, text: io.TextIOWrapper, name: str, encoding: str) -> None:
        super().__init__()
        self._text = text
        self._name = name
        self._encoding = encoding
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._rest:
            try:
                self._rest = self._text.read(len(view)).encode("utf-8", "surrogatepass")
            except UnicodeError as error:
                raise UnreadableFile("encoding", f"{self._name} is not {self._encoding}") from error
        data, self._rest = self._rest[: len(view)], self._rest[len(view) :]
        view[: len(data)] = data
        return len(data)
