"""Replica, sequences: each owner's events are numbered without gaps, so a hole means that something was missed."""

from __future__ import annotations

from dataclasses import dataclass, field

from memriver_client.owners import Owner


@dataclass
class _Seen:
    last: int
    # Holes as [first, last], each with the time (seconds, any origin) it was noticed.
    holes: list[tuple[int, int, float]] = field(default_factory=list)


class Sequences:
    """Highest `owner_seq` per owner, and what is missing below it."""

    def __init__(self) -> None:
        self._owners: dict[Owner, _Seen] = {}
        self.changed: set[Owner] = set()

    def restore(self, last: dict[Owner, int]) -> None:
        """Start from what a store kept."""
        self._owners = {owner: _Seen(number) for owner, number in last.items()}

    def last(self, owner: Owner) -> int:
        """The highest number seen; 0 for an unknown owner."""
        seen = self._owners.get(owner)
        return seen.last if seen else 0

    def catch_up(self, owner: Owner, number: int) -> None:
        """A number from the compacted part of the log, where holes are what compaction leaves."""
        seen = self._owners.setdefault(owner, _Seen(0))
        seen.holes = _without(seen.holes, number)
        if number > seen.last:
            seen.last = number
            self.changed.add(owner)

    def observe(self, owner: Owner, number: int, now: float) -> None:
        """A number from the tail: every one has to come."""
        seen = self._owners.setdefault(owner, _Seen(0))
        if number > seen.last + 1:
            seen.holes.append((seen.last + 1, number - 1, now))
        seen.holes = _without(seen.holes, number)
        if number > seen.last:
            seen.last = number
            self.changed.add(owner)

    def suspect(self, owner: Owner, now: float) -> None:
        """Something else says that this owner has to be read again."""
        # A hole that nothing fills: only `settle` closes it.
        self._owners.setdefault(owner, _Seen(0)).holes.append((0, 0, now))

    def missing(self, before: float) -> dict[Owner, int]:
        """Owners with a hole noticed at or before that time, and the highest number that settling them would cover."""
        return {
            owner: max(last for _first, last, noticed in seen.holes if noticed <= before)
            for owner, seen in self._owners.items()
            if any(noticed <= before for _first, _last, noticed in seen.holes)
        }

    def settle(self, owner: Owner, up_to: int) -> None:
        """The owner was read again: holes up to that number are filled, or were only compaction."""
        seen = self._owners.get(owner)
        if seen is not None:
            seen.holes = [hole for hole in seen.holes if hole[1] > up_to]

    @property
    def open(self) -> int:
        """Owners with a hole."""
        return sum(bool(seen.holes) for seen in self._owners.values())


def _without(holes: list[tuple[int, int, float]], number: int) -> list[tuple[int, int, float]]:
    rest = []
    for first, last, noticed in holes:
        if first <= number <= last and number > 0:
            rest += [(a, b, noticed) for a, b in ((first, number - 1), (number + 1, last)) if a <= b]
        else:
            rest.append((first, last, noticed))
    return rest
