"""The feedback stage: outcomes of recalls become counts and labels, corrections become commands to the one resolver (A4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from processors.access import SHARED
from processors.exceptions import PoisonError
from processors.feedback import Correction, Label, Shown, read_correction
from processors.language import detect
from processors.policy import Decision, PolicyGate
from processors.policy.credentials import worth_keeping
from processors.policy.spans import SECRET_MARK
from processors.rules import RuleBook
from processors.rules.channel import candidates_from
from schemas import (
    Candidate,
    Command,
    CommandKind,
    DeadLetter,
    Feedback,
    FeedbackKind,
    Memory,
    Operation,
    Role,
    Status,
    Turn,
    digest,
    new_id,
)
from sinks.sealing.guard import Guard, Named
from sinks.truth import deadletters, feedback, ledger, memories, outbox
from sinks.truth.feedback import Labelled, Touch
from sinks.truth.outbox import Outgoing
from streams.deadletter import dead_letter, letters_out
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.commands import claim_about

MAX_MEMORIES = 200
"""Memories that one feedback may name: far more than a context holds, and a bound on the work."""

_MAX_AGENT = 255
_MAX_QUOTE = 500
_MAX_DETAIL = 4_000
"""Characters of a query that a review shows; the whole of it is in the labelled data set."""
_CURRENT = (Status.ACTIVE, Status.DEMOTED)
_STANDS = "approve: the memory stands as it is; reject: it is closed"


@dataclass(frozen=True, slots=True)
class Observed:
    """A feedback after judgement: its texts are masked, `claims` is what the rule book reads in the words of a correction.

    `words` are the correction as it was said; only the policy gate sees them.
    """

    feedback: Feedback
    words: str | None
    claims: tuple[Candidate, ...]

    @property
    def owner_key(self) -> str:
        """Digest of the owner, as in `Memory.owner_key`."""
        return digest(self.feedback.tenant, self.feedback.owner_kind, self.feedback.owner)

    @property
    def key(self) -> str:
        """The inbox's name for it: ids are the senders' own, so two owners may have the same."""
        return digest(self.owner_key, self.feedback.feedback_id)


@dataclass(slots=True)
class _Group:
    now: datetime
    held: Mapping[str, Memory]
    written: Mapping[str, Sequence[tuple[datetime, int]]]
    accepted: list[Observed] = field(default_factory=list)
    labels: list[Labelled] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    verdicts: list[Candidate] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


class FeedbackStage:
    """Feedback in; access counts, labelled rows, reviews and EDIT commands out. `model` names recall's embedder."""

    name = "feedback"
    topic = "feedback"

    def __init__(
        self,
        gate: PolicyGate,
        rules: RuleBook,
        metrics: Metrics,
        model: Callable[[], str],
        guard: Guard | None = None,
    ) -> None:
        self._gate = gate
        self._rules = rules
        self._metrics = metrics
        self._model = model
        self._guard = guard

    def prepare(self, message: Message) -> Observed:
        """Raises ValueError or PoisonError for what is no feedback, or is about nothing."""
        item = Feedback.from_bytes(message.value or b"")
        query, words = _words(item.query), _words(item.correction)
        if not item.memory_ids and query is None and words is None:
            raise PoisonError("invalid_field", "feedback names memory_ids, query or correction")
        if len(item.memory_ids) > MAX_MEMORIES:
            raise PoisonError("invalid_field", f"feedback names at most {MAX_MEMORIES} memories")
        if item.agent_id is not None and len(item.agent_id) > _MAX_AGENT:
            raise PoisonError("invalid_field", f"agent_id has at most {_MAX_AGENT} characters")
        masked = item.model_copy(
            update={
                "memory_ids": tuple(dict.fromkeys(item.memory_ids)),
                "query": self._gate.mask_text(query).text if query is not None else None,
                "correction": self._gate.mask_text(words).text if words is not None else None,
            }
        )
        return Observed(masked, words, self._read(item, words) if words is not None else ())

    def _read(self, item: Feedback, words: str) -> tuple[Candidate, ...]:
        turn = Turn(
            tenant=item.tenant,
            conversation_id="feedback",
            turn_id=item.feedback_id,
            user_id=item.owner,
            role=Role.USER,
            text=words,
            sent_at=item.given_at,
        )
        return candidates_from(turn, self._rules.match(turn), version=self._rules.version)

    def commit(self, connection: Connection, group: Sequence[Delivered[Observed]], now: datetime) -> list[Outgoing]:
        """One transaction, and one batched write of the counts for the whole group."""
        unique: dict[str, Delivered[Observed]] = {}
        for delivered in self._admitted(connection, group):
            unique.setdefault(delivered.item.key, delivered)
        seen = outbox.seen(connection, self.name, unique) | feedback.recorded(connection, unique)
        fresh = [delivered for key, delivered in unique.items() if key not in seen]
        ids = sorted({memory_id for delivered in fresh for memory_id in delivered.item.feedback.memory_ids})
        work = _Group(now, memories.fetch(connection, ids), feedback.versions(connection, ids))
        for delivered in fresh:
            try:
                self._take(work, delivered.item)
            except PoisonError as error:
                work.letters.append(dead_letter(self.name, delivered.message, error, now))
                self._metrics.dead_letters.labels(self.name, error.reason).inc()
        return self._write(connection, work)

    def _admitted(self, connection: Connection, group: Sequence[Delivered[Observed]]) -> list[Delivered[Observed]]:
        """Without what came too late for somebody who was erased."""
        if self._guard is None:
            return list(group)
        named = [Named(item.item.feedback.tenant, item.item.owner_key) for item in group]
        refused = self._guard.refuses(connection, named)
        return [item for item, gone in zip(group, refused, strict=True) if not gone]

    def _take(self, work: _Group, item: Observed) -> None:
        said = item.feedback
        about = [_own(work.held.get(memory_id), item) for memory_id in said.memory_ids]
        # Deleted since it was shown is no error of the sender, but it must leave no trace here either.
        about = [memory for memory in about if memory.status is not Status.DELETED]
        if said.memory_ids and not about:
            work.accepted.append(item)
            return
        at = min(said.given_at, work.now)
        shown = tuple(_shown(memory, work.written.get(memory.id, ()), at) for memory in about)
        decision = None
        if said.kind is FeedbackKind.FORGOTTEN:
            work.reviews.append(_missed(item))
        else:
            work.touches += [Touch(memory.id, memory.owner_key, said.kind, at) for memory in about]
        if said.kind is FeedbackKind.CORRECTED and item.words is not None and len(about) == 1:
            decision = self._correct(work, item, about[0], shown[0], at)
        label = Label(
            kind=said.kind,
            tenant=said.tenant,
            owner=said.owner,
            agent_id=said.agent_id,
            query=said.query,
            correction=said.correction,
            shown=shown,
            decision=decision,
            policy_version=self._gate.version,
            model=self._model()[:255],
            given_at=said.given_at,
        )
        work.labels.append(Labelled(item.key, item.owner_key, work.now, label))
        work.accepted.append(item)
        self._metrics.feedback.labels(said.kind.value).inc()

    def _correct(self, work: _Group, item: Observed, memory: Memory, shown: Shown, at: datetime) -> str:
        """Past the gate like any other claim; what it holds up, a person sees. Returns the gate's word."""
        said, words = item.feedback, item.words or ""
        read = read_correction(words, item.claims, memory)
        command = Command(
            command_id=new_id("feedback", item.key),
            kind=CommandKind.EDIT,
            tenant=said.tenant,
            owner_kind=said.owner_kind,
            owner=said.owner,
            issued_by=f"agent:{said.agent_id}" if said.agent_id else "feedback",
            issued_at=at,
            memory_id=memory.id,
            expected_version=shown.version,
        )
        judged = self._judge(command, memory, read, words)
        work.verdicts.append(judged)
        quote = judged.evidence[0].quote[:_MAX_QUOTE]
        payload = {
            "text": judged.text,
            "value": judged.value,
            "decision": judged.decision,
            "decision_reasons": list(judged.decision_reasons),
            "policy_version": judged.policy_version,
        }
        command = command.model_copy(update={"reason": quote, "payload": payload})
        if read.ends:
            # "I don't live there any more" names no new value: the memory ends, and stays as history.
            command = command.model_copy(update={"kind": CommandKind.FORGET, "reason": "corrected", "payload": {}})
        refused = judged.decision == Decision.REFUSE
        review = {"owner_key": item.owner_key, "memory_id": memory.id, "candidate_id": command.command_id}
        if memory.status not in _CURRENT:
            if not refused:
                detail = f"a correction of a memory that is {memory.status.value}"
                work.reviews.append(review | {"kind": "stale_write", "detail": detail, "body": _body(command)})
        elif refused or read.elsewhere:
            # Nothing of what was said may be written here, so the question holds none of it.
            why = f"refused ({' '.join(judged.decision_reasons)})" if refused else f"about {', '.join(read.elsewhere)}"
            work.reviews.append(review | {"kind": "review", "detail": f"a correction was {why}; {_STANDS}"})
        elif judged.decision in (Decision.QUARANTINE, Decision.REVIEW):
            detail = " ".join(judged.decision_reasons) or "held by policy"
            work.reviews.append(review | {"kind": judged.decision, "detail": detail, "body": _body(command)})
        else:
            work.commands.append(command)
        return judged.decision

    def _judge(self, command: Command, memory: Memory, read: Correction, words: str) -> Candidate:
        claim = claim_about(command, memory, Operation.END if read.ends else Operation.ASSERT)
        evidence = tuple(quote.model_copy(update={"quote": words}) for quote in claim.evidence)
        update = {"value": read.value, "text": read.text, "evidence": evidence, "language": detect(words)}
        judged = self._gate.judge(claim.model_copy(update=update), None).candidate
        if SECRET_MARK in judged.value and not worth_keeping(judged.value) and judged.decision != Decision.REFUSE:
            # The API masks before it publishes, so the gate may meet a secret's mask and not the secret.
            update = {"decision": Decision.REFUSE.value, "decision_reasons": (*judged.decision_reasons, "secret")}
            return judged.model_copy(update=update)
        if judged.owner_kind in SHARED and judged.decision in (Decision.ACCEPT, Decision.MASK):
            # What many read is changed by one only through a person (SPEC G1).
            reasons = (*judged.decision_reasons, "shared_scope")
            return judged.model_copy(update={"decision": Decision.REVIEW.value, "decision_reasons": reasons})
        return judged

    def _write(self, connection: Connection, work: _Group) -> list[Outgoing]:
        outbox.receive(connection, self.name, [item.key for item in work.accepted], work.now)
        feedback.touch(connection, work.touches)
        feedback.record(connection, work.labels)
        memories.record_decisions(connection, self.name, work.verdicts, work.now)
        # Somebody of whom nothing is known yet can be forgotten too; a review is found through its owner.
        missing = [item for item in work.accepted if item.feedback.kind is FeedbackKind.FORGOTTEN]
        ledger.lock_owners(
            connection,
            {
                item.owner_key: (item.feedback.tenant, item.feedback.owner_kind.value, item.feedback.owner)
                for item in missing
            },
        )
        memories.open_reviews(connection, work.reviews, work.now)
        out = [
            Outgoing("commands", command.owner_key, command.owner_key, command.to_bytes()) for command in work.commands
        ]
        return out + letters_out(deadletters.put(connection, work.letters))


def _words(text: str | None) -> str | None:
    """None for what says nothing."""
    return text.strip() or None if text is not None else None


def _own(memory: Memory | None, item: Observed) -> Memory:
    """Unknown and another owner's look the same, so ids cannot be tried out."""
    if memory is None or memory.owner_key != item.owner_key:
        raise PoisonError("unknown_memory", "the feedback names no memory of this owner")
    return memory


def _shown(memory: Memory, written: Sequence[tuple[datetime, int]], at: datetime) -> Shown:
    """The version that held when the feedback was given; the first one for a clock that is behind ours."""
    held = [version for recorded_at, version in written if recorded_at <= at] or [
        version for _at, version in written[:1]
    ]
    return Shown(memory.id, held[-1] if held else memory.version, memory.attribute, memory.audit.writer)


def _missed(item: Observed) -> dict[str, Any]:
    said = item.feedback
    words = [text for text in (said.query, said.correction) if text is not None]
    return {
        "kind": "forgotten",
        "owner_key": item.owner_key,
        "candidate_id": new_id("feedback", item.key),
        "detail": "\n".join(words)[:_MAX_DETAIL] or "a memory was not recalled",
    }


def _body(command: Command) -> str:
    return command.to_bytes().decode()
