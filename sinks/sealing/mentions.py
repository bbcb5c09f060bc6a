"""Sinks, sealing: whether some bytes are about somebody who was erased, told by the hashes of the identities in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from schemas import OwnerKind, digest
from sinks.sealing.identity import Identities


class Mentions:
    """Reads JSON of any of the contracts, however deep; anything else only for plain words.

    Args:
        subjects: subject keys, by any kind.
        memory_ids: memories that are gone, by their plain ids.
        needles: words that give the person away where there is no JSON; known only while an erasure is under way.
    """

    def __init__(
        self,
        identities: Identities,
        subjects: Collection[str],
        memory_ids: Collection[str] = (),
        needles: Collection[bytes] = (),
    ) -> None:
        self._of = identities
        self._subjects = frozenset(subjects)
        self._memory_ids = frozenset(memory_ids)
        self._needles = tuple(needles)

    def in_bytes(self, raw: bytes) -> bool:
        """Whether the message is about one of them."""
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return any(needle in raw for needle in self._needles)
        return self._in(data, "default")

    def owner(self, owner_key: str) -> bool:
        """Whether this owner is one of them."""
        return self._of.owner(owner_key) in self._subjects

    def tenant(self, tenant: str) -> bool:
        """Whether this tenant is one of them."""
        return self._of.tenant(tenant) in self._subjects

    def conversation(self, conversation_key: str) -> bool:
        """Whether this conversation is one of them."""
        return self._of.conversation(conversation_key) in self._subjects

    def turn(self, turn_key: str) -> bool:
        """Whether this turn is one of them."""
        return self._of.turn(turn_key) in self._subjects

    def memory(self, memory_id: str) -> bool:
        """Whether this memory is gone."""
        return memory_id in self._memory_ids or self._of.memory(memory_id) in self._subjects

    def _in(self, data: Any, tenant: str) -> bool:
        if isinstance(data, dict):
            return self._is(data, tenant) or any(
                self._in(value, str(data.get("tenant", tenant)))
                for value in data.values()
                if isinstance(value, (dict, list))
            )
        if isinstance(data, list):
            return any(self._in(item, tenant) for item in data if isinstance(item, (dict, list)))
        return False

    def _is(self, data: Mapping[str, Any], outer: str) -> bool:
        given = {key: value for key, value in data.items() if isinstance(value, str) and value}
        tenant = given.get("tenant", outer)
        if self.tenant(tenant) or self.owner(given.get("owner_key", "")):
            return True
        if "user_id" in given and self.owner(digest(tenant, OwnerKind.USER, given["user_id"])):
            return True
        kind = given.get("owner_kind", OwnerKind.USER.value)
        if "owner" in given and self.owner(digest(tenant, kind, given["owner"])):
            return True
        if "conversation_id" in given:
            if self.conversation(digest(tenant, given["conversation_id"])):
                return True
            if "turn_id" in given and self.turn(digest(tenant, given["conversation_id"], given["turn_id"])):
                return True
        if any(self.turn(given[name]) for name in ("turn_key", "target_turn_key") if name in given):
            return True
        return any(self.memory(given[name]) for name in ("memory_id", "id", "other_memory_id") if name in given)
