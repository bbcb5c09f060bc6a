"""The ingest stage: stores each turn once, sends its candidates on, closes batches; one transaction per group.

What it lets in goes to the sealed log as well; who was erased does not come in (`sinks.sealing`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from processors.batching import BatchLimits
from processors.exceptions import PoisonError
from processors.intake import LAST_REVISION, Intake, Judged, says_the_same
from processors.policy import Decision
from processors.resolution import order_key
from schemas import Command, CommandKind, Outcome, Role, Turn, digest, new_id
from sinks.sealing import Admission, Sealer, read_frame
from sinks.truth import deadletters, memories, turns
from sinks.truth.outbox import Outgoing
from sinks.truth.together import foresee
from sinks.truth.turns import Conversation, Stored
from streams.deadletter import dead_letter, letters_out
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.closing import close_batches, outgoing
from streams.stages.takeback import take_back_targets

MAX_AHEAD = timedelta(days=1)
_FUTURE = PoisonError("future_sent_at", "sent_at is more than a day ahead")
# The first one stays, the second is kept for a person.
_CONFLICT = ValueError(
    "turn_id must be unique in its conversation: a turn with this id and revision is there and differs in person, role, "
    "text, time or attachments"
)


@dataclass(slots=True)
class _Group:
    """What one group changes, gathered before it is written."""

    now: datetime
    known: dict[str, Stored]
    conversations: dict[str, Conversation]
    inserts: dict[str, dict[str, Any]] = field(default_factory=dict)
    replaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted: list[Delivered[Judged]] = field(default_factory=list)
    late: list[Delivered[Judged]] = field(default_factory=list)
    out: list[Outgoing] = field(default_factory=list)
    letters: list[tuple[Delivered[Judged], Exception]] = field(default_factory=list)
    copies: list[tuple[Turn, bytes]] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def count(self, outcome: str, reason: str = "") -> None:
        self.counts[outcome, reason] = self.counts.get((outcome, reason), 0) + 1


class IngestStage:
    """Turns in; candidates, commands and batches out."""

    name = "ingest"
    topic = "turns"

    def __init__(self, intake: Intake, limits: BatchLimits, metrics: Metrics, sealer: Sealer | None = None) -> None:
        """`sealer` None: a replay, which is given what was let in and sealed before."""
        self._intake = intake
        self._limits = limits
        self._metrics = metrics
        self._sealer = sealer
        self._copies: tuple[Admission, list[tuple[Turn, bytes]]] | None = None

    def prepare(self, message: Message) -> Judged:
        """Raises ValueError for anything that is not a turn."""
        return self._intake.judge(Turn.from_bytes(message.value or b""))

    def commit(self, connection: Connection, group: Sequence[Delivered[Judged]], now: datetime) -> list[Outgoing]:
        """Each turn once, whatever arrives twice; retractions; batches that are full or whose conversation ended."""
        turn_keys = {item.item.turn.turn_key for item in group}
        conversation_keys = {item.item.turn.conversation_key for item in group}
        questions = [*turns.knowing(turn_keys), *turns.locking_conversations(conversation_keys)]
        if self._sealer is not None:
            questions += self._sealer.foreseen([item.item.turn for item in group])
        foresee(connection, questions)
        work = _Group(now, turns.known(connection, turn_keys), turns.lock_conversations(connection, conversation_keys))
        admission = None
        if self._sealer is not None:
            admission = self._sealer.admit(connection, [item.item.turn for item in group], now)
        for delivered in group:
            if admission is not None and admission.refuses(delivered.item.turn):
                work.count(Outcome.SUPPRESSED.value)
            elif _ahead_of_its_time(delivered, now):
                work.letters.append((delivered, _FUTURE))
            else:
                self._admit(work, delivered)
        turns.insert_turns(connection, list(work.inserts.values()))
        turns.replace_turns(connection, list(work.replaces.values()))
        for delivered, command in take_back_targets(connection, work.accepted, work.late, work.conversations):
            work.out.append(_outgoing(delivered, command))
        ended = {item.item.turn.conversation_key for item in work.accepted if item.item.turn.conversation_end}
        at_hand = {item.item.turn.turn_key: item.item.turn for item in work.accepted}
        closed = close_batches(connection, work.conversations, self._limits, now, flush=ended, at_hand=at_hand)
        partitions = {item.item.turn.conversation_key: item.message.partition for item in group}
        work.out += [outgoing(batch, partitions[batch.conversation_key]) for batch in closed]
        turns.save_conversations(connection, work.conversations.values())
        verdicts = [verdict.candidate for item in work.accepted for verdict in item.item.verdicts]
        memories.record_decisions(connection, self.name, verdicts, now)
        self._bury(connection, work)
        self._count(work, [batch.closed_by for batch in closed])
        if admission is not None:
            self._copies = (admission, work.copies)
        return work.out

    def copies(self) -> list[Outgoing]:
        """The sealed turns of the last group, those included that truth had already."""
        if self._copies is None:
            return []
        admission, held = self._copies
        self._copies = None
        return [sealed(admission, turn, body) for turn, body in held]

    def _admit(self, work: _Group, delivered: Delivered[Judged]) -> None:
        judged = delivered.item
        turn = judged.turn
        stored = work.known.get(turn.turn_key)
        if stored is not None:
            differs = not says_the_same(turn, stored.content_hash, stored.sent_at)
            newer = turn.revision > stored.revision or (turn.revision == stored.revision and turn.deleted and differs)
            if not newer:
                # What was deleted at this revision is not missed: the deletion was faster than what it deletes.
                if differs and turn.revision == stored.revision and not stored.deleted:
                    work.letters.append((delivered, _CONFLICT))
                else:
                    # Perhaps the group died before its copies were out.
                    work.copies.append((turn, turn.to_bytes()))
                work.count("duplicate")
                return
            work.out.append(_outgoing(delivered, _void(turn)))
        elif turn.deleted:
            work.out.append(_outgoing(delivered, _void(turn)))
        conversation = work.conversations.get(turn.conversation_key)
        if conversation is None:
            conversation = Conversation(turn.conversation_key, turn.tenant, turn.conversation_id, turn.sent_at)
            work.conversations[turn.conversation_key] = conversation
        elif turn.sent_at <= conversation.last_sent_at and turn.role is Role.USER:
            work.late.append(delivered)
        noise = judged.noise
        if noise is None and judged.text_hash in conversation.recent:
            noise = "duplicate"
        if stored is not None and stored.pending:
            conversation.pending_count -= 1
            conversation.pending_tokens -= stored.tokens
        pending = noise is None
        if pending:
            conversation.pending_count += 1
            conversation.pending_tokens += judged.tokens
            conversation.first_pending_at = conversation.first_pending_at or work.now
        conversation.turn_count += stored is None
        conversation.last_sent_at = max(conversation.last_sent_at, turn.sent_at)
        conversation.ended = conversation.ended or turn.conversation_end
        conversation.recent = (*conversation.recent, judged.text_hash)[-turns.RECENT :]
        outcome = Outcome.STORED if pending else Outcome.FILTERED
        row = turns.turn_row(
            turn,
            arrived_at=work.now,
            content_hash=judged.content_hash,
            tokens=judged.tokens,
            pending=pending,
            retracts=judged.retracts,
            outcome=outcome,
            reason=noise,
        )
        fresh = stored is None or turn.turn_key in work.inserts
        (work.inserts if fresh else work.replaces)[turn.turn_key] = row
        work.known[turn.turn_key] = Stored(
            turn.turn_key,
            turn.revision,
            judged.content_hash,
            turn.sent_at,
            pending,
            outcome.value,
            judged.tokens,
            turn.deleted,
        )
        work.accepted.append(delivered)
        work.copies.append((turn, row["body"].encode()))
        work.count(outcome.value, noise or "")
        for verdict in judged.verdicts:
            self._metrics.candidates.labels(verdict.candidate.channel.value, verdict.decision.value).inc()
            if verdict.decision is not Decision.REFUSE:
                candidate = verdict.candidate
                work.out.append(
                    Outgoing(
                        "candidates",
                        candidate.owner_key,
                        candidate.owner_key,
                        candidate.to_bytes(),
                        delivered.message.partition,
                    )
                )

    def _bury(self, connection: Connection, work: _Group) -> None:
        letters = [dead_letter(self.name, item.message, error, work.now) for item, error in work.letters]
        work.out += letters_out(deadletters.put(connection, letters))

    def _count(self, work: _Group, closed_by: list[str]) -> None:
        for (outcome, reason), count in work.counts.items():
            self._metrics.turns.labels(outcome).inc(count)
            if outcome == Outcome.FILTERED.value:
                self._metrics.filtered.labels(reason).inc(count)
        for cause in closed_by:
            self._metrics.batches.labels(cause).inc()


def sealed(admission: Admission, turn: Turn, body: bytes) -> Outgoing:
    """For the sealed log: in its conversation's partition, under a key that says nothing."""
    raw = admission.seal(turn, body)
    return Outgoing("turns.sealed", read_frame(raw).message_id.hex(), turn.conversation_key, raw)


