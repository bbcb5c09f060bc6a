"""Portability, reading: an export line by line; whatever is wrong with it is said with its line, before anything is done."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from pydantic import ValidationError

from processors.exceptions import PoisonError
from schemas import Candidate, Command, Contract, Memory, digest
from schemas.portable import (
    COUNTED,
    LINES,
    Bundle,
    ExportedClaim,
    ExportedMemory,
    ExportedRetraction,
    ExportedReview,
    ExportedTurn,
    ExportedVersion,
    ExportHeader,
    ExportTrailer,
    Line,
)
from streams.portability.consistency import contradiction, forged_review
from streams.portability.signing import Signer

MAX_LINE = 32 * 1024 * 1024
"""Bytes of a line; the largest is a memory with everything that a body of truth can hold."""

_CRC = re.compile(rb',"crc32":"([0-9a-f]{8})"\}$')


class DamagedExport(PoisonError):
    """The file is not what memriver wrote, or was changed since. `line` counts from 1."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__("damaged_export", f"line {line}: {detail}")
        self.line = line


Part = ExportedReview | ExportedRetraction | Bundle | ExportedTurn
"""What an import acts on: a line, or the lines of one cell together."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that is whole. `vouched` is True when a key that we hold signed it."""

    header: ExportHeader
    trailer: ExportTrailer
    vouched: bool

    @property
    def owner_key(self) -> str:
        """Digest of the owner that it is about."""
        return digest(self.header.tenant, self.header.owner_kind, self.header.owner)


def check(path: Path, signers: tuple[Signer, ...]) -> Checked:
    """Read all of it and believe none: checksums, counts, order, contracts, and whether memories follow from claims.

    Raises:
        DamagedExport: with the line.
        PoisonError: signed by one of `signers` and changed since.
    """
    reader = _Reader(path)
    for _part in reader.parts():
        pass
    header, trailer = reader.header, reader.trailer
    assert header is not None
    assert trailer is not None
    vouched = False
    for signer in signers:
        if trailer.key_id == signer.key_id:
            if trailer.signature is None or not signer.holds(trailer.sha256, trailer.signature):
                raise DamagedExport(reader.number, "the signature is wrong: the file was changed after it was signed")
            vouched = vouched or signer.trusted
    return Checked(header, trailer, vouched)


def parts(path: Path) -> Iterator[Part]:
    """The content of a file that was checked."""
    return _Reader(path).parts()


