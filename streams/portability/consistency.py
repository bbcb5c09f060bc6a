"""Portability, consistency: whether a cell's memories and history say only what its claims say. Pure.

A checksum can be written anew by whoever changes a line. What cannot be invented is a memory without a claim: claims pass the
policy gate on their way in, so nothing else in the file may bring content of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.resolution.cell import memory_id_of, slot_key_of
from processors.slots import value_key
from schemas import Command, CommandKind, Memory
from schemas.portable import Bundle

_HELD = frozenset(
    {
        CommandKind.ASSERT,
        CommandKind.EDIT,
        CommandKind.CONFIRM,
        CommandKind.DELETE,
        CommandKind.FORGET,
        CommandKind.RESTORE,
        CommandKind.EXPIRE,
        CommandKind.DEMOTE,
    }
)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What does not follow, and in which line of its kind within the cell."""

    kind: Literal["cell", "claim", "memory", "version"]
    index: int
    words: str


def contradiction(bundle: Bundle) -> Contradiction | None:
    """The first thing in the cell that its claims do not explain, or None."""
    if not bundle.claims:
        return Contradiction("cell", 0, "a memory without the claims that it came from")
    slot = slot_key_of(bundle.claims[0])
    said, quoted, named = {("", "")}, set[str](), set[str]()
    for index, claim in enumerate(bundle.claims):
        if slot_key_of(claim) != slot:
            return Contradiction("claim", index, "a claim about another slot than the others of its cell")
        said.add((claim.value, claim.text))
        quoted.update(item.quote for item in claim.evidence)
        named.add(memory_id_of(claim, value_key(claim.value)))
    for index, memory in enumerate(bundle.memories):
        if memory.id not in named:
            return Contradiction("memory", index, "a memory whose id follows from no claim")
        if not _explained(memory, said, quoted):
            return Contradiction("memory", index, "a memory that says what no claim says")
    return _history(bundle, said, quoted)


def _history(bundle: Bundle, said: set[tuple[str, str]], quoted: set[str]) -> Contradiction | None:
    latest: dict[str, Memory] = {}
    for index, version in enumerate(bundle.versions):
        memory = version.memory
        before = latest.get(memory.id)
        if memory.version != (before.version + 1 if before else 1):
            return Contradiction("version", index, "a version is missing before this one")
        if not _explained(memory, said, quoted):
            return Contradiction("version", index, "a version that says what no claim says")
        latest[memory.id] = memory
    for index, memory in enumerate(bundle.memories):
        if latest.pop(memory.id, None) != memory:
            return Contradiction("memory", index, "a memory that is not the last of its versions")
    if latest:
        return Contradiction("cell", 0, "versions of a memory that is not there")
    return None


def _explained(memory: Memory, said: set[tuple[str, str]], quoted: set[str]) -> bool:
    return (memory.value, memory.text) in said and all(item.quote in quoted for item in memory.evidence)


def forged_review(command: Command) -> bool:
    """A person is asked about plain changes of one memory only; approving anything else would do more than it shows."""
    return command.kind not in _HELD
