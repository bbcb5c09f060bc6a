"""Re-embedding, the comparison: truth against a store, two streams in the order of ids, in constant memory.

Changes go on meanwhile, so a difference is looked at again a few times, truth first, before it counts as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from schemas import Status
from sinks.truth import Truth, scanning
from sinks.truth.scanning import Mark
from sinks.vectors import StoredPoint, Tombstone, VectorStore
from sinks.vectors.collection import Collection
from sinks.vectors.payload import OWNER
from streams.projection import project
from streams.reindex.lease import Lease

PAGE = 1_000
_CHUNK = 256
_LOOKS = 6
_FIRST_PAUSE_SECONDS = 0.05


class Kind(StrEnum):
    """How a point differs from its memory."""

    MISSING = "missing"
    BEHIND = "behind"
    ORPHAN = "orphan"
    # A newer version than truth's, or another owner or status at the same one: truth was restored from an older backup.
    STRANGE = "strange"


@dataclass(frozen=True, slots=True)
class Difference:
    """One id where truth and the store do not agree. `version` is the point's, 0 if there is none."""

    id: str
    kind: Kind
    owner_key: str
    version: int


@dataclass(slots=True)
class Counts:
    """What was seen on the way: memories and points by status."""

    truth: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)


class Comparison:
    """One pass over everything; `counts` is complete when `differences` has ended."""

    def __init__(self, truth: Truth, store: VectorStore, lease: Lease, *, shown: bool = True) -> None:
        self._truth = truth
        self._store = store
        self._lease = lease
        # Whether its progress is the task's; the comparison at the end of a build leaves the build's own.
        self._shown = shown
        self.counts = Counts()

    def differences(self) -> Iterator[list[Difference]]:
        """Chunks of differences, each confirmed.

        Raises:
            TransientError: truth or the store is away.
            Lost, Halted: the work must end here.
        """
        doubtful: list[str] = []
        with self._truth.reading() as connection:
            total = scanning.size(connection)
        self._note(total=total, done=0)
        for mark, point in self._side_by_side():
            if _difference(mark, point) is not None:
                doubtful.append(mark.id if mark is not None else point.id if point is not None else "")
            if len(doubtful) >= _CHUNK:
                yield self._confirmed(doubtful)
                doubtful = []
        yield self._confirmed(doubtful)
        self._note(done=total)

    def _note(self, **progress: int) -> None:
        if self._shown:
            self._lease.keep(**progress)
        else:
            self._lease.note()

    def _side_by_side(self) -> Iterator[tuple[Mark | None, StoredPoint | None]]:
        """A merge of two ascending streams."""
        marks, points = self._marks(), self._store.scroll(PAGE)
        mark, point = next(marks, None), next(points, None)
        while mark is not None or point is not None:
            if point is None or (mark is not None and mark.id < point.id):
                self._count(mark, None)
                yield mark, None
                mark = next(marks, None)
            elif mark is None or point.id < mark.id:
                self._count(None, point)
                yield None, point
                point = next(points, None)
            else:
                self._count(mark, point)
                yield mark, point
                mark, point = next(marks, None), next(points, None)

    def _count(self, mark: Mark | None, point: StoredPoint | None) -> None:
        if mark is not None:
            self.counts.truth[mark.status] += 1
        # A tombstone outlives its memory: the fence needs it.
        if point is not None and (mark is not None or point.status != Status.DELETED.value):
            self.counts.points[point.status] += 1

    def _marks(self) -> Iterator[Mark]:
        after, done = "", 0
        while True:
            with self._truth.reading() as connection:
                page = scanning.marks_after(connection, after, PAGE)
            if not page:
                return
            yield from page
            after = page[-1].id
            done += len(page)
            self._note(done=done)

    def _confirmed(self, ids: Sequence[str]) -> list[Difference]:
        found: list[Difference] = []
        left = list(ids)
        for look in range(_LOOKS):
            if not left:
                return []
            if look:
                self._lease.wait(_FIRST_PAUSE_SECONDS * 2 ** (look - 1))
            with self._truth.reading() as connection:
                marks = scanning.marks(connection, left)
            points = {point.id: point for point in self._store.get(left)}
            found = [
                difference
                for memory_id in left
                if (difference := _difference(marks.get(memory_id), points.get(memory_id))) is not None
            ]
            left = [difference.id for difference in found]
        return found


def repair(comparison: Comparison, truth: Truth, collection: Collection) -> int:
    """Write what is missing or behind, take away what truth does not know; returns how many."""
    mended = 0
    for chunk in comparison.differences():
        orphans = [Tombstone(it.id, it.version) for it in chunk if it.kind is Kind.ORPHAN]
        owed = [it.id for it in chunk if it.kind in (Kind.MISSING, Kind.BEHIND)]
        if orphans:
            collection.store.delete(orphans)
        if owed:
            with truth.reading() as connection:
                entries = scanning.entries(connection, owed)
            project(collection, list(entries.values()))
        mended += len(orphans) + len(owed)
    return mended


def _difference(mark: Mark | None, point: StoredPoint | None) -> Difference | None:
    if mark is None:
        if point is None or point.status == Status.DELETED.value:
            return None
        return Difference(point.id, Kind.ORPHAN, str(point.payload.get(OWNER, "")), point.version)
    if point is None:
        return Difference(mark.id, Kind.MISSING, mark.owner_key, 0)
    if mark.status == Status.DELETED.value:
        gone = point.status == Status.DELETED.value and point.version >= mark.version
        same = gone
    else:
        same = (
            point.version == mark.version and point.status == mark.status and point.payload.get(OWNER) == mark.owner_key
        )
    if same:
        return None
    behind = point.version < mark.version or (mark.status == Status.DELETED.value and point.version == mark.version)
    return Difference(mark.id, Kind.BEHIND if behind else Kind.STRANGE, mark.owner_key, point.version)
