"""Recall, explaining: from a memory back to the turns, the writer, the policy decision and every version (SPEC R7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from processors.access import Reach
from schemas import Memory, Turn
from sinks.truth import access, memories, turns


@dataclass(frozen=True, slots=True)
class Grounds:
    """Where a memory comes from. `versions` are oldest first; `decisions` are the policy gate's, without content.

    A turn that was erased since is missing from `turns`; its id still stands in the memory's evidence.
    """

    memory: Memory
    versions: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    decisions: tuple[Mapping[str, Any], ...]
    superseded_by: Memory | None


def grounds_of(connection: Connection, memory_id: str, reaches: Sequence[Reach]) -> Grounds | None:
    """None when there is no such memory, or none within these reaches: the two are never told apart."""
    memory = memories.get(connection, memory_id)
    if memory is None or not any(reach.covers(memory) for reach in reaches):
        return None
    versions = memories.history(connection, memory_id)
    keys = dict.fromkeys(item.turn_key for item in memory.evidence)
    said = turns.bodies(connection, keys)
    after = memories.get(connection, memory.superseded_by) if memory.superseded_by is not None else None
    return Grounds(
        memory=memory,
        versions=tuple(versions),
        turns=tuple(said[key] for key in keys if key in said),
        decisions=tuple(access.decisions_about(connection, [row["cause"] for row in versions])),
        superseded_by=after if after is not None and any(reach.covers(after) for reach in reaches) else None,
    )
