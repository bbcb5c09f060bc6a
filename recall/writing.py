"""Writing: what people and agents want changed, judged by the policy gate and sent as commands to the one resolver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from processors.access import SHARED, OwnerRef, Principal, PrincipalKind, needs_promotion
from processors.exceptions import MemriverError
from processors.language import detect
from processors.policy import Decision, PolicyGate
from processors.rules import RuleBook
from processors.rules.channel import candidates_from
from processors.slots import namespace_of, normal_attribute, slot_for
from recall.requests import DecideAsked, EditAsked, FeedbackAsked, RememberAsked, ReportAsked
from schemas import (
    Candidate,
    Channel,
    Command,
    CommandKind,
    Evidence,
    Feedback,
    Memory,
    Operation,
    OwnerKind,
    Provenance,
    Role,
    SourceKind,
    Turn,
    digest,
    new_id,
)
from sinks.truth.outbox import Outgoing

_CONFIDENCE = {
    SourceKind.USER_STATEMENT: 0.95,
    SourceKind.TOOL_RESULT: 0.85,
    SourceKind.EXTERNAL_DOCUMENT: 0.6,
    SourceKind.ASSISTANT: 0.6,
    SourceKind.THIRD_PARTY: 0.5,
}


class Refused(MemriverError):
    """The policy keeps this out. `reasons` are the gate's short codes."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("the policy does not let this be kept")
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Ordered:
    """A command on its way, and the gate's word on it (None where nothing had to be judged)."""

    command: Command
    decision: str | None = None
    reasons: tuple[str, ...] = ()

    def message(self) -> Outgoing:
        """For the `commands` topic, keyed by owner."""
        key = self.command.owner_key
        return Outgoing("commands", key, key, self.command.to_bytes())


