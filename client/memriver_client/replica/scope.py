"""Replica, scope: what this replica may hold; narrow by default, and an empty choice is refused instead of meaning everything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from memriver_client.model import Memory
from memriver_client.owners import Owner


def within(namespace: str, prefix: str) -> bool:
    """Whether the namespace is the prefix or lies below it; "user/al" does not hold "user/alice"."""
    whole = prefix.rstrip("/")
    return namespace == whole or namespace.startswith(whole + "/")


@dataclass(frozen=True, init=False)
class Scope:
    """A tenant, and within it all owners and namespaces or the named ones.

    `owners`: a plain string is a user's id. `namespaces`: prefixes, at segment boundaries.
    """

    tenant: str
    owners: frozenset[Owner] | None
    namespaces: tuple[str, ...] | None

    def __init__(
        self, tenant: str, owners: Iterable[str | Owner] | None = None, namespaces: Iterable[str] | None = None
    ) -> None:
        """Raises ValueError for an empty tenant, an empty collection and an empty name: none of them means "all"."""
        if isinstance(owners, str) or isinstance(namespaces, str):
            raise ValueError("owners and namespaces are collections, not one string")
        chosen = None if owners is None else frozenset(o if isinstance(o, Owner) else Owner("user", o) for o in owners)
        prefixes = None if namespaces is None else tuple(sorted(set(namespaces)))
        if not tenant:
            raise ValueError("a replica needs a tenant")
        if chosen is not None and not (chosen and all(owner.kind and owner.id for owner in chosen)):
            raise ValueError("owners must name at least one owner, or be None for all of the tenant")
        if prefixes is not None and not (prefixes and all(prefix.strip("/") for prefix in prefixes)):
            raise ValueError("namespaces must name at least one prefix, or be None for all of the tenant")
        object.__setattr__(self, "tenant", tenant)
        object.__setattr__(self, "owners", chosen)
        object.__setattr__(self, "namespaces", prefixes)

    def covers_owner(self, memory: Memory) -> bool:
        """Whether the memory's owner is ours to follow."""
        return memory.tenant == self.tenant and (self.owners is None or owner_of(memory) in self.owners)

    def covers(self, memory: Memory) -> bool:
        """Whether the memory may be held."""
        return self.covers_owner(memory) and (
            self.namespaces is None or any(within(memory.namespace, prefix) for prefix in self.namespaces)
        )

    def fingerprint(self, topic: str) -> str:
        """32 hex characters; what was stored under another scope or topic is not used."""
        said = [topic, self.tenant, sorted(self.owners) if self.owners is not None else None, self.namespaces]
        return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def owner_of(memory: Memory) -> Owner:
    """Whose memory it is."""
    return Owner(memory.owner_kind, memory.owner)
