"""Replica, state: which version of each memory is held; pure, so that any repetition or late arrival can be tried out.

The log is read at least once, and its producer, after a crash, repeats a stretch of it in order. Rules:

1. A version is applied only over a lower one. The same version with the same content is a repetition, with other content
   a conflict: reported once, never applied.
2. A deleted version takes the memory away and leaves its number behind; only a higher one brings the memory back.
3. A tombstone that names a version ends every version up to that one. One of an older service names none: it ends the
   version whose record it follows in the log, so after an undelivered deletion the number is uncertain; then only what
   happened after the tombstone was written brings the memory back.
4. A version that moved out of the scope takes the memory away here, and leaves its number behind as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from memriver_client.model import DELETED, Memory
from memriver_client.owners import Owner
from memriver_client.replica.scope import Scope, owner_of


class Place(NamedTuple):
    """Where a record stands in the log. Offsets compare within one partition only."""

    partition: int
    offset: int


class Outcome(Enum):
    """What became of one event."""

    APPLIED = "applied"
    REMOVED = "removed"
    DUPLICATE = "duplicate"
    LATE = "late"
    CONFLICT = "conflict"
    OUTSIDE = "outside"
    DOUBTFUL = "doubtful"
    """A tombstone that may or may not mean what is held: the owner has to be read again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one memory id.

    `version` is what is held, or, when `memory` is None, the number below which nothing comes back; `certain` whether
    that number is the one that ended it. `as_of` is when the held version came about, or when it was gone. `digest` is of
    that version's content, None when it ended without saying so. `place`, `logged` and `logged_end` are the last record of
    this id in the log, its version, and whether it was a deletion.
    """

    version: int
    memory: Memory | None
    as_of: datetime
    digest: str | None = None
    certain: bool = True
    place: Place | None = None
    logged: int = 0
    logged_end: bool = False
    owner: Owner | None = None


class Step(NamedTuple):
    """One event's outcome. `before` is what was held, `after` what is held now."""

    outcome: Outcome
    memory_id: str
    version: int
    before: Memory | None = None
    after: Memory | None = None


