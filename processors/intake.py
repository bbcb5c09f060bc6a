"""Intake: everything that can be said of one turn without looking anything up. Pure; one call per turn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from processors.noise import NoiseFilter
from processors.noise.normal import normal_text
from processors.policy import Decision, PolicyGate, Verdict
from processors.rules import HitKind, RuleBook
from processors.rules.channel import candidates_from
from processors.tokens import estimate
from schemas import Role, Turn, digest

LAST_REVISION = 2**31 - 1
"""Of a deletion that carries no number: nothing comes after it. The most that a database's INTEGER holds."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A turn and the verdicts on it.

    `noise` is why it must not reach the model (None: it may); `retracts` says that it takes back the speaker's previous
    turn; `text_hash` stands for its text when repetitions are looked for.
    """

    turn: Turn
    content_hash: str
    text_hash: str
    tokens: int
    noise: str | None
    retracts: bool
    verdicts: tuple[Verdict, ...]


class Intake:
    """Noise filter, rule channel and policy gate in one pass."""

    def __init__(self, rules: RuleBook, noise: NoiseFilter, gate: PolicyGate) -> None:
        self._rules = rules
        self._noise = noise
        self._gate = gate

    def judge(self, turn: Turn) -> Judged:
        """Verdicts in the order of the words; equal turns give equal verdicts."""
        turn = numbered(turn)
        verdicts: list[Verdict] = []
        retracts = False
        if turn.role is Role.USER and turn.text and not turn.deleted:
            hits = self._rules.match(turn)
            retracts = any(hit.kind is HitKind.RETRACT_PREVIOUS for hit in hits)
            for position, candidate in enumerate(candidates_from(turn, hits, version=self._rules.version)):
                verdicts.append(self._gate.judge(candidate.model_copy(update={"position": position}), turn))
            verdicts = _all_locked_up(verdicts)
        return Judged(
            turn=turn,
            content_hash=_content_hash(turn),
            text_hash=digest(turn.user_id, turn.role, normal_text(turn.text)),
            tokens=estimate(turn.text),
            noise=self._noise_of(turn, verdicts, retracts),
            retracts=retracts,
            verdicts=tuple(verdicts),
        )

    def _noise_of(self, turn: Turn, verdicts: list[Verdict], retracts: bool) -> str | None:
        if turn.deleted:
            return "deleted"
        for verdict in verdicts:
            # What the gate locked up or threw out of the rule channel must not come back through the model.
            if verdict.decision is Decision.QUARANTINE:
                return "quarantined"
            if verdict.decision is Decision.REFUSE:
                return f"refused_{verdict.reasons[0]}" if verdict.reasons else "refused"
        if retracts and not verdicts:
            return "retraction"
        return self._noise.judge(turn).reason


def numbered(turn: Turn) -> Turn:
    """The turn with a revision that orders it, also where a gateway counts none.

    An edit is then ordered by when it was made, in seconds after the turn was said, and a deletion is the last word. Both
    depend on nothing but the turn, so it does not matter which of them arrives first.
    """
    if turn.revision:
        return turn
    if turn.deleted:
        return turn.model_copy(update={"revision": LAST_REVISION})
    if turn.edited_at is None or turn.edited_at <= turn.sent_at:
        return turn
    seconds = -(-(turn.edited_at - turn.sent_at) // timedelta(seconds=1))
    return turn.model_copy(update={"revision": min(seconds, LAST_REVISION - 1)})


def _all_locked_up(verdicts: list[Verdict]) -> list[Verdict]:
    """One poisoned clause makes the whole turn suspect: its harmless-looking half may be the payload."""
    if not any(verdict.decision is Decision.QUARANTINE for verdict in verdicts):
        return verdicts
    locked: list[Verdict] = []
    for verdict in verdicts:
        if verdict.decision in (Decision.QUARANTINE, Decision.REFUSE):
            locked.append(verdict)
            continue
        reasons = (*verdict.reasons, "same_turn")
        update = {"decision": Decision.QUARANTINE.value, "decision_reasons": reasons}
        locked.append(Verdict(Decision.QUARANTINE, reasons, verdict.candidate.model_copy(update=update)))
    return locked


def says_the_same(turn: Turn, content_hash: str, sent_at: datetime) -> bool:
    """Whether a stored turn, of this hash and time, is the same turn; a time that was guessed on either side may differ.

    The file of a log without times is touched, or its owner says later when it was.
    """
    if content_hash in (_hash_at(turn, ""), _hash_at(turn, turn.sent_at.isoformat())):
        return True
    return turn.sent_at_guessed and content_hash == _hash_at(turn, sent_at.isoformat())


def _content_hash(turn: Turn) -> str:
    """Equal for two deliveries of the same turn; trace ids and unknown fields may differ between deliveries."""
    return _hash_at(turn, "" if turn.sent_at_guessed else turn.sent_at.isoformat())


def _hash_at(turn: Turn, time: str) -> str:
    parts = [turn.user_id, turn.role, turn.text, str(turn.deleted), time]
    parts += [f"{item.name}|{item.url}" for item in turn.attachments]
    return digest(*parts)
