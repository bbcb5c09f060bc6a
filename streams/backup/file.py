"""Backup, the file: gzip over lines — a manifest, each table's name and rows, a trailer with counts and SHA-256.

Why not the databases' own tools: one format restores into SQLite, MySQL and MariaDB alike, a person can read it, its
checksum covers everything, and no password is on a command line (ops/decisions/0029).
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from processors.exceptions import PoisonError
from streams.portability.signing import Signer

FORMAT = "memriver-backup"
VERSION = 1
_LEVEL = 3
"""Of gzip: rows are JSON and repeat themselves; higher levels take twice the time for a tenth of the size."""

Positions = dict[str, dict[str, dict[int, int]]]
"""Consumer group → topic (without the deployment's prefix) → partition → the next offset that the group reads."""


class DamagedBackup(PoisonError):
    """The file is not what memriver wrote, or was changed since. `line` counts from 1, in what is unpacked."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__("damaged_backup", f"line {line}: {detail}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds. `positions` were taken before the snapshot; None: no broker was asked."""

    revision: str
    created_at: str
    backend: str
    columns: dict[str, list[str]]
    counts: dict[str, int]
    key_id: str
    positions: Positions | None = None
    format: str = FORMAT
    schema_version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Its line."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Raises ValueError for another format, or a newer version of this one."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError("no backup of memriver")
        version = data.get("schema_version")
        if version != VERSION:
            raise ValueError(f"a backup of format {version}, this code knows {VERSION}")
        positions = data.get("positions")
        try:
            return cls(
                revision=str(data["revision"]),
                created_at=str(data["created_at"]),
                backend=str(data["backend"]),
                columns={str(name): [str(item) for item in row] for name, row in data["columns"].items()},
                counts={str(name): int(count) for name, count in data["counts"].items()},
                key_id=str(data["key_id"]),
                positions=None if positions is None else _positions(positions),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError("a manifest with wrong fields") from error


def _positions(data: Any) -> Positions:
    return {
        str(group): {
            str(topic): {int(at): int(offset) for at, offset in places.items()} for topic, places in row.items()
        }
        for group, row in data.items()
    }


def pack(manifest: Manifest, tables: Iterator[tuple[str, Iterator[list[Any]]]], signer: Signer) -> Iterator[bytes]:
    """The file, in pieces. `tables` are read as they are needed."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    checksum, counts = hashlib.sha256(), dict[str, int]()

    def line(value: Any) -> bytes:
        raw = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS) + b"\n"
        checksum.update(raw)
        return squeeze.compress(raw)

    yield line(manifest.to_json())
    for name, rows in tables:
        yield line({"table": name})
        counts[name] = 0
        for row in rows:
            counts[name] += 1
            yield line(row)
    if counts != manifest.counts:
        raise PoisonError("inconsistent_truth", "the snapshot has other rows than it counted")
    sha256 = checksum.hexdigest()
    trailer = {"trailer": True, "counts": counts, "sha256": sha256, "signature": signer.sign(sha256)}
    yield line(trailer) + squeeze.flush()


@dataclass(slots=True)
class Reader:
    """One pass over a file."""

    path: Path
    number: int = 0
    manifest: Manifest | None = field(default=None)
    signature: str = ""
    sha256: str = ""

    def tables(self) -> Iterator[tuple[str, list[Any] | None]]:
        """(table, None) where one begins, then (table, row) for each row.

        Raises:
            DamagedBackup: with the line.
        """
        checksum, counts = hashlib.sha256(), dict[str, int]()
        table: str | None = None
        ended = False
        for raw in self._lines():
            value = self._json(raw)
            if ended:
                raise self.damaged("something follows the trailer")
            if self.manifest is None:
                self.manifest = self._manifest(value)
            elif isinstance(value, list):
                if table is None:
                    raise self.damaged("a row of no table")
                counts[table] += 1
                yield table, value
            elif isinstance(value, dict) and "table" in value:
                table = str(value["table"])
                if table not in self.manifest.columns or table in counts:
                    raise self.damaged("a table that the manifest does not name, or twice")
                counts[table] = 0
                yield table, None
            elif isinstance(value, dict) and value.get("trailer") is True:
                self._end(value, counts, checksum.hexdigest())
                ended = True
            else:
                raise self.damaged("no line of a backup")
            checksum.update(raw)
        if not ended:
            raise DamagedBackup(self.number + 1, "the file ends without a trailer: it was cut off")

    def _lines(self) -> Iterator[bytes]:
        try:
            with gzip.open(self.path, "rb") as file:
                for raw in file:
                    self.number += 1
                    yield raw
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DamagedBackup(self.number + 1, "cut off, or no gzip file") from error

    def _json(self, raw: bytes) -> Any:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise self.damaged("not JSON") from None

    def _manifest(self, value: Any) -> Manifest:
        try:
            return Manifest.from_json(value)
        except ValueError as error:
            raise self.damaged(str(error)) from error

    def _end(self, value: dict[str, Any], counts: dict[str, int], sha256: str) -> None:
        assert self.manifest is not None
        for name, expected in self.manifest.counts.items():
            if counts.get(name) != expected or value.get("counts", {}).get(name) != expected:
                raise self.damaged(f"{counts.get(name, 0)} rows of {name}, the manifest says {expected}")
        if value.get("sha256") != sha256:
            raise self.damaged("the checksum does not fit: something was changed, lost or added")
        self.sha256, self.signature = sha256, str(value.get("signature"))

    def damaged(self, detail: str) -> DamagedBackup:
        """An error at the present line."""
        return DamagedBackup(self.number, detail)