class ReplicaState:
    """Entries by memory id; `changed` collects what a store still has to be told."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.entries: dict[str, Entry] = {}
        self.reported: set[tuple[str, int, str]] = set()
        self.changed: set[str] = set()

    def held(self) -> Iterator[Memory]:
        """All memories held, of every status."""
        return (entry.memory for entry in list(self.entries.values()) if entry.memory is not None)

    def apply(self, memory: Memory, as_of: datetime, place: Place | None = None) -> Step:
        """One version of a memory: from the log (`place`, `as_of` = when it happened) or read elsewhere (None, when read)."""
        if not self.scope.covers_owner(memory):
            return Step(Outcome.OUTSIDE, memory.id, memory.version)
        entry = self.entries.get(memory.id)
        # Two deleted versions are the same, whatever is left inside; and what was erased leaves no digest of it behind.
        digest = DELETED if memory.deleted else memory.content_digest()
        if entry is None:
            return self._accept(memory, None, digest, as_of, place)
        follows = place is None or _follows(place, entry)
        if place is not None and follows:
            logged = replace(
                entry, place=place, logged=memory.version, logged_end=memory.deleted, owner=owner_of(memory)
            )
            entry = self._put(memory.id, logged)
        if memory.version < entry.version:
            return Step(Outcome.LATE, memory.id, memory.version)
        if not entry.certain and not memory.deleted and (as_of <= entry.as_of or not follows):
            return Step(Outcome.LATE, memory.id, memory.version)
        if memory.version == entry.version and entry.certain:
            return self._same_version(memory, entry, digest)
        return self._accept(memory, entry, digest, as_of, place)

    def bury(self, memory_id: str, written_at: datetime, place: Place, ends: int | None = None) -> Step:
        """A tombstone; `ends` is the version that it names."""
        entry = self.entries.get(memory_id)
        if ends is not None:
            return self._end(memory_id, entry, ends, written_at, place)
        if entry is None:
            # Whose it was is unknown, and so it is remembered under every scope; an id and a number are not personal.
            self._put(memory_id, Entry(0, None, written_at, certain=False, place=place))
            return Step(Outcome.REMOVED, memory_id, 0)
        if not _follows(place, entry):
            return Step(Outcome.LATE, memory_id, entry.version)
        beside_log = entry.place is None or entry.place.partition != place.partition
        entry = self._put(memory_id, replace(entry, place=place))
        if entry.memory is None:
            if not entry.certain:
                self._put(memory_id, replace(entry, as_of=max(entry.as_of, written_at)))
            return Step(Outcome.DUPLICATE, memory_id, entry.version)
        if beside_log and written_at <= entry.as_of:
            return Step(Outcome.DOUBTFUL, memory_id, entry.version)
        if not beside_log and entry.logged < entry.version:
            if entry.logged_end:
                return Step(Outcome.LATE, memory_id, entry.logged)
            return Step(Outcome.DOUBTFUL, memory_id, entry.version)
        return self._remove(memory_id, entry, written_at, certain=False)

    def _end(self, memory_id: str, entry: Entry | None, version: int, written_at: datetime, place: Place) -> Step:
        if entry is None:
            self._put(memory_id, Entry(version, None, written_at, place=place))
            return Step(Outcome.REMOVED, memory_id, version)
        if _follows(place, entry):
            entry = self._put(memory_id, replace(entry, place=place))
        if version < entry.version:
            return Step(Outcome.LATE, memory_id, version)
        if entry.memory is None:
            digest = entry.digest if version == entry.version else None
            self._put(memory_id, replace(entry, version=version, certain=True, digest=digest))
            return Step(Outcome.DUPLICATE, memory_id, version)
        return self._remove(memory_id, replace(entry, version=version), written_at, certain=True)

    def sweep(self, partition: int, end: int, seen: Collection[str], at: datetime) -> list[Step]:
        """A partition was read from its start to `end`: what was held from there and is there no more has been erased."""
        return [
            self._remove(memory_id, entry, at, certain=True)
            for memory_id, entry in list(self.entries.items())
            if entry.memory is not None
            and entry.place is not None
            and entry.place.partition == partition
            and entry.place.offset < end
            and memory_id not in seen
        ]

    def sweep_unplaced(self, ids: Collection[str], at: datetime) -> list[Step]:
        """The whole log was read, and these, held from elsewhere, were not in it: they have been erased."""
        entries = {memory_id: self.entries[memory_id] for memory_id in ids if memory_id in self.entries}
        return [
            self._remove(memory_id, entry, at, certain=True)
            for memory_id, entry in entries.items()
            if entry.memory is not None and entry.place is None
        ]

    def deleted(self, memory_id: str, version: int, at: datetime) -> Step:
        """Truth says that the memory was deleted at this version."""
        entry = self.entries.get(memory_id)
        if entry is None or entry.memory is None or version < entry.version:
            return Step(Outcome.LATE, memory_id, version)
        return self._remove(memory_id, replace(entry, version=version), at, certain=True)

    def prune(self, before: datetime) -> None:
        """Forget the numbers that memories gone for that long left behind; nothing of them can still be under way."""
        for memory_id, entry in list(self.entries.items()):
            if entry.memory is None and entry.as_of < before:
                del self.entries[memory_id]
                self.changed.add(memory_id)

    def report_once(self, memory: Memory) -> bool:
        """Whether this rival content is reported for the first time."""
        rival = (memory.id, memory.version, memory.content_digest())
        if rival in self.reported:
            return False
        self.reported.add(rival)
        return True

    def _same_version(self, memory: Memory, entry: Entry, digest: str) -> Step:
        if entry.digest is None:
            return Step(Outcome.LATE, memory.id, memory.version)
        outcome = Outcome.DUPLICATE if digest == entry.digest else Outcome.CONFLICT
        return Step(outcome, memory.id, memory.version, entry.memory, entry.memory)

    def _accept(self, memory: Memory, entry: Entry | None, digest: str, as_of: datetime, place: Place | None) -> Step:
        before = entry.memory if entry else None
        inside = self.scope.covers(memory)
        kept = memory if inside and not memory.deleted else None
        logged = (memory.version, memory.deleted) if place else (0, False)
        if entry is not None:
            place, logged = entry.place, (entry.logged, entry.logged_end)
        self._put(
            memory.id,
            Entry(
                version=memory.version,
                memory=kept,
                as_of=as_of,
                digest=digest,
                place=place,
                logged=logged[0],
                logged_end=logged[1],
                owner=owner_of(memory),
            ),
        )
        if kept is not None:
            return Step(Outcome.APPLIED, memory.id, memory.version, before, kept)
        outcome = Outcome.REMOVED if before is not None or inside else Outcome.OUTSIDE
        return Step(outcome, memory.id, memory.version, before)

    def _remove(self, memory_id: str, entry: Entry, as_of: datetime, *, certain: bool) -> Step:
        self._put(memory_id, replace(entry, memory=None, digest=None, certain=certain, as_of=as_of))
        return Step(Outcome.REMOVED, memory_id, entry.version, entry.memory)

    def _put(self, memory_id: str, entry: Entry) -> Entry:
        self.entries[memory_id] = entry
        self.changed.add(memory_id)
        return entry


def _follows(place: Place, entry: Entry) -> bool:
    """Whether the place lies after what is known of this id; another partition's offsets cannot say, so they do."""
    return entry.place is None or entry.place.partition != place.partition or place.offset > entry.place.offset
