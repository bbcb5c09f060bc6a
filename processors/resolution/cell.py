"""Resolution, the unit of work: a cell is a whole single-valued slot, or one value of a multi-valued one."""

from __future__ import annotations

import zlib
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from processors.slots import value_key
from schemas import Candidate, Cardinality, Memory, Status, digest, new_id

_PACKED_FROM = 8 * 1024
"""Bytes from which a cell is packed: its memories are alike, a long one comes to a twentieth."""


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


class Held:
    """One memory of a cell: what is asked of all of them is at hand, the rest is read when somebody wants it.

    It does not change. The content is kept apart from the version, so that states of a cell share what they agree about.
    """

    __slots__ = ("_content", "_memory", "id", "status", "value", "version")

    def __init__(self, memory: Memory) -> None:
        self._memory: Memory | None = memory
        self._content: bytes | None = None
        self.id = memory.id
        self.status = memory.status
        self.value = memory.value
        self.version = memory.version

    @classmethod
    def read(cls, row: list[Any], contents: list[bytes]) -> Held:
        """From a line of `row` and the contents that its last number points into."""
        held = cls.__new__(cls)
        held._memory = None
        held.id, status, held.version, held.value, place = row
        held.status = Status(status)
        held._content = contents[place]
        return held

    def row(self, places: dict[bytes, int]) -> list[Any]:
        """Inverse of `read`; a content that is new gets its place."""
        place = places.setdefault(self.content, len(places))
        return [self.id, self.status.value, self.version, self.value, place]

    @property
    def memory(self) -> Memory:
        """The whole of it."""
        if self._memory is None:
            self._memory = Memory.from_dict(orjson.loads(self.content) | {"version": self.version})
        return self._memory

    @property
    def content(self) -> bytes:
        """JSON of everything but the version."""
        if self._content is None:
            body = self.memory.model_dump(mode="json")
            del body["version"]
            self._content = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        return self._content

    def at(self, version: int) -> Held:
        """The same content at another version."""
        if version == self.version:
            return self
        if self._content is None:
            return Held(self.memory.model_copy(update={"version": version}))
        held = Held.__new__(Held)
        held._memory, held._content = None, self._content
        held.id, held.status, held.value, held.version = self.id, self.status, self.value, version
        return held

    def agrees_with(self, other: Held) -> bool:
        """Whether the two differ in nothing but the version."""
        if self is other or (self._content is not None and self._content is other._content):
            return True
        if self.status is not other.status or self.value != other.value or self.id != other.id:
            return False
        return self.memory == other.at(self.version).memory


class Memories(MutableMapping[str, Memory]):
    """Memories by name, in the order in which they came; one that nobody asks for is not read."""

    __slots__ = ("_held",)

    def __init__(self, of: Mapping[str, Memory] | None = None) -> None:
        self._held: dict[str, Held] = {name: Held(memory) for name, memory in (of or {}).items()}

    def __getitem__(self, name: str) -> Memory:
        return self._held[name].memory

    def __setitem__(self, name: str, memory: Memory) -> None:
        self._held[name] = Held(memory)

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def copy(self) -> Memories:
        """Another one with the same memories."""
        other = Memories()
        other._held = dict(self._held)
        return other

    def held(self) -> ItemsView[str, Held]:
        """All, unread."""
        return self._held.items()

    def get_held(self, name: str) -> Held | None:
        """One, unread."""
        return self._held.get(name)

    def hold(self, name: str, held: Held) -> None:
        """Set one that need not be read."""
        self._held[name] = held

    def rows(self, places: dict[bytes, int]) -> list[list[Any]]:
        """For `Cell.to_bytes`."""
        return [[name, *held.row(places)] for name, held in self._held.items()]

    @classmethod
    def read(cls, rows: list[list[Any]], contents: list[bytes]) -> Memories:
        """Inverse of `rows`."""
        memories = cls()
        memories._held = {row[0]: Held.read(row[1:], contents) for row in rows}
        return memories


