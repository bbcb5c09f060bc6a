"""Replay, comparing: memories as they are live beside the same memories as a replay has them.

Identities are stable, so equal is equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from schemas import Memory, Status
from sinks.truth import Truth
from sinks.truth.replays import Held, side_by_side

Kind = Literal["added", "gone", "changed"]

_NOT_CONTENT = frozenset({"version", "audit"})
"""A version counts what happened, and the audit names the rules that judged: neither is what is remembered."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One memory that is not the same; `fields` are those that differ, when it is on both sides.

    `current` says whether it holds on either side now; the others are history, or held back.
    """

    kind: Kind
    current: bool
    memory_id: str
    tenant: str
    owner: str
    attribute: str
    value: str
    fields: tuple[str, ...]
    live_status: str | None
    replayed_status: str | None


@dataclass(slots=True)
class Counts:
    """How many memories differ, by kind; those that hold now, and those that do not."""

    current: dict[Kind, int] = field(default_factory=lambda: {"added": 0, "gone": 0, "changed": 0})
    history: dict[Kind, int] = field(default_factory=lambda: {"added": 0, "gone": 0, "changed": 0})

    def add(self, difference: Difference) -> None:
        """One more."""
        (self.current if difference.current else self.history)[difference.kind] += 1

    def report(self) -> dict[str, Any]:
        """For people and programs."""
        return {name: count for name, count in self.current.items()} | {"history": dict(self.history)}


@dataclass(slots=True)
class Comparison:
    """Counts in sum and per owner (tenant, owner), and the first differences themselves."""

    total: Counts = field(default_factory=Counts)
    owners: defaultdict[tuple[str, str], Counts] = field(default_factory=lambda: defaultdict(Counts))
    differences: list[Difference] = field(default_factory=list)
    same: int = 0


def changed_fields(live: Memory, replayed: Memory) -> tuple[str, ...]:
    """The fields in which the content differs."""
    if live == replayed:
        return ()
    one, other = live.model_dump(), replayed.model_dump()
    return tuple(sorted(name for name in one if name not in _NOT_CONTENT and one[name] != other[name]))


def holds(memory: Memory | None, now: datetime) -> bool:
    """Whether it is recalled; one whose time is over is not, whether or not a clock has come by."""
    if memory is None or memory.status not in (Status.ACTIVE, Status.DEMOTED):
        return False
    return memory.expires_at is None or memory.expires_at > now


def difference(live: Memory | None, replayed: Memory | None, now: datetime) -> Difference | None:
    """None if they say the same."""
    either = replayed or live
    if either is None:
        return None
    fields = changed_fields(live, replayed) if live is not None and replayed is not None else ()
    if live is not None and replayed is not None and not fields:
        return None
    before, after = holds(live, now), holds(replayed, now)
    return Difference(
        kind=_kind(live, replayed, before, after),
        current=before or after,
        memory_id=either.id,
        tenant=either.tenant,
        owner=either.owner,
        attribute=either.attribute,
        value=either.value,
        fields=fields,
        live_status=live.status.value if live is not None else None,
        replayed_status=replayed.status.value if replayed is not None else None,
    )


def _kind(live: Memory | None, replayed: Memory | None, before: bool, after: bool) -> Kind:
    if before != after:
        return "added" if after else "gone"
    if live is None:
        return "added"
    return "gone" if replayed is None else "changed"


def compare(live: Truth, beside: Truth, now: datetime, *, limit: int) -> Comparison:
    """All memories of both schemas, in constant memory but for the owners' counts; the first `limit` differences are kept."""
    found = Comparison()
    with live.reading() as here, beside.reading() as there:
        for one, other in side_by_side(here, there):
            equal = one is not None and other is not None and one.body == other.body
            differs = None if equal else difference(_memory(one), _memory(other), now)
            if differs is None:
                found.same += 1
                continue
            found.total.add(differs)
            found.owners[differs.tenant, differs.owner].add(differs)
            if len(found.differences) < limit:
                found.differences.append(differs)
    return found


def _memory(held: Held | None) -> Memory | None:
    return Memory.from_bytes(held.body.encode()) if held is not None else None


def by_owner(found: Comparison) -> Iterator[tuple[str, str, Counts]]:
    """Owners in order."""
    for tenant, owner in sorted(found.owners):
        yield tenant, owner, found.owners[tenant, owner]