class _Reader:
    """One pass. Holds one cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.number = 0
        self.header: ExportHeader | None = None
        self.trailer: ExportTrailer | None = None

    def parts(self) -> Iterator[Part]:
        seen, checksum = Counter[str](), hashlib.sha256()
        order, cell = 0, _OpenCell()
        last = ""
        for raw in self._raw():
            content = self._line(raw)
            if self.header is None:
                self._begin(content)
                checksum.update(raw)
                continue
            if self.trailer is not None:
                raise self._damaged("something follows the trailer")
            if isinstance(content, ExportTrailer):
                self._end(content, seen, checksum.hexdigest())
                continue
            checksum.update(raw)
            seen[content.kind] += 1
            rank = _RANK.get(content.kind, -1)
            if rank < order:
                raise self._damaged(f"a {content.kind} does not belong here")
            order = rank
            self._ours(content)
            if isinstance(content, (ExportedClaim, ExportedMemory, ExportedVersion)):
                if content.cell_key != cell.key:
                    yield from self._close(cell)
                    if content.cell_key <= last:
                        raise self._damaged("cells come in the order of their keys, each in one piece")
                    last = content.cell_key
                    cell = _OpenCell(content.cell_key, self.number)
                cell.add(content)
            else:
                yield from self._close(cell)
                cell = _OpenCell()
                assert isinstance(content, (ExportedReview, ExportedRetraction, ExportedTurn))
                yield content
        yield from self._close(cell)
        if self.trailer is None:
            raise DamagedExport(self.number + 1, "the file ends without a trailer: it was cut off")

    def _raw(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                self.number += 1
                if len(raw) > MAX_LINE:
                    raise self._damaged(f"longer than {MAX_LINE} bytes")
                if not raw.endswith(b"\n"):
                    raise self._damaged("cut off in the middle")
                yield raw

    def _line(self, raw: bytes) -> Line:
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise self._damaged("not JSON") from None
        kind = data.get("kind") if isinstance(data, dict) else None
        contract = LINES.get(kind) if isinstance(kind, str) else None
        if contract is None:
            raise self._damaged("no line of a memriver export")
        try:
            content = contract.from_dict(data)
        except ValidationError as error:
            where = sorted({".".join(str(part) for part in item["loc"]) for item in error.errors(include_input=False)})
            # Where and not what: the value is somebody's.
            raise self._damaged(f"a {kind} with wrong fields: {', '.join(where)[:200]}") from None
        except ValueError as error:
            raise self._damaged(str(error)) from None
        found = _CRC.search(raw[:-1])
        if found is None or zlib.crc32(raw[: found.start()] + b"}") != int(found[1], 16):
            raise self._damaged("changed or damaged: its checksum does not fit")
        return content

    def _begin(self, content: Line) -> None:
        if not isinstance(content, ExportHeader):
            raise self._damaged("an export begins with its header")
        self.header = content

    def _end(self, content: ExportTrailer, seen: Counter[str], sha256: str) -> None:
        assert self.header is not None
        counted = {kind: seen[kind] for kind in COUNTED}
        for kind in COUNTED:
            said = {self.header.counts.get(kind, 0), content.counts.get(kind, 0)}
            if said != {counted[kind]}:
                raise self._damaged(f"{counted[kind]} lines of kind {kind}, the header and the trailer say otherwise")
        if content.sha256 != sha256:
            raise self._damaged("the checksum over all lines does not fit: a line was changed, lost, moved or added")
        self.trailer = content

    def _ours(self, content: Line) -> None:
        header = self.header
        assert header is not None
        ours = digest(header.tenant, header.owner_kind, header.owner)
        about: Candidate | Memory | Contract | None = None
        if isinstance(content, ExportedClaim):
            about = content.claim
        elif isinstance(content, (ExportedMemory, ExportedVersion)):
            about = content.memory
        elif isinstance(content, ExportedTurn):
            about = content.turn
        elif isinstance(content, ExportedReview) and content.body is not None:
            about = _held(content.body)
            if about is None or forged_review(about):
                raise self._damaged("a review with a command that nobody could have held")
        if about is not None and getattr(about, "owner_key", None) != ours:
            raise self._damaged("about another owner than the header says")

    def _close(self, cell: _OpenCell) -> Iterator[Bundle]:
        if cell.key is None:
            return
        bundle = cell.bundle()
        found = contradiction(bundle)
        if found is not None:
            raise DamagedExport(cell.numbers[found.kind][found.index], found.words)
        yield bundle

    def _damaged(self, detail: str) -> DamagedExport:
        return DamagedExport(self.number, detail)


class _OpenCell:
    """The lines of a cell so far, and where each of them stands."""

    def __init__(self, key: str | None = None, line: int = 0) -> None:
        self.key = key
        self._claims: list[Candidate] = []
        self._memories: list[Memory] = []
        self._versions: list[ExportedVersion] = []
        self.numbers: dict[str, list[int]] = {"cell": [line], "claim": [], "memory": [], "version": []}
        self._line = line

    def add(self, content: ExportedClaim | ExportedMemory | ExportedVersion) -> None:
        if isinstance(content, ExportedClaim):
            self._claims.append(content.claim)
        elif isinstance(content, ExportedMemory):
            self._memories.append(content.memory)
        else:
            self._versions.append(content)
        self.numbers[content.kind].append(self._line)
        self._line += 1

    def bundle(self) -> Bundle:
        assert self.key is not None
        return Bundle(
            cell_key=self.key,
            claims=tuple(self._claims),
            memories=tuple(self._memories),
            versions=tuple(self._versions),
        )


# Claims, memories and versions come cell by cell.
_RANK = {"review": 0, "retraction": 1, "claim": 2, "memory": 2, "version": 2, "turn": 3}


def _held(body: str) -> Command | None:
    try:
        return Command.from_bytes(body.encode())
    except ValueError:
        return None
