"""Access, the keyring: keys are made, shown once and kept as keyed hashes; a presented key becomes a principal."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from processors.access import Grant, Principal, PrincipalKind, Scope, principal_key
from processors.exceptions import MemriverError, TransientError
from schemas import Memory, new_id
from sinks.truth import Truth, access
from sinks.truth.access import StoredGrant, StoredKey

_MARK = "mr"
_PREFIX_BYTES = 6
_SECRET_BYTES = 32  # 256 bits: no dictionary or search finds one, so a fast hash is enough
_FRESH = timedelta(seconds=2)
"""How long a revoked key or grant may still work; each key is read from the database at most this often."""
_PATIENT = timedelta(minutes=5)
"""How long intake goes on with what it last knew of a key while the database is away (SPEC W2)."""
_CACHE = 10_000


class BadKey(MemriverError):
    """No key, or none that is good. Says no more: expired, revoked and unknown look the same from outside."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; `secret` is the only copy there will ever be."""

    secret: str
    stored: StoredKey


class Keyring:
    """Makes, checks and revokes keys. `pepper` keys the hashes, so that a stolen table alone checks nothing."""

    def __init__(self, truth: Truth, pepper: bytes, now: Callable[[], datetime]) -> None:
        self._truth = truth
        # BLAKE2 takes at most 64 bytes of key (RFC 7693).
        self._pepper = hashlib.blake2b(pepper, digest_size=32, person=b"memriver-apikey").digest()
        self._now = now
        self._known: dict[str, tuple[Principal, datetime | None, datetime]] = {}
        self._lock = threading.Lock()

    def create(
        self,
        tenant: str,
        kind: PrincipalKind,
        name: str,
        scopes: Iterable[Scope],
        *,
        label: str = "",
        created_by: str = "cli",
        expires_at: datetime | None = None,
        grants: Sequence[Grant] = (),
    ) -> NewKey:
        """A new key, and grants for its principal, in one transaction."""
        prefix, secret = secrets.token_hex(_PREFIX_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        now = self._now()
        holder = principal_key(tenant, kind, name)
        stored = StoredKey(
            prefix=prefix,
            hash=self._hash(prefix, secret),
            tenant=tenant,
            principal_key=holder,
            principal_kind=kind,
            principal=name,
            label=label,
            scopes=frozenset(scopes),
            created_at=now,
            created_by=created_by,
            expires_at=expires_at,
            revoked_at=None,
        )

        def write(connection: Any) -> None:
            access.insert_key(connection, stored)
            for grant in grants:
                item = StoredGrant(_grant_id(), tenant, kind, name, grant, now, created_by)
                access.insert_grant(connection, holder, item)

        self._truth.run(write)
        return NewKey(f"{_MARK}_{prefix}_{secret}", stored)

    def grant(
        self, tenant: str, kind: PrincipalKind, name: str, grant: Grant, *, granted_by: str = "cli"
    ) -> StoredGrant:
        """One more grant for a principal."""
        item = StoredGrant(_grant_id(), tenant, kind, name, grant, self._now(), granted_by)
        holder = principal_key(tenant, kind, name)
        self._truth.run(lambda connection: access.insert_grant(connection, holder, item))
        self._forget()
        return item

    def grants(self, tenant: str) -> list[StoredGrant]:
        """Every standing grant of a tenant."""
        with self._truth.reading() as connection:
            return access.list_grants(connection, tenant)

    def keys(self, tenant: str | None = None) -> list[StoredKey]:
        """Every key, without its secret."""
        with self._truth.reading() as connection:
            return access.list_keys(connection, tenant=tenant)

    def revoke_grant(self, tenant: str, grant_id: str) -> bool:
        """False when the tenant has no such grant."""
        done = self._truth.run(lambda connection: access.revoke_grant(connection, tenant, grant_id, self._now()))
        self._forget()
        return done

    def revoke(self, prefix: str) -> bool:
        """False when there is no such key, or it was revoked before."""
        done = self._truth.run(lambda connection: access.revoke_key(connection, prefix, self._now()))
        self._forget()
        return done

    def principal(self, key: str, *, patient: bool = False) -> Principal:
        """Who holds this key. `patient` is for intake: what was known minutes ago is enough.

        Raises:
            BadKey: not a key, unknown, expired, revoked.
            TransientError: the database is away and nothing recent is known.
        """
        parts = key.split("_", 2)
        if len(parts) != 3 or parts[0] != _MARK or len(key) > 200 or not key.isascii():
            raise BadKey("this is no memriver key")
        now = self._now()
        mark = self._hash(parts[1], parts[2])
        known = self._known.get(mark)
        if known is not None and now - known[2] < (_PATIENT if patient else _FRESH):
            return _unexpired(known[0], known[1], now)
        try:
            principal, expires_at = self._read(parts[1], mark, now)
        except BadKey:
            with self._lock:
                self._known.pop(mark, None)
            raise
        with self._lock:
            if len(self._known) >= _CACHE:
                self._known.clear()
            self._known[mark] = (principal, expires_at, now)
        return _unexpired(principal, expires_at, now)

    def _read(self, prefix: str, mark: str, now: datetime) -> tuple[Principal, datetime | None]:
        with self._truth.reading() as connection:
            stored = access.find_key(connection, prefix)
            # Compared even when there is none, so that the time of the answer does not tell which prefixes exist.
            good = hmac.compare_digest(stored.hash if stored is not None else "0" * len(mark), mark)
            if stored is None or not good or stored.revoked_at is not None:
                raise BadKey("this key is not good")
            held = access.grants_of(connection, stored.principal_key)
        principal = Principal(
            stored.tenant, stored.principal_kind, stored.principal, stored.prefix, stored.scopes, held
        )
        return principal, stored.expires_at

    def _hash(self, prefix: str, secret: str) -> str:
        return hashlib.blake2b(f"{prefix}_{secret}".encode(), digest_size=32, key=self._pepper).hexdigest()

    def _forget(self) -> None:
        with self._lock:
            self._known.clear()


def _unexpired(principal: Principal, expires_at: datetime | None, now: datetime) -> Principal:
    if expires_at is not None and expires_at <= now:
        raise BadKey("this key is not good")
    return principal


def _grant_id() -> str:
    return new_id("grant", secrets.token_hex(16))


class ReadLog:
    """Who read what, collected and written in batches: a read must not cost a write (SPEC G2, A4)."""

    def __init__(self, truth: Truth, now: Callable[[], datetime], *, limit: int = 500) -> None:
        self._truth = truth
        self._now = now
        self._limit = limit
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def note(self, principal: Principal, verb: str, found: Iterable[Memory], *, agent: str | None = None) -> None:
        """Remember that these went out; writes when enough have come together.

        `agent` is for whom the key's holder asked, as it says: a gateway serves many agents with one key.
        """
        now = self._now()
        reader = principal.name if agent is None or agent == principal.id else f"{principal.name} for {agent}"
        rows = [
            {
                "owner_key": memory.owner_key,
                "memory_id": memory.id,
                "version": memory.version,
                "reader": reader[:255],
                "verb": verb,
                "read_at": now,
            }
            for memory in found
        ]
        with self._lock:
            self._rows += rows
            full = len(self._rows) >= self._limit
        if full:
            self.flush()

    def flush(self) -> int:
        """Write what has come together; returns how many rows. Kept for the next time when the database is away."""
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows:
            return 0
        try:
            self._truth.run(lambda connection: access.record_reads(connection, rows), attempts=2)
        except TransientError:
            with self._lock:
                self._rows = (rows + self._rows)[-100 * self._limit :]
            return 0
        return len(rows)
