"""Sinks, sealing: identities as keyed hashes, all that is kept of somebody who was erased.

`schemas.digest` needs no secret: whoever has a list of telephone numbers can compute everybody's. What outlives an erasure
is therefore an HMAC under the deployment's hash key. The key must never change, or the erased are strangers again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Protocol


class Owned(Protocol):
    """Whatever belongs to somebody."""

    @property
    def tenant(self) -> str: ...
    @property
    def owner_key(self) -> str: ...


class Identities:
    """Keyed hashes of owners, conversations, memories, turns and tenants; 32 hex characters each."""

    def __init__(self, hash_key: bytes) -> None:
        # A key of its own: hashes that the policy gate shows for masked values must not match these.
        self._key = hmac.digest(hash_key, b"memriver:identities:1", "sha256")

    def owner(self, owner_key: str) -> str:
        """`owner_key` as `schemas` computes it."""
        return self._of("owner", owner_key)

    def tenant(self, tenant: str) -> str:
        """Everybody of one tenant, those who have not come yet included."""
        return self._of("tenant", tenant)

    def conversation(self, conversation_key: str) -> str:
        """One conversation."""
        return self._of("conversation", conversation_key)

    def turn(self, turn_key: str) -> str:
        """One turn: what an erased memory was made from."""
        return self._of("turn", turn_key)

    def memory(self, memory_id: str) -> str:
        """One memory."""
        return self._of("memory", memory_id)

    def holders(self, owned: Iterable[Owned]) -> set[str]:
        """The owners of these and their tenants: who decides whether they may come in."""
        pairs = {(item.tenant, item.owner_key) for item in owned}
        return {self.tenant(tenant) for tenant, _owner in pairs} | {self.owner(owner) for _tenant, owner in pairs}

    def _of(self, kind: str, name: str) -> str:
        return hashlib.blake2b(f"{kind}:{name}".encode(), key=self._key, digest_size=16).hexdigest()