@dataclass(slots=True)
class Cell:
    """The folded state of a cell.

    `memories` by representative value; `current` names the one that holds now (single-valued cells only); `aliases` maps
    each spelling to its representative; `retired` are memories, by id, that another one stands for; `last_key` is the order
    key of the newest entry, or retraction, folded in.
    """

    memories: Memories = field(default_factory=Memories)
    aliases: dict[str, str] = field(default_factory=dict)
    retired: Memories = field(default_factory=Memories)
    counts: dict[str, int] = field(default_factory=dict)
    current: str | None = None
    last_key: str = ""
    checkpoint: Checkpoint | None = None

    def representative(self, value: str) -> str:
        """The value under which this spelling is kept."""
        key = value_key(value)
        return self.aliases.get(key, key)

    def known(self) -> dict[str, Held]:
        """By id, every memory that has been given versions here; a retired one comes before one of the same id that is not."""
        return {held.id: held for memories in (self.memories, self.retired) for _name, held in memories.held()}

    def copy(self) -> Cell:
        """A cell that can change without touching this one; memories are immutable and shared."""
        return Cell(
            self.memories.copy(),
            dict(self.aliases),
            self.retired.copy(),
            dict(self.counts),
            self.current,
            self.last_key,
            self.checkpoint,
        )

    def to_bytes(self) -> bytes:
        """For the cells table: a line of JSON that says what there is, and one for each content; packed when it is long."""
        places: dict[bytes, int] = {}
        head = self._head(places)
        if self.checkpoint is not None:
            head["checkpoint"] = self.checkpoint.head(places)
        body = b"\n".join([orjson.dumps(head, option=orjson.OPT_SORT_KEYS), *places])
        return zlib.compress(body, 1) if len(body) >= _PACKED_FROM else body

    def _head(self, places: dict[bytes, int]) -> dict[str, Any]:
        return {
            "memories": self.memories.rows(places),
            "aliases": self.aliases,
            "retired": self.retired.rows(places),
            "counts": self.counts,
            "current": self.current,
            "last_key": self.last_key,
        }

    @classmethod
    def from_bytes(cls, raw: bytes) -> Cell:
        """Inverse of `to_bytes`."""
        head, *contents = (raw if raw.startswith(b"{") else zlib.decompress(raw)).split(b"\n")
        return cls._read(orjson.loads(head), contents)

    @classmethod
    def _read(cls, head: dict[str, Any], contents: list[bytes]) -> Cell:
        checkpoint = head.get("checkpoint")
        return cls(
            memories=Memories.read(head["memories"], contents),
            aliases=head["aliases"],
            retired=Memories.read(head["retired"], contents),
            counts=head["counts"],
            current=head["current"],
            last_key=head["last_key"],
            checkpoint=Checkpoint.read(checkpoint, contents) if checkpoint is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a cell was behind the claims that are long past, as if all had come in order: the fold can go on from here.

    `cell` is the state, `causes` what made each memory (by id) what it is there. `valid` is the fold of only those claims
    that were not taken back, None where nothing was; `first` says of its memories that are not in `cell` with which entry
    they came, counted from here and so not above 0. `entries` is how many claims of the ledger it stands for.
    """

    cell: Cell
    causes: dict[str, str]
    valid: Cell | None = None
    first: dict[str, int] = field(default_factory=dict)
    entries: int = 0

    def head(self, places: dict[bytes, int]) -> dict[str, Any]:
        """For `Cell.to_bytes`."""
        return {
            "cell": self.cell._head(places),
            "causes": self.causes,
            "valid": self.valid._head(places) if self.valid is not None else None,
            "first": self.first,
            "entries": self.entries,
        }

    @classmethod
    def read(cls, head: dict[str, Any], contents: list[bytes]) -> Checkpoint:
        """Inverse of `head`."""
        valid = head["valid"]
        return cls(
            cell=Cell._read(head["cell"], contents),
            causes=head["causes"],
            valid=Cell._read(valid, contents) if valid is not None else None,
            first=head["first"],
            entries=head.get("entries", 0),
        )
