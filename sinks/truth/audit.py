"""Truth, the audit chain: entries that name their predecessor's hash, each signed; a change in the past breaks what follows.

Whoever may write to the database can cut the chain's end off; a receipt that was handed out names its place and hash, so the
cut is found when it is verified (RFC 6962 calls that a consistency proof; here the whole chain is read).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, select

from sinks.truth.sql import insert_rows
from sinks.truth.tables import audit_chain

_FIRST = "0" * 64


@dataclass(frozen=True, slots=True)
class Link:
    """A place in the chain. `hash` is SHA-256 over place, time, kind, entry and the previous hash, in hex."""

    seq: int
    hash: str
    signature: str


class AuditChain:
    """Appends and checks. The signing key is derived from `secret`, which must be the deployment's for ever."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"memriver:audit:1", "sha256")

    def append(self, connection: Connection, kind: str, entry: dict[str, Any], now: datetime) -> Link:
        """One more entry, in the caller's transaction; two at once conflict, and one of them is done again.

        `entry` must hold nothing personal: it is kept for ever.
        """
        last = connection.execute(
            select(audit_chain.c.seq, audit_chain.c.hash).order_by(audit_chain.c.seq.desc()).limit(1)
        ).one_or_none()
        seq, previous = (last.seq + 1, last.hash) if last is not None else (1, _FIRST)
        body = orjson.dumps(entry, option=orjson.OPT_SORT_KEYS).decode()
        link = self._link(seq, kind, now, body, previous)
        row = {"seq": seq, "kind": kind, "at": now, "entry": body, "previous": previous}
        insert_rows(connection, audit_chain, [row | {"hash": link.hash, "signature": link.signature}])
        return link

    def faults(self, connection: Connection) -> Iterator[str]:
        """What is wrong with the chain, in plain words; nothing for a whole one."""
        expected, previous = 1, _FIRST
        for row in connection.execute(select(audit_chain).order_by(audit_chain.c.seq)):
            if row.seq != expected:
                yield f"entries {expected} to {row.seq - 1} are missing"
            elif row.previous != previous:
                yield f"entry {row.seq} does not follow the one before it"
            link = self._link(row.seq, row.kind, row.at, row.entry, row.previous)
            if not hmac.compare_digest(link.hash, row.hash):
                yield f"entry {row.seq} was changed"
            elif not hmac.compare_digest(link.signature, row.signature):
                yield f"entry {row.seq} was signed with another key"
            expected, previous = row.seq + 1, row.hash

    def holds(self, connection: Connection, link: Link) -> bool:
        """Whether the chain has this very entry at its place."""
        found = connection.execute(select(audit_chain.c.hash).where(audit_chain.c.seq == link.seq)).scalar()
        return found is not None and hmac.compare_digest(str(found), link.hash)

    def sign(self, text: str) -> str:
        """HMAC-SHA256 in hex."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def _link(self, seq: int, kind: str, at: datetime, entry: str, previous: str) -> Link:
        text = "\n".join((str(seq), kind, at.isoformat(), entry, previous))
        name = hashlib.sha256(text.encode()).hexdigest()
        return Link(seq, name, self.sign(name))
