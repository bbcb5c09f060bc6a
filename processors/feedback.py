"""Feedback, judgement: what a correction says, outcomes counted into rates, labels turned into examples (A4, E3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from schemas import Candidate, FeedbackKind, Memory, Operation

_SYSTEM = (
    "You are given a question and numbered memories about a person. Say which memories serve the answer, which are "
    "wrong, and whether one is missing. Answer in JSON."
)
_LEAST_ID = 2
"""Characters of an owner's id that is looked for in texts: a single letter names nobody and stands everywhere."""
_UNSAFE = frozenset({"quarantine", "refuse"})


@dataclass(frozen=True, slots=True)
class Shown:
    """One memory that was recalled, at the version that held then. `writer` names the rules or the model that wrote it."""

    memory_id: str
    version: int
    attribute: str
    writer: str


@dataclass(frozen=True, slots=True)
class Label:
    """One row of the labelled data set. Texts are masked; `owner` is never exported, only looked for in the texts."""

    kind: FeedbackKind
    tenant: str
    owner: str
    agent_id: str | None
    query: str | None
    correction: str | None
    shown: tuple[Shown, ...]
    decision: str | None
    policy_version: str
    model: str
    given_at: datetime


# Corrections


@dataclass(frozen=True, slots=True)
class Correction:
    """What a correction says of one memory: another value, or (`ends`) only that this one does not hold.

    `elsewhere`: it speaks of these attributes and not of the memory's own, so nothing of it may be written there.
    """

    value: str
    text: str
    ends: bool = False
    elsewhere: tuple[str, ...] = ()


def read_correction(text: str, claims: Sequence[Candidate], memory: Memory) -> Correction:
    """`claims` are what the rule book reads in `text` as a user's turn; without any the whole text is the new value."""
    own = [claim for claim in claims if (claim.subject, claim.attribute) == (memory.subject, memory.attribute)]
    for claim in own:
        if claim.operation is Operation.ASSERT:
            return Correction(claim.value, claim.text)
    if own:
        return Correction(memory.value, memory.text, ends=True)
    return Correction(text, text, elsewhere=tuple(dict.fromkeys(claim.attribute for claim in claims)))


# Outcomes


@dataclass(frozen=True, slots=True)
class Counts:
    """Recalled memories by what became of them; `forgotten` counts complaints. Shares are None where nothing was recalled."""

    used: int = 0
    ignored: int = 0
    corrected: int = 0
    forgotten: int = 0

    @property
    def recalled(self) -> int:
        """Memories that were shown and judged."""
        return self.used + self.ignored + self.corrected

    def share(self, kind: FeedbackKind) -> float | None:
        """Of the recalled memories, those that were used, ignored or corrected."""
        return round(getattr(self, kind.value) / self.recalled, 4) if self.recalled else None

    def plus(self, kind: FeedbackKind, number: int) -> Counts:
        """With so many more of a kind."""
        return replace(self, **{kind.value: getattr(self, kind.value) + number})

    def report(self) -> dict[str, Any]:
        """Counts and rates, for people and programs."""
        return {
            "recalled": self.recalled,
            "forgotten": self.forgotten,
            "used_rate": self.share(FeedbackKind.USED),
            "ignored_rate": self.share(FeedbackKind.IGNORED),
            "correction_rate": self.share(FeedbackKind.CORRECTED),
        }


@dataclass(slots=True)
class Outcomes:
    """Counts in all, per attribute and per agent; feedback that names no memory counts as one outcome of none."""

    total: Counts = Counts()
    attributes: dict[str, Counts] = field(default_factory=dict)
    agents: dict[str, Counts] = field(default_factory=dict)

    def add(self, label: Label) -> None:
        """One more label."""
        number = 1 if label.kind is FeedbackKind.FORGOTTEN else max(1, len(label.shown))
        self.total = self.total.plus(label.kind, number)
        if label.agent_id is not None:
            self.agents[label.agent_id] = self.agents.get(label.agent_id, Counts()).plus(label.kind, number)
        for item in label.shown:
            self.attributes[item.attribute] = self.attributes.get(item.attribute, Counts()).plus(label.kind, 1)

    def report(self) -> dict[str, Any]:
        """User correction rate, used and ignored rates in all, per attribute and per agent (SPEC E3)."""
        return {
            "user_correction_rate": self.total.share(FeedbackKind.CORRECTED),
            "total": self.total.report(),
            "attributes": {name: counts.report() for name, counts in sorted(self.attributes.items())},
            "agents": {name: counts.report() for name, counts in sorted(self.agents.items())},
        }


def outcomes_of(labels: Iterable[Label]) -> Outcomes:
    """All of them counted; one pass, so a stream will do."""
    found = Outcomes()
    for label in labels:
        found.add(label)
    return found


# Examples


def example(label: Label, texts: Mapping[tuple[str, int], str], mask: Callable[[str], str]) -> dict[str, Any] | None:
    """One line of chat-format fine-tuning data (`messages`, as OpenAI's fine-tuning takes them) with its label.

    `texts` are the words of each (memory id, version) that may still be told; a memory that is gone is left out. None when
    nothing is left to learn from, or when the policy kept the correction out: a poisoned one must not train a model.
    """
    if label.decision in _UNSAFE:
        return None

    def clean(text: str) -> str:
        return mask(_without(text, label.owner))

    lines = [
        f"{item.attribute}: {texts[item.memory_id, item.version]}"
        for item in label.shown
        if (item.memory_id, item.version) in texts
    ]
    if (label.shown and not lines) or (not lines and label.query is None and label.correction is None):
        return None
    numbers = list(range(1, len(lines) + 1))
    memories = "\n".join(f"[{number}] {clean(line)}" for number, line in zip(numbers, lines, strict=True))
    question = clean(label.query) if label.query is not None else "(not recorded)"
    answer = {
        "use": numbers if label.kind is FeedbackKind.USED else [],
        "wrong": numbers if label.kind is FeedbackKind.CORRECTED else [],
        "missing": label.kind is FeedbackKind.FORGOTTEN,
        "correction": clean(label.correction) if label.correction is not None else None,
    }
    return {
        "messages": [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"Question: {question}\nMemories:\n{memories or '(none)'}"},
            {"role": "assistant", "content": json.dumps(answer, ensure_ascii=False)},
        ],
        "label": label.kind.value,
        "agent": label.agent_id if label.agent_id != label.owner else None,
        "given_at": label.given_at.isoformat(),
        "policy_version": label.policy_version,
        "model": label.model,
        "writers": sorted({_kind_of_writer(item.writer) for item in label.shown}),
    }


def _without(text: str, owner: str) -> str:
    # Not \b: Chinese is written without spaces, and an id beside it is still the id.
    if len(owner) < _LEAST_ID:
        return text
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(owner)}(?![A-Za-z0-9])", "[owner]", text, flags=re.IGNORECASE)


def _kind_of_writer(writer: str) -> str:
    """Rules and models with their version; of a person or an agent only that it was one."""
    kind = writer.partition(":")[0]
    return writer if kind in ("rules", "model") else kind
