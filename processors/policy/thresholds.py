"""Policy, worth room: what is too fleeting to keep, what a person must see, what must be confirmed (SPEC W8)."""

from __future__ import annotations

from processors.policy.catalogue import rules_of
from processors.policy.threats import normal_text
from schemas import Candidate, Category, Channel, MemoryType, Operation, SourceKind, Turn

_FLEETING = frozenset({Category.FACT, Category.PREFERENCE, Category.INSTRUCTION, Category.NOTE})
_EXPERIENCE = frozenset({Category.LESSON, Category.TASK})
_GUARDED_SLOTS = (
    "permission",
    "access_level",
    "access_right",
    "approval",
    "compliance",
    "safety_",
    "security_",
    "payment",
    "payout",
    "spending_limit",
    "refund_limit",
    "credit_limit",
    "权限",
    "授权",
    "审批",
    "风控",
    "合规",
    "支付",
    "付款",
    "收款",
    "限额",
    "额度",
)
"""Fragments of slot names that hold safety, permission, compliance or payment; a value there is always a change."""


class Thresholds:
    """Judges worth and weight of a candidate; stateless after construction."""

    def __init__(self) -> None:
        self._rules = rules_of("thresholds.yaml")

    def is_guarded(self, candidate: Candidate) -> bool:
        """Safety, permission, compliance or payment is being changed."""
        attribute = candidate.attribute.casefold()
        if any(part in attribute for part in _GUARDED_SLOTS):
            return True
        return self._any("safety_or_permission", candidate.text) or self._any("safety_or_permission", candidate.value)

    def fleeting(self, candidate: Candidate) -> str | None:
        """`mood`, `momentary`, or None for something that may last. A stated end of validity already says how long."""
        if candidate.valid_to is not None or candidate.operation is not Operation.ASSERT:
            return None
        said = dict.fromkeys((candidate.text, *(evidence.quote for evidence in candidate.evidence)))
        if any(self._any("lasting", text) for text in said):
            return None
        if candidate.category not in (Category.TASK, Category.GOAL, Category.LESSON) and any(
            self._any("mood", t) for t in said
        ):
            return "mood"
        if candidate.category in _FLEETING and any(self._any("momentary", text) for text in said):
            return "momentary"
        return None

    def is_confirmed(self, candidate: Candidate, turn: Turn | None) -> bool:
        """A person has said yes: by a command, by a field marked so, or with a yes quoted from his own turn."""
        if candidate.channel is Channel.COMMAND:
            return True
        value = candidate.provenance.get("value")
        if value is not None and value.method == "confirmed" and value.source is SourceKind.USER_STATEMENT:
            return True
        if turn is None or turn.role != "user":
            return False
        return any(e.turn_key == turn.turn_key and self._any("affirmed", e.quote) for e in candidate.evidence)

    def _any(self, kind: str, text: str) -> bool:
        plain = normal_text(text)
        return any(rule.kind == kind and rule.hits(plain) for rule in self._rules.possible(plain))


def is_experience(candidate: Candidate) -> bool:
    """A lesson or the state of a task: what an agent or tool may say of its own work without anybody's confirmation."""
    return candidate.category in _EXPERIENCE


def is_rule(candidate: Candidate) -> bool:
    """Something that would steer behaviour."""
    return candidate.type is MemoryType.PROCEDURAL or candidate.category is Category.INSTRUCTION
