"""Commands: orders of people, agents and the life cycle, turned into claims about the memory they name (SPEC A2, W10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from processors.exceptions import PoisonError
from schemas import (
    Candidate,
    Cardinality,
    Channel,
    Command,
    CommandKind,
    Evidence,
    Memory,
    Operation,
    SourceKind,
    Status,
    digest,
    new_id,
)
from sinks.truth import ledger, memories

_SIMPLE = {
    CommandKind.CONFIRM: Operation.CONFIRM,
    CommandKind.DELETE: Operation.DELETE,
    CommandKind.FORGET: Operation.END,
    CommandKind.EXPIRE: Operation.EXPIRE,
    CommandKind.DEMOTE: Operation.DEMOTE,
}


@dataclass(slots=True)
class Obeyed:
    """What a command comes to: claims, a question for a person, or the taking back of an earlier command."""

    claims: list[Candidate] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    retractions: list[Command] = field(default_factory=list)


def claims_of(connection: Connection, command: Command) -> Obeyed:
    """Raises PoisonError for a command that names nothing that exists; a stale one becomes a review."""
    if command.kind is CommandKind.ASSERT and command.memory_id is None:
        return Obeyed([_asserted(command)])
    if command.memory_id is None:
        raise PoisonError("invalid_field", f"{command.kind} needs memory_id")
    memory = named(connection, command.memory_id, command.owner_key)
    if memory is None:
        raise PoisonError("unknown_memory", "the command names no memory of this owner")
    if command.kind is CommandKind.REPORT_CONFLICT:
        return Obeyed(reviews=[_disputed(command, memory)] if memory.status is not Status.DELETED else [])
    if command.expected_version is not None and command.expected_version != memory.version:
        return Obeyed(reviews=[_stale(command, memory)])
    if not memory.value:
        # Nothing is left of it, and a claim without a value would mean whatever the slot holds now.
        return Obeyed()
    if command.kind in _SIMPLE:
        return Obeyed([claim_about(command, memory, _SIMPLE[command.kind])])
    if command.kind is CommandKind.ASSERT:
        return Obeyed([_asserted(command)])
    if command.kind is CommandKind.EDIT:
        if command.payload.get("decision") in ("quarantine", "review"):
            return Obeyed(reviews=[_held(command, memory)])
        return Obeyed(_edit(command, memory))
    if command.kind is CommandKind.RESTORE:
        return Obeyed([_restore(connection, command, memory)])
    raise PoisonError("invalid_field", f"{command.kind} is not understood here")


def named(connection: Connection, memory_id: str, owner_key: str) -> Memory | None:
    """The memory that is meant, if it is this owner's.

    A deleted one has no value of its own any more. What is ordered about it still means *it*, also if it is said again
    later or was said earlier and arrives late; so it is named as its cell names it.
    """
    memory = memories.get(connection, memory_id)
    if memory is None or memory.owner_key != owner_key or memory.status is not Status.DELETED:
        return memory if memory is not None and memory.owner_key == owner_key else None
    place = memories.cell_of(connection, memory_id)
    held = ledger.load_cells(connection, [place[1]] if place else [])
    names = [name for cell in held.values() for name, item in cell.memories.items() if item.id == memory_id]
    return memory.model_copy(update={"value": names[0] if names else ""})


def _asserted(command: Command) -> Candidate:
    claim = Candidate.from_dict(command.payload)
    if claim.owner_key != command.owner_key:
        raise PoisonError("foreign_owner", "the claim in the command is about another owner")
    return claim


def _edit(command: Command, memory: Memory) -> list[Candidate]:
    text = str(command.payload.get("text", memory.text))
    if not text:
        raise PoisonError("deleted_memory", "the memory was deleted, and the edit has no text")
    value = str(command.payload.get("value", memory.value))
    # The gate judged the wording before the command was sent; its verdict is on record with the version it makes.
    judged = {
        "decision": str(command.payload.get("decision", "accept")),
        "decision_reasons": _reasons(command),
        "policy_version": str(command.payload.get("policy_version", "")),
    }
    new = claim_about(command, memory, Operation.ASSERT).model_copy(update={"text": text, "value": value} | judged)
    if value == memory.value or memory.cardinality is Cardinality.SINGLE:
        return [new]
    old = claim_about(command, memory, Operation.END)
    return [old, new.model_copy(update={"candidate_id": new_id(command.command_id, "new"), "position": 1})]


def _restore(connection: Connection, command: Command, memory: Memory) -> Candidate:
    version = command.payload.get("version")
    for row in memories.history(connection, memory.id):
        if row["version"] == version:
            then: Memory = row["memory"]
            if not then.value:
                break
            return claim_about(command, then, Operation.ASSERT)
    raise PoisonError("unknown_version", "the memory never had this version, or nothing is left of it")


def claim_about(command: Command, memory: Memory, operation: Operation) -> Candidate:
    """The claim that a command makes about a memory. All claims of one command share a turn key, so it can be taken back."""
    turn_key = digest("command", command.command_id)
    return Candidate(
        candidate_id=command.command_id,
        tenant=memory.tenant,
        owner_kind=memory.owner_kind,
        owner=memory.owner,
        namespace=memory.namespace,
        conversation_id="",
        source_turn_ids=(),
        turn_key=turn_key,
        channel=Channel.COMMAND,
        writer=command.issued_by,
        operation=operation,
        type=memory.type,
        category=memory.category,
        subject=memory.subject,
        attribute=memory.attribute,
        value=memory.value,
        cardinality=memory.cardinality,
        text=memory.text,
        language=memory.language,
        evidence=(Evidence(turn_id=command.command_id, turn_key=turn_key, quote=command.reason),),
        source_kind=SourceKind.USER_STATEMENT,
        explicit=True,
        event_time=command.issued_at,
        stated_at=command.issued_at,
        timezone=memory.timezone,
        ttl_days=memory.ttl_days,
        confidence=memory.confidence,
        sensitivity=memory.sensitivity,
        decision_reasons=(command.reason,) if command.reason else (),
    )


def _held(command: Command, memory: Memory) -> dict[str, Any]:
    """A wording that the gate did not let through: nothing changes until a person says so."""
    detail = " ".join(_reasons(command)) or "held by policy"
    return _stale(command, memory) | {"kind": str(command.payload["decision"]), "detail": detail}


def _disputed(command: Command, memory: Memory) -> dict[str, Any]:
    """Two contents were seen under one version. Approved, the memory gets a new version, which settles it everywhere."""
    version = command.payload.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version <= memory.version:
        raise PoisonError("unknown_version", "the memory has not had the version of the report")
    said = f": {command.reason}" if command.reason else ""
    return {
        "kind": "two_contents",
        "owner_key": command.owner_key,
        "memory_id": memory.id,
        "candidate_id": command.command_id[:36],
        "detail": f"version {version} was seen with two contents, the memory is at {memory.version}{said}",
    }


def _reasons(command: Command) -> tuple[str, ...]:
    given = command.payload.get("decision_reasons")
    return tuple(str(reason) for reason in given) if isinstance(given, (list, tuple)) else ()


def _stale(command: Command, memory: Memory) -> dict[str, Any]:
    return {
        "kind": "stale_write",
        "owner_key": command.owner_key,
        "memory_id": memory.id,
        "candidate_id": command.command_id[:36],
        "detail": f"{command.kind.value} expected version {command.expected_version}, the memory is at {memory.version}",
        "body": command.to_bytes().decode(),
    }
