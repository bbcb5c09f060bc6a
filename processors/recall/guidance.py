"""Recall, guidance: retrieval policy hints that a person has approved, as recall follows them (SPEC R10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from processors.hints import HINTS_WRITER, HintAction
from processors.recall.question import Question
from processors.recall.ranking import Ranking
from schemas import Memory, Status

_LEAST_WEIGHT = 0.25
"""No hint makes an attribute unfindable."""
_WIDER = 0.1
"""By how much of the relevance floor recall is widened: to what the clarifying question would have offered."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """What was approved: weights by attribute, attributes to ask about first, agents that are shown fewer or looked wider for."""

    weights: Mapping[str, float] = field(default_factory=dict)
    confirm: frozenset[str] = frozenset()
    fewer: frozenset[str] = frozenset()
    wider: frozenset[str] = frozenset()

    @classmethod
    def of(cls, approved: Iterable[Memory]) -> Guidance:
        """From the memories that approved hints became. One that nobody proposed here, or that means nothing, is left out:
        whoever may write to the policy's owner must not steer everybody's recall by it.
        """
        weights: dict[str, float] = {}
        named: dict[HintAction, set[str]] = {action: set() for action in HintAction}
        for memory in approved:
            kind, _space, name = memory.subject.partition(" ")
            actions = [action for action in HintAction if action == memory.attribute]
            if memory.status is not Status.ACTIVE or memory.audit.writer != HINTS_WRITER or not actions or not name:
                continue
            about_attribute = actions[0] in (HintAction.LOWER_WEIGHT, HintAction.CONFIRM_FIRST)
            if kind != ("attribute" if about_attribute else "agent"):
                continue
            named[actions[0]].add(name)
            if actions[0] is HintAction.LOWER_WEIGHT:
                try:
                    weights[name] = min(1.0, max(_LEAST_WEIGHT, float(memory.value)))
                except ValueError:
                    continue
        return cls(
            weights,
            frozenset(named[HintAction.CONFIRM_FIRST]),
            frozenset(named[HintAction.SHOW_FEWER]),
            frozenset(named[HintAction.WIDEN]),
        )

    def limit(self, agent: str | None, limit: int) -> int:
        """Results for this agent: half of them for one that ignores most of what it is shown."""
        return ceil(limit / 2) if agent in self.fewer else limit

    def floor(self, agent: str | None, floor: float) -> float:
        """The relevance floor for this agent: lower for one whose people say that it forgot."""
        return max(0.0, floor - _WIDER) if agent in self.wider else floor

    def follow(self, question: Question, ranking: Ranking) -> Ranking:
        """The ranking with weighed scores. What the question names is not weighed: it was asked for."""
        if not any(name not in question.slots for name in self.weights):
            return ranking
        weighed = [
            item
            if item.unit.attribute in question.slots or item.unit.attribute not in self.weights
            else item._replace(score=item.score * self.weights[item.unit.attribute])
            for item in ranking.ranked
        ]
        return Ranking(tuple(sorted(weighed, key=lambda item: (-item.score, item.unit.id))), ranking.weights)
