"""Resolution, the unit of work: a cell is a whole single-valued slot, or one value of a multi-valued one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from processors.slots import value_key
from schemas import Candidate, Cardinality, Memory, digest, new_id


def slot_key_of(claim: Candidate) -> str:
    """Digest of owner, namespace, subject and attribute."""
    return digest(claim.owner_key, claim.namespace, value_key(claim.subject), claim.attribute)


def cell_key_of(claim: Candidate) -> str:
    """The slot itself when it holds one value; otherwise slot and value, so that a long list is not folded for one item."""
    slot = slot_key_of(claim)
    if claim.cardinality is Cardinality.SINGLE:
        return slot
    return digest(slot, value_key(claim.value))


def memory_id_of(claim: Candidate, representative: str) -> str:
    """Deterministic: the same owner, slot and value have the same id in every replay."""
    return new_id(claim.owner_key, claim.namespace, value_key(claim.subject), claim.attribute, representative)


@dataclass(slots=True)
class Cell:
    """The folded state of a cell.

    `memories` by representative value; `current` names the one that holds now (single-valued cells only); `aliases` maps
    each spelling to its representative; `last_key` is the order key of the newest entry, or retraction, folded in.
    """

    memories: dict[str, Memory] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    retired: dict[str, Memory] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    current: str | None = None
    last_key: str = ""

    def representative(self, value: str) -> str:
        """The value under which this spelling is kept."""
        key = value_key(value)
        return self.aliases.get(key, key)

    def copy(self) -> Cell:
        """A cell that can change without touching this one; memories are immutable and shared."""
        return Cell(
            dict(self.memories), dict(self.aliases), dict(self.retired), dict(self.counts), self.current, self.last_key
        )

    def to_bytes(self) -> bytes:
        """JSON for the cells table."""
        body: dict[str, Any] = {
            "memories": {key: memory.model_dump(mode="json") for key, memory in self.memories.items()},
            "aliases": self.aliases,
            "retired": {key: memory.model_dump(mode="json") for key, memory in self.retired.items()},
            "counts": self.counts,
            "current": self.current,
            "last_key": self.last_key,
        }
        return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Cell:
        """Inverse of `to_bytes`."""
        body = orjson.loads(raw)
        return cls(
            memories={key: Memory.model_validate(value) for key, value in body["memories"].items()},
            aliases=body["aliases"],
            retired={key: Memory.model_validate(value) for key, value in body["retired"].items()},
            counts=body["counts"],
            current=body["current"],
            last_key=body["last_key"],
        )