def _ahead_of_its_time(delivered: Delivered[Judged], now: datetime) -> bool:
    """What is said in the year 2099 would hold against everything that is said until then.

    Ahead of our clock and of the message's own: when it is ours that is wrong, nobody's turns shall be refused for it.
    """
    sent_at = delivered.item.turn.sent_at
    return sent_at > now + MAX_AHEAD and sent_at.timestamp() > delivered.message.timestamp + MAX_AHEAD.total_seconds()


def _void(turn: Turn) -> Command:
    """An edit voids what earlier revisions said, a deletion its own as well: a later revision is the turn restored."""
    below_revision: int | None = turn.revision
    if turn.deleted:
        below_revision = turn.revision + 1 if turn.revision < LAST_REVISION else None
    key = digest("void", turn.turn_key, str(turn.revision), str(turn.deleted))
    return Command(
        command_id=new_id("void", turn.turn_key, str(turn.revision), str(turn.deleted)),
        kind=CommandKind.RETRACT_TURN,
        tenant=turn.tenant,
        owner=turn.user_id,
        issued_by="ingest",
        issued_at=turn.edited_at or turn.sent_at,
        reason="deleted" if turn.deleted else "edited",
        target_turn_key=turn.turn_key,
        retraction_turn_key=key,
        below_revision=below_revision,
        payload={"order_key": order_key(turn.edited_at or turn.sent_at, turn.turn_id, 9999, "")},
    )


def _outgoing(delivered: Delivered[Judged], command: Command) -> Outgoing:
    return Outgoing("commands", command.owner_key, command.owner_key, command.to_bytes(), delivered.message.partition)
