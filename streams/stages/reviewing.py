"""Reviewing: a person's answer to a question becomes claims; undo takes exactly those claims back (SPEC G3)."""

from __future__ import annotations

from sqlalchemy import Connection

from processors.exceptions import PoisonError
from processors.resolution import order_key
from schemas import Candidate, Command, CommandKind, Evidence, Memory, Operation, Status, digest, new_id
from sinks.truth import reviews
from sinks.truth.reviews import Review
from streams.stages.commands import Obeyed, claim_about, claims_of, named

DECISIONS = {"approve": "approved", "reject": "rejected", "merge": "merged", "undo": "open"}
"""What may be answered, and the status the question then has."""

_LAST = 9999
"""Position after every claim of the same moment."""


def decided(connection: Connection, command: Command) -> Obeyed:
    """The answer's effect; the question is marked in the same transaction.

    approve: the memory holds, or the held or stale command is carried out now. reject: the memory is closed, the
    command is not carried out. A replica's report of two contents: approve gives the memory a new version, which settles it
    everywhere; reject changes nothing. merge: the memory goes into `payload["into"]`. undo: the answer's claims are void, and
    the question is open again.

    Raises:
        PoisonError: no such question of this owner, answered already, or nothing to merge with.
    """
    decision = str(command.payload.get("decision", ""))
    if decision not in DECISIONS:
        raise PoisonError("invalid_field", "decision is one of approve, reject, merge, undo")
    review = reviews.get(connection, str(command.payload.get("review_id", "")))
    if review is None or review.owner_key != command.owner_key:
        raise PoisonError("unknown_review", "the command names no review of this owner")
    if (review.status == "open") == (decision == "undo"):
        raise PoisonError("already_decided", f"the review is {review.status}")
    made = _effect(connection, command, review, decision)
    reviews.decide(
        connection,
        review.review_id,
        DECISIONS[decision],
        by=command.issued_by[:255],
        at=command.issued_at,
        decision_id=command.command_id,
    )
    return made


def _effect(connection: Connection, command: Command, review: Review, decision: str) -> Obeyed:
    if decision == "undo":
        return Obeyed(retractions=[_take_back(command, str(review.decision_id))])
    if decision == "merge":
        return Obeyed(_merge(connection, command, review))
    if review.body is not None:
        return _carry_out(connection, command, review.body) if decision == "approve" else Obeyed()
    if review.kind in ("potential", "forgotten"):
        # Two similar memories, and both stand; or a person missed something: the answer is for people, and changes nothing.
        return Obeyed()
    if review.kind == "two_contents" and decision == "reject":
        # Who may only read can report one: turning the report away must not close the memory that it names.
        return Obeyed()
    memory = _memory(connection, command, review.memory_id)
    if command.expected_version is not None and command.expected_version != memory.version:
        raise PoisonError("stale_decision", f"decided about version {command.expected_version}, it is {memory.version}")
    operation = Operation.CONFIRM if decision == "approve" else _closing(memory)
    return Obeyed([claim_about(command, memory, operation)])


def _carry_out(connection: Connection, command: Command, body: str) -> Obeyed:
    """The held command as if it were given now, at the memory's present version, in the name of who gave it."""
    held = Command.from_bytes(body.encode())
    now = {"command_id": command.command_id, "issued_at": command.issued_at, "expected_version": None}
    payload = dict(held.payload)
    if held.kind is CommandKind.EDIT:
        payload["decision"] = "accept"
    made = claims_of(connection, held.model_copy(update=now | {"payload": payload}))
    if held.kind is CommandKind.ASSERT:
        mark: dict[str, object] = {
            "turn_key": digest("command", command.command_id),
            "candidate_id": command.command_id,
            "stated_at": command.issued_at,
            "decision": "accept",
        }
        made.claims = [claim.model_copy(update=mark) for claim in made.claims]
    return made


def _merge(connection: Connection, command: Command, review: Review) -> list[Candidate]:
    merged = _memory(connection, command, review.memory_id)
    into = command.payload.get("into") or review.other_memory_id
    if review.kind == "potential":
        newer = reviews.memory_of_claim(connection, review.candidate_id or "")
        if newer is None:
            raise PoisonError("unknown_memory", "the similar memory is gone")
        # The stored one is kept, unless the reviewer named the other one.
        merged, into = (merged, newer.id) if into == newer.id else (newer, merged.id)
    target = _memory(connection, command, str(into) if into else None)
    if target.id == merged.id:
        raise PoisonError("invalid_field", "a memory cannot be merged into itself")
    if target.status is Status.DELETED:
        raise PoisonError("invalid_field", "a memory cannot be merged into a deleted one")
    quotes: tuple[Evidence, ...] = merged.evidence or (
        Evidence(turn_id=command.command_id, turn_key=digest("command", command.command_id), quote=command.reason),
    )
    gone = claim_about(command, merged, _closing(merged))
    kept = claim_about(command, target, Operation.CONFIRM)
    return [
        gone,
        kept.model_copy(update={"candidate_id": new_id(command.command_id, "into"), "position": 1, "evidence": quotes}),
    ]


def _closing(memory: Memory) -> Operation:
    """What holds is ended and stays as history; what was never let in is deleted."""
    return Operation.END if memory.status in (Status.ACTIVE, Status.DEMOTED) else Operation.DELETE


def _take_back(command: Command, decision_id: str) -> Command:
    target = digest("command", decision_id)
    key = order_key(command.issued_at, "", _LAST, command.command_id)
    return command.model_copy(
        update={
            "kind": CommandKind.RETRACT_TURN,
            "target_turn_key": target,
            "retraction_turn_key": digest("undo", command.command_id),
            "payload": {"order_key": key},
        }
    )


def _memory(connection: Connection, command: Command, memory_id: str | None) -> Memory:
    memory = named(connection, memory_id, command.owner_key) if memory_id is not None else None
    if memory is None:
        raise PoisonError("unknown_memory", "the review names no memory of this owner")
    return memory
