"""Portability, writing: one owner's memories as JSON lines, from one snapshot, a page at a time."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import orjson

from processors.access import OwnerRef
from processors.exceptions import PoisonError
from schemas import digest
from schemas.portable import COUNTED, ExportHeader, ExportTrailer, Line, export_schema
from sinks.truth import Truth, portable
from streams.portability.signing import Signer

SCHEMA_FILE = "memriver-export.schema.json"
"""What the JSON Schema is called that is written beside an export."""


def export_lines(
    truth: Truth, tenant: str, owner: OwnerRef, *, with_turns: bool, signer: Signer, now: datetime
) -> Iterator[bytes]:
    """Header, content and trailer, each line with its newline. Holds one page of cells at a time.

    Raises:
        PoisonError: truth has never heard of this owner.
    """
    owner_key = digest(tenant, owner.kind, owner.id)
    with portable.snapshot(truth) as connection:
        if not portable.owner_known(connection, owner_key):
            raise PoisonError("unknown_owner", "truth has never heard of this owner in this tenant")
        counts = portable.counts(connection, owner_key, with_turns=with_turns)
        checksum, written = hashlib.sha256(), Counter[str]()

        def line(content: Line) -> bytes:
            raw = sealed(content)
            checksum.update(raw)
            written[content.kind] += 1
            return raw

        header = ExportHeader(
            tenant=tenant, owner_kind=owner.kind, owner=owner.id, exported_at=now, with_turns=with_turns, counts=counts
        )
        yield line(header)
        for review in portable.reviews_of(connection, owner_key):
            yield line(review)
        for retraction in portable.retractions_of(connection, owner_key):
            yield line(retraction)
        for claims, memories, versions in portable.cells_of(connection, owner_key):
            for part in (*claims, *memories, *versions):
                yield line(part)
        if with_turns:
            for turn in portable.turns_of(connection, owner_key):
                yield line(turn)
    total = {kind: written[kind] for kind in COUNTED}
    if total != counts:
        # A claim or a memory of no cell: nothing that memriver writes, and nothing to be silent about.
        raise PoisonError("inconsistent_truth", f"truth has {counts}, its cells have {total}")
    sha256 = checksum.hexdigest()
    yield sealed(ExportTrailer(counts=total, sha256=sha256, key_id=signer.key_id, signature=signer.sign(sha256)))


def sealed(content: Line) -> bytes:
    """The line with its own checksum as the last field, and a newline."""
    raw = content.to_bytes()
    return b'%s,"crc32":"%08x"}\n' % (raw[:-1], zlib.crc32(raw))


def schema_bytes() -> bytes:
    """The JSON Schema of a line; equal contracts give equal bytes."""
    return orjson.dumps(export_schema(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
