"""Hints, meta-memory: outcomes of recalls become retrieval policy hints that a person can read and approve (SPEC R10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import sqrt

from processors.feedback import Outcomes
from processors.slots import known_slots, namespace_of
from schemas import (
    Candidate,
    Cardinality,
    Category,
    Channel,
    Command,
    CommandKind,
    Evidence,
    MemoryType,
    OwnerKind,
    SourceKind,
    digest,
    new_id,
)

POLICY_OWNER = "memriver"
"""The agent whose memories the approved hints become: nobody's recall reaches them by accident."""

HINTS_WRITER = "feedback:hints"
"""Who signs them: recall follows no other's."""

_LEAST_WEIGHT = 0.25


class HintAction(StrEnum):
    """What a hint proposes to change in retrieval; also the attribute of the memory that an approved one becomes."""

    LOWER_WEIGHT = "recall_weight"
    CONFIRM_FIRST = "recall_confirmation"
    SHOW_FEWER = "recall_quota"
    WIDEN = "recall_breadth"


@dataclass(frozen=True, slots=True)
class HintRules:
    """When outcomes are evidence enough: at least `least` of them, and a share that is above the mark with 95 % confidence.

    A bare share would let 2 of 2 speak louder than 80 of 100.
    """

    least: int = 10
    ignored: float = 0.5
    corrected: float = 0.2
    forgotten: float = 0.2


@dataclass(frozen=True, slots=True)
class Hint:
    """A proposal about one attribute or one agent, with what speaks for it. No owner and no content in it."""

    action: HintAction
    about: str
    value: str
    detail: str
    evidence: int


def hints(outcomes: Outcomes, rules: HintRules | None = None) -> tuple[Hint, ...]:
    """Proposals, for a person to approve; what was approved recall follows (`processors.recall.guidance`).

    Only reviewed attributes (`slots.yaml`) are spoken of: an attribute of one person's own making would name that person.
    """
    rules = rules or HintRules()
    found: list[Hint] = []
    for name, counts in sorted(outcomes.attributes.items()):
        if name not in known_slots():
            continue
        if _speaks(counts.ignored, counts.recalled, rules.ignored, rules.least):
            weight = max(_LEAST_WEIGHT, round(1 - counts.ignored / counts.recalled, 2))
            detail = (
                f"{name} was ignored in {counts.ignored} of {counts.recalled} recalls: lower its weight to {weight}"
            )
            found.append(Hint(HintAction.LOWER_WEIGHT, f"attribute {name}", str(weight), detail, counts.recalled))
        if _speaks(counts.corrected, counts.recalled, rules.corrected, rules.least):
            detail = (
                f"{name} was corrected in {counts.corrected} of {counts.recalled} recalls: ask before relying on it"
            )
            found.append(Hint(HintAction.CONFIRM_FIRST, f"attribute {name}", "true", detail, counts.recalled))
    for name, counts in sorted(outcomes.agents.items()):
        if _speaks(counts.ignored, counts.recalled, rules.ignored, rules.least):
            detail = f"agent {name} ignored {counts.ignored} of {counts.recalled} memories: show it fewer"
            found.append(Hint(HintAction.SHOW_FEWER, f"agent {name}", "fewer", detail, counts.recalled))
        every = counts.recalled + counts.forgotten
        if _speaks(counts.forgotten, every, rules.forgotten, rules.least):
            detail = (
                f"agent {name} missed a memory {counts.forgotten} times beside {counts.recalled} recalled: widen recall"
            )
            found.append(Hint(HintAction.WIDEN, f"agent {name}", "wider", detail, every))
    return tuple(found)


def _speaks(hits: int, total: int, mark: float, least: int) -> bool:
    return total >= least and _at_least(hits, total) >= mark


def _at_least(hits: int, total: int, z: float = 1.96) -> float:
    """Lower end of the 95 % score interval of a share (Wilson 1927, JASA 22:209)."""
    share = hits / total
    middle = share + z * z / (2 * total)
    width = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - width) / (1 + z * z / total)


def proposal(hint: Hint, tenant: str, now: datetime) -> Command:
    """The command that a review of this hint holds: approving it makes it a memory of the policy's owner, undo takes it back.

    The id grows with the evidence's order of magnitude, so a hint that was turned down comes back when there is ten times
    more to say for it, and not with each run.
    """
    command_id = new_id("policy_hint", tenant, hint.action, hint.about, str(len(str(hint.evidence))))
    turn_key = digest("command", command_id)
    claim = Candidate(
        candidate_id=command_id,
        tenant=tenant,
        owner_kind=OwnerKind.AGENT,
        owner=POLICY_OWNER,
        namespace=namespace_of(OwnerKind.AGENT, POLICY_OWNER, "policy"),
        conversation_id="",
        source_turn_ids=(),
        turn_key=turn_key,
        channel=Channel.COMMAND,
        writer=HINTS_WRITER,
        type=MemoryType.PROCEDURAL,
        category=Category.INSTRUCTION,
        subject=hint.about[:255],
        attribute=hint.action.value,
        value=hint.value,
        cardinality=Cardinality.SINGLE,
        text=hint.detail,
        language="en",
        evidence=(Evidence(turn_id=command_id, turn_key=turn_key, quote=hint.detail),),
        source_kind=SourceKind.TOOL_RESULT,
        event_time=now,
        stated_at=now,
        timezone="UTC",
        confidence=0.9,
    )
    return Command(
        command_id=command_id,
        kind=CommandKind.ASSERT,
        tenant=tenant,
        owner_kind=OwnerKind.AGENT,
        owner=POLICY_OWNER,
        issued_by=HINTS_WRITER,
        issued_at=now,
        reason="policy_hint",
        payload=claim.model_dump(mode="json"),
    )
