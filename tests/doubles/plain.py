"""Tests, doubles: the plain model — what people said, took back and ordered, and what must hold; no resolver in it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

RESIDENCE = "residence"
"""Holds one value; every other attribute here holds many."""

Fact = tuple[str, str]
"""Attribute and value."""


@dataclass(slots=True)
class Spoken:
    """One user turn: `facts` are those of its latest revision, None once it is deleted; a retraction states none."""

    person: str
    conversation: str
    number: int
    minute: int
    facts: list[Fact] | None
    retracts: bool = False
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """A command about a value: assert (as restoring does), forget or delete."""

    person: str
    minute: int
    kind: str
    fact: Fact


@dataclass(slots=True)
class Plain:
    """Everything that was said and ordered, whenever it arrived."""

    turns: list[Spoken] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)

    def holds(self) -> dict[tuple[str, str], set[str]]:
        """The values that hold, by person and attribute, once everything has arrived."""
        events: defaultdict[str, list[tuple[int, str, Fact]]] = defaultdict(list)
        void = {id(turn) for turn in self._taken_back()}
        for turn in self.turns:
            if id(turn) not in void:
                events[turn.person] += [(turn.minute, "assert", fact) for fact in turn.facts or ()]
        for order in self.orders:
            events[order.person].append((order.minute, order.kind, order.fact))
        held: dict[tuple[str, str], set[str]] = {}
        for person, told in events.items():
            for _minute, kind, (attribute, value) in sorted(told):
                values = held.setdefault((person, attribute), set())
                if kind != "assert":
                    values.discard(value)
                    continue
                if attribute == RESIDENCE:
                    values.clear()
                values.add(value)
        return {key: values for key, values in held.items() if values}

    def _taken_back(self) -> list[Spoken]:
        found: list[Spoken] = []
        for retraction in self.turns:
            before = [
                turn
                for turn in self.turns
                if (turn.person, turn.conversation) == (retraction.person, retraction.conversation)
                and turn.minute < retraction.minute
                and not turn.retracts
            ]
            if retraction.retracts and before:
                found.append(max(before, key=lambda turn: turn.minute))
        return found