class Writer:
    """Builds commands. Pure but for `now` and `fresh_id` (a new identity when the caller brings none)."""

    def __init__(
        self, gate: PolicyGate, rules: RuleBook, now: Callable[[], datetime], fresh_id: Callable[[], str]
    ) -> None:
        self._gate = gate
        self._rules = rules
        self._now = now
        self._fresh_id = fresh_id

    def remember(self, principal: Principal, asked: RememberAsked, token: str | None = None) -> list[Ordered]:
        """One command per claim that the text makes; an open text becomes a note.

        `token` is the caller's idempotency key: the same one gives the same command ids, so the resolver knows them.

        Raises:
            Refused: the gate refuses everything in it.
        """
        root = self._id("remember", principal, token)
        source = _source(principal, asked.ref, asked.source)
        claims = self._read(principal, asked, root, source)
        ordered, refused = list[Ordered](), list[str]()
        for position, claim in enumerate(claims):
            command_id = new_id(root, str(position)) if position else root
            verdict = self._judge(principal, asked.ref, _signed(claim, command_id, position))
            if verdict.decision == Decision.REFUSE.value:
                refused += verdict.decision_reasons
                continue
            command = self._command(principal, asked.ref, CommandKind.ASSERT, command_id, "remember").model_copy(
                update={
                    "memory_id": asked.memory_id,
                    "expected_version": asked.expected_version,
                    "payload": verdict.model_dump(mode="json"),
                }
            )
            ordered.append(Ordered(command, verdict.decision, verdict.decision_reasons))
        if not ordered:
            raise Refused(tuple(dict.fromkeys(refused)))
        return ordered

    def edit(
        self, principal: Principal, memory: Memory, version: int, asked: EditAsked, token: str | None = None
    ) -> Ordered:
        """Another wording or value for a memory, from the version that was seen.

        Raises:
            Refused: the gate refuses the new content.
        """
        owner = OwnerRef(memory.owner_kind, memory.owner)
        command_id = self._id("edit", principal, token)
        source = _source(principal, owner, asked.source)
        claim = self._claim(
            principal,
            owner,
            memory.namespace,
            attribute=memory.attribute,
            value=asked.value or memory.value,
            text=asked.text or memory.text,
            source=source,
            quote=asked.quote or asked.text or asked.value or "",
            timezone=memory.timezone,
        )
        same = {"type": memory.type, "category": memory.category, "subject": memory.subject}
        claim = claim.model_copy(update=same | {"cardinality": memory.cardinality})
        verdict = self._judge(principal, owner, _signed(claim, command_id, 0))
        if verdict.decision == Decision.REFUSE.value:
            raise Refused(verdict.decision_reasons)
        command = self._command(principal, owner, CommandKind.EDIT, command_id, asked.reason)
        payload = {
            "text": verdict.text,
            "value": verdict.value,
            "decision": verdict.decision,
            "decision_reasons": list(verdict.decision_reasons),
            "policy_version": verdict.policy_version,
        }
        named = {"memory_id": memory.id, "expected_version": version, "payload": payload}
        return Ordered(command.model_copy(update=named), verdict.decision, verdict.decision_reasons)

    def order(
        self,
        principal: Principal,
        memory: Memory,
        kind: CommandKind,
        reason: str,
        *,
        version: int | None = None,
        payload: dict[str, Any] | None = None,
        token: str | None = None,
    ) -> Ordered:
        """Confirm, delete, forget or restore one memory; `version` is what the caller saw, None: whatever it is."""
        command_id = self._id(f"{kind.value}:{memory.id}", principal, token)
        owner = OwnerRef(memory.owner_kind, memory.owner)
        command = self._command(principal, owner, kind, command_id, reason)
        named = {"memory_id": memory.id, "expected_version": version, "payload": payload or {}}
        return Ordered(command.model_copy(update=named))

    def decide(
        self, principal: Principal, owner: OwnerRef, review_id: str, asked: DecideAsked, token: str | None = None
    ) -> Ordered:
        """A reviewer's answer to a question about this owner."""
        command_id = self._id(f"decide:{review_id}", principal, token)
        command = self._command(principal, owner, CommandKind.DECIDE_REVIEW, command_id, asked.reason)
        payload: dict[str, Any] = {"review_id": review_id, "decision": asked.decision}
        if asked.into is not None:
            payload["into"] = asked.into
        return Ordered(command.model_copy(update={"expected_version": asked.expected_version, "payload": payload}))

    def report(self, principal: Principal, memory: Memory, asked: ReportAsked) -> Ordered:
        """A conflict that was seen. Whoever reports the same memory and version gives the same command: one question."""
        owner = OwnerRef(memory.owner_kind, memory.owner)
        command_id = new_id("report", memory.id, str(asked.version))
        detail = self._gate.mask_text(asked.detail).text
        command = self._command(principal, owner, CommandKind.REPORT_CONFLICT, command_id, detail)
        return Ordered(command.model_copy(update={"memory_id": memory.id, "payload": {"version": asked.version}}))

    def feedback(self, principal: Principal, asked: FeedbackAsked, token: str | None = None) -> Feedback:
        """What became of recalled memories, for the `feedback` topic; texts are masked like any other."""
        agent = principal.id if principal.kind is PrincipalKind.AGENT else asked.agent_id
        return Feedback(
            feedback_id=self._id("feedback", principal, token),
            kind=asked.kind,
            tenant=principal.tenant,
            owner_kind=asked.owner_kind,
            owner=asked.owner,
            agent_id=agent,
            memory_ids=asked.memory_ids,
            query=self._gate.mask_text(asked.query).text if asked.query else None,
            correction=self._gate.mask_text(asked.correction).text if asked.correction else None,
            given_at=self._now(),
        )

    def _id(self, verb: str, principal: Principal, token: str | None) -> str:
        return new_id(verb, principal.key, token) if token is not None else self._fresh_id()

    def _command(
        self, principal: Principal, owner: OwnerRef, kind: CommandKind, command_id: str, reason: str
    ) -> Command:
        return Command(
            command_id=command_id,
            kind=kind,
            tenant=principal.tenant,
            owner_kind=owner.kind,
            owner=owner.id,
            issued_by=principal.name,
            issued_at=self._now(),
            reason=reason,
        )

    def _judge(self, principal: Principal, owner: OwnerRef, claim: Candidate) -> Candidate:
        """The gate's verdict; what goes into a shared scope also waits for a person there (SPEC G1).

        The gate takes a command for a person's yes. Only an owner's own word, or that of who may review the shared scope,
        is one; anybody else's is judged as a model's would be.
        """
        waits = needs_promotion(principal, owner, self._now())
        own = principal.kind is PrincipalKind.PERSON and principal.is_owner(owner)
        trusted = own or (owner.kind in SHARED and not waits)
        channel = Channel.COMMAND if trusted else Channel.MODEL
        judged = self._gate.judge(claim.model_copy(update={"channel": channel}), None).candidate
        judged = judged.model_copy(update={"channel": Channel.COMMAND})
        passes = judged.decision in (Decision.ACCEPT.value, Decision.MASK.value)
        if passes and waits:
            reasons = (*judged.decision_reasons, "shared_scope")
            return judged.model_copy(update={"decision": Decision.REVIEW.value, "decision_reasons": reasons})
        return judged

    def _read(self, principal: Principal, asked: RememberAsked, root: str, source: SourceKind) -> list[Candidate]:
        if asked.attribute is None:
            found = self._by_rule(principal, asked, root, source)
            if found:
                return found
        slot = slot_for(asked.attribute or "note")
        claim = self._claim(
            principal,
            asked.ref,
            namespace_of(asked.owner_kind, asked.owner, slot.namespace),
            attribute=normal_attribute(asked.attribute or "note"),
            value=asked.value or asked.text,
            text=asked.text,
            source=source,
            quote=asked.quote or asked.text,
            timezone=asked.timezone,
        )
        times = {"event_time": asked.event_time or claim.event_time, "ttl_days": asked.ttl_days or claim.ttl_days}
        return [claim.model_copy(update=times)]

    def _by_rule(self, principal: Principal, asked: RememberAsked, root: str, source: SourceKind) -> list[Candidate]:
        """What the rule channel reads in a person's own words: "I live in Hamburg" is a residence, not a note."""
        if asked.owner_kind is not OwnerKind.USER or source is not SourceKind.USER_STATEMENT:
            return []
        turn = Turn(
            tenant=principal.tenant,
            conversation_id="remember",
            turn_id=root,
            user_id=asked.owner,
            role=Role.USER,
            text=asked.text,
            sent_at=self._now(),
            timezone=asked.timezone,
        )
        kept = []
        for claim in candidates_from(turn, self._rules.match(turn)):
            if claim.operation in (Operation.ASSERT, Operation.END):
                times = {
                    "event_time": asked.event_time or claim.event_time,
                    "ttl_days": asked.ttl_days or claim.ttl_days,
                }
                who = {"channel": Channel.COMMAND, "writer": principal.name, "explicit": True, "conversation_id": ""}
                kept.append(claim.model_copy(update=times | who | {"source_turn_ids": ()}))
        return kept

    def _claim(
        self,
        principal: Principal,
        owner: OwnerRef,
        namespace: str,
        *,
        attribute: str,
        value: str,
        text: str,
        source: SourceKind,
        quote: str,
        timezone: str,
    ) -> Candidate:
        slot, now = slot_for(attribute), self._now()
        said = Provenance(source=source, method=f"command:{principal.name}", confidence=_CONFIDENCE[source])
        return Candidate(
            candidate_id="unsigned",
            tenant=principal.tenant,
            owner_kind=owner.kind,
            owner=owner.id,
            namespace=namespace,
            conversation_id="",
            source_turn_ids=(),
            turn_key="unsigned",
            agent_id=principal.id if principal.kind is PrincipalKind.AGENT else None,
            channel=Channel.COMMAND,
            writer=principal.name,
            type=slot.type,
            category=slot.category,
            attribute=attribute,
            value=value,
            cardinality=slot.cardinality,
            text=text,
            language=detect(text),
            evidence=(Evidence(turn_id="unsigned", turn_key="unsigned", quote=quote),),
            source_kind=source,
            # An order of the owner; an agent's word for it is none.
            explicit=source is SourceKind.USER_STATEMENT,
            event_time=now,
            stated_at=now,
            timezone=timezone,
            ttl_days=slot.ttl_days,
            confidence=_CONFIDENCE[source],
            sensitivity=slot.sensitivity,
            provenance={"value": said, "text": said},
        )


def _signed(claim: Candidate, command_id: str, position: int) -> Candidate:
    """Identity and evidence of the command: all its claims share a turn key, so that it can be taken back."""
    turn_key = digest("command", command_id)
    evidence = tuple(item.model_copy(update={"turn_id": command_id, "turn_key": turn_key}) for item in claim.evidence)
    update = {"candidate_id": command_id, "turn_key": turn_key, "position": position, "evidence": evidence}
    return claim.model_copy(update=update)


def _source(principal: Principal, owner: OwnerRef, said: SourceKind | None) -> SourceKind:
    """An owner speaks for itself. An agent's words about somebody else are its own, unless it says whose they were."""
    if principal.is_owner(owner):
        return said or SourceKind.USER_STATEMENT
    if said is not None:
        return said
    return SourceKind.ASSISTANT if principal.kind is PrincipalKind.AGENT else SourceKind.THIRD_PARTY
