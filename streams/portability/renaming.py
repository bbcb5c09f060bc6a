"""Portability, renaming: the same memories under another owner. Ids are made of the owner, so they are made anew.

Pure and deterministic: importing twice under one name gives the same ids twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from processors.access import OwnerRef
from processors.resolution.cell import cell_key_of, memory_id_of, slot_key_of
from processors.slots import namespace_of, value_key
from schemas import Candidate, Cardinality, Evidence, Memory, digest, new_id
from schemas.portable import Bundle, ExportedRetraction, ExportedVersion


@dataclass(frozen=True, slots=True)
class Renaming:
    """From one owner to another. `owner_key` is the new one's."""

    was: OwnerRef
    tenant: str
    owner: OwnerRef
    owner_key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner_key", digest(self.tenant, self.owner.kind, self.owner.id))

    def claim(self, claim: Candidate) -> Candidate:
        """The claim as if the new owner had made it."""
        return claim.model_copy(
            update=self._who(claim)
            | {
                "candidate_id": self._id(claim.candidate_id),
                "turn_key": self._turn(claim.turn_key),
                "evidence": self._evidence(claim.evidence),
            }
        )

    def bundle(self, bundle: Bundle) -> Bundle:
        """The cell with its history. The cell keeps its founding value; so do its memories."""
        claims = tuple(self.claim(claim) for claim in bundle.claims)
        ids: dict[str, str] = {}
        cell_key = digest(slot_key_of(claims[0]), bundle.cell_key)
        for old, new in zip(bundle.claims, claims, strict=True):
            rep = value_key(old.value)
            ids[memory_id_of(old, rep)] = memory_id_of(new, rep)
            if old.cardinality is Cardinality.SINGLE or cell_key_of(old) == bundle.cell_key:
                cell_key = cell_key_of(new)
        return Bundle(
            cell_key=cell_key,
            claims=claims,
            memories=tuple(self._memory(memory, ids) for memory in bundle.memories),
            versions=tuple(self._version(version, ids, cell_key) for version in bundle.versions),
        )

    def retraction(self, line: ExportedRetraction) -> ExportedRetraction:
        """What the new owner took back."""
        target = self._turn(line.target_turn_key) if line.target_turn_key is not None else None
        return line.model_copy(update={"retraction_key": self._turn(line.retraction_key), "target_turn_key": target})

    def _version(self, line: ExportedVersion, ids: dict[str, str], cell_key: str) -> ExportedVersion:
        head, _, key = line.cause.partition("retraction:")
        cause = f"retraction:{self._turn(key)}" if key and not head else self._id(line.cause)
        return line.model_copy(update={"cell_key": cell_key, "cause": cause, "memory": self._memory(line.memory, ids)})

    def _memory(self, memory: Memory, ids: dict[str, str]) -> Memory:
        heir = memory.superseded_by
        update = {
            "id": ids[memory.id],
            "superseded_by": ids.get(heir) if heir is not None else None,
            "evidence": self._evidence(memory.evidence),
        }
        return memory.model_copy(update=self._who(memory) | update)

    def _who(self, item: Candidate | Memory) -> dict[str, Any]:
        segment = item.namespace.removeprefix(namespace_of(self.was.kind, self.was.id, ""))
        return {
            "tenant": self.tenant,
            "owner_kind": self.owner.kind,
            "owner": self.owner.id,
            "namespace": namespace_of(self.owner.kind, self.owner.id, segment),
        }

    def _evidence(self, evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
        return tuple(item.model_copy(update={"turn_key": self._turn(item.turn_key)}) for item in evidence)

    def _turn(self, turn_key: str) -> str:
        return digest("import", self.owner_key, turn_key)

    def _id(self, name: str) -> str:
        return new_id("import", self.owner_key, name)
