"""Resolution, the fold: one claim at a time, in ledger order, onto the state of a cell. Pure and total."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from processors.resolution.cell import Cell, Checkpoint, memory_id_of
from processors.resolution.content import CREDIBILITY, began, created, renewed
from processors.resolution.entry import Entry, Retraction
from processors.resolution.spelling import Spellings, same_value
from processors.slots import value_key
from schemas import (
    Candidate,
    Cardinality,
    ChangeKind,
    Channel,
    Interval,
    Memory,
    Operation,
    Status,
)

# A claim below LOW does not unseat a memory at or above HIGH; between them the newer statement wins (SPEC W9).
LOW_CONFIDENCE = 0.7
HIGH_CONFIDENCE = 0.8

# A claim of the model is late by the few turns that its batch waited for, in a short slot as in a long one. The longer the
# slot, the dearer is a fold of all of it, and the later a claim may be without one.
_LEAST_BEHIND = 8
_SHARE_BEHIND = 8


def behind_of(entries: int, most: int) -> int:
    """How many of the last entries a checkpoint of a slot with so many leaves out: an eighth, but 8 to `most`."""
    return min(most, max(_LEAST_BEHIND, entries // _SHARE_BEHIND))


@dataclass(frozen=True, slots=True)
class Step:
    """One version of one memory: its new state, what kind of change it was and what caused it."""

    memory: Memory
    change: ChangeKind
    cause: str
    turn_ids: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


class Folding:
    """A cell while claims are folded onto it, with what makes the work of one claim independent of how much is there.

    Nobody else may change the cell meanwhile; `finish` writes the counts back.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.entries = 0
        self._begin()

    def _begin(self) -> None:
        memories = self.cell.memories
        self._spellings: Spellings | None = None
        self._active = {rep for rep, held in memories.held() if held.status is Status.ACTIVE}
        # What makes a count of the number of entries: all counts grow with each, and so none has to be touched.
        self._counts = {rep: self.cell.counts.get(rep, 0) - self.entries for rep in memories}
        self._before: dict[str, Memory | None] = {}

    def put(self, rep: str, memory: Memory) -> Memory:
        """Hold new content under `rep`, at the version of what is there; `number` counts. Returns it as it is held."""
        previous = self.cell.memories.get(rep)
        if previous is not None:
            memory = memory.model_copy(update={"version": previous.version})
        self._before.setdefault(rep, previous)
        self.cell.memories[rep] = memory
        (self._active.add if memory.status is Status.ACTIVE else self._active.discard)(rep)
        if self._spellings is not None and (previous is None or previous.value != memory.value):
            self._spellings.add(rep, memory.value)
        return memory

    def replace(self, other: Cell, first: Mapping[str, int], changed: Collection[str]) -> None:
        """Go on with the content of another cell, which differs in the memories that are `changed`.

        `first` says for each memory of the other cell with which entry, of those here, its first claim came: if it is new
        here, it counts from there, as it would have if what hid it had never been said.
        """
        before = self.cell.memories
        self.finish()
        self.cell.memories, self.cell.current = other.memories, other.current
        kept = {key: rep for key, rep in self.cell.aliases.items() if key not in other.memories}
        self.cell.aliases = kept | other.aliases
        self._begin()
        self._counts |= {rep: 1 - number for rep, number in first.items() if rep not in before}
        self._before = {rep: before.get(rep) for rep in changed}

    def _age(self, rep: str) -> tuple[datetime, str]:
        # By what was said, not by the order in the cell: that of a stored one is the alphabet's.
        return self.cell.memories[rep].first_stated_at, rep

    def oldest(self) -> str | None:
        """The memory that was told first."""
        return min(self.cell.memories, key=self._age, default=None)

    def named(self, value: str) -> str | None:
        """The oldest memory whose value is the same as this one in other letters."""
        memories = self.cell.memories
        if self._spellings is None:
            self._spellings = Spellings()
            for rep, held in memories.held():
                self._spellings.add(rep, held.value)
        found = [rep for rep in self._spellings.like(value) if same_value(memories[rep].value, value)]
        return min(found, key=self._age, default=None)

    def number(self, steps: list[Step], cause: str) -> list[Step]:
        """Give each step since the last call its version.

        A memory's count is the number of entries (claims of any value in the cell, and retractions that void one) from its
        own first claim on. The count depends on the set of entries and not on their arrival, and it grows with every entry
        that can change the memory; so the version of an active memory *is* its count, and shuffled delivery ends at the
        same version. One that is not active takes its count when its content changes, and rests in between.
        """
        self.entries += 1
        by_id = {step.memory.id: step for step in steps}
        numbered: list[Step] = []
        for rep in sorted(self._active | self._before.keys(), key=self._age):
            memory = self.cell.memories[rep]
            count = self._counts.setdefault(rep, 1 - self.entries) + self.entries
            step = by_id.get(memory.id)
            if step is None and (memory.status is not Status.ACTIVE or memory.version >= count):
                continue
            # One that was retired and is said again goes on where it was: its versions are known outside.
            earlier = self._before.get(rep, memory) or self.cell.retired.pop(memory.id, None)
            memory = memory.model_copy(
                update={"version": max(count, earlier.version + 1 if earlier is not None else 1)}
            )
            self.cell.memories[rep] = memory
            numbered.append(replace(step, memory=memory) if step else Step(memory, ChangeKind.UPDATED, cause))
        self._before.clear()
        return numbered

    def apply(self, entry: Entry) -> list[Step]:
        """Fold one claim and return the versions it makes, in order."""
        steps = _fold(self, entry.claim)
        self.cell.last_key = max(self.cell.last_key, entry.key)
        return self.number(steps, entry.claim.candidate_id)

    def finish(self) -> Cell:
        """The cell, with its counts."""
        self.cell.counts |= {rep: count + self.entries for rep, count in self._counts.items()}
        return self.cell


class Simulation:
    """The cell as it would be had everything arrived in the order in which it was said.

    A retraction takes effect at its own place in the order: what its target caused is undone there, and the versions
    count on. The result depends on the set of entries only.
    """

    def __init__(self, start: Checkpoint | None = None, published: Mapping[str, int] | None = None) -> None:
        """`start`: go on from there. Of a memory in `published` only steps above that version are kept."""
        self.steps: list[Step] = []
        self.causes = dict(start.causes) if start is not None else {}
        self.checkpoint = start
        self._start = start
        # Claims of the ledger in front of it.
        self._earlier = start.entries if start is not None else 0
        self._published = published or {}
        self._work = Folding(start.cell.copy() if start is not None else Cell())
        self._done: list[tuple[int, Entry]] = []
        self._active: list[Retraction] = []
        self._taken_back = start is not None and start.valid is not None

    def run(self, entries: Iterable[Entry], retractions: Iterable[Retraction], *, behind: int | None = None) -> Cell:
        """Fold them all.

        A checkpoint is made `behind_of` entries before the end, with `behind` as the most, when there are twice as many.
        Retractions that aim at what came before the start are for a simulation without one.
        """
        ordered = sorted(entries, key=lambda entry: entry.key)
        # Two at one moment have an order too, whichever came first.
        pending = sorted(retractions, key=lambda retraction: (retraction.key, retraction.target_turn_key))
        mark = None
        if behind is not None:
            left_out = behind_of(self._earlier + len(ordered), behind)
            mark = len(ordered) - left_out if len(ordered) >= 2 * left_out else None
        cell = self._work.cell
        for place, entry in enumerate(ordered):
            if place == mark:
                self._mark(pending)
            while pending and pending[0].key <= entry.key:
                self._take_back(pending.pop(0))
            self._done.append((self._work.entries + 1, entry))
            if self._is_void(entry):
                self._taken_back = True
                self._note(self._work.number([], entry.claim.candidate_id))
            else:
                self._note(self._work.apply(entry))
            cell.last_key = entry.key
        for retraction in pending:
            self._take_back(retraction)
        if self._active:
            # A retraction counts for every memory that is older. A claim that belongs before it must not be folded behind it.
            cell.last_key = max(cell.last_key, self._active[-1].key)
        return self._work.finish()

    def _note(self, steps: Iterable[Step]) -> None:
        for step in steps:
            memory = step.memory
            self.causes[memory.id] = step.cause
            if memory.version > self._published.get(memory.id, 0):
                self.steps.append(step)

    def _is_void(self, entry: Entry) -> bool:
        return any(retraction.voids(entry.claim) for retraction in self._active)

    def _mark(self, pending: Sequence[Retraction]) -> None:
        """Nothing that is taken back later may be part of a checkpoint: it is not made, or stays where it was."""
        if any(retraction.voids(entry.claim) for retraction in pending for _number, entry in self._done):
            return
        valid, first = self._valid() if self._taken_back else (None, dict[str, int]())
        cell = self._work.finish().copy()
        entries = self._work.entries
        self.checkpoint = Checkpoint(
            cell,
            dict(self.causes),
            valid,
            {rep: number - entries for rep, number in first.items() if rep not in cell.memories},
            self._earlier + len(self._done),
        )

    def _valid(self) -> tuple[Cell, dict[str, int]]:
        """The fold of what is still valid, and with which entry each of its memories came."""
        start = self._start
        valid = Folding((start.valid or start.cell).copy() if start is not None else Cell())
        first = dict(start.first) if start is not None else {}
        fresh = valid.cell
        seen = len(fresh.memories)
        for number, entry in self._done:
            if not self._is_void(entry):
                _fold(valid, entry.claim)
                first |= dict.fromkeys(islice(fresh.memories, seen, None), number)
                seen = len(fresh.memories)
        return fresh, first

    def _take_back(self, last: Retraction) -> None:
        """Replace the cell's state by the fold of what is still valid; each memory that differs gets its next version."""
        self._active.append(last)
        if not any(last.voids(entry.claim) for _number, entry in self._done):
            return
        self._taken_back = True
        work, before = self._work, self._work.cell.memories
        fresh, first = self._valid()
        cause = f"retraction:{last.target_turn_key}"
        steps: list[Step] = []
        changed: list[str] = []
        for rep, held in before.held():
            right = fresh.memories.get_held(rep)
            if right is not None and right.agrees_with(held):
                fresh.memories.hold(rep, held)
                continue
            old = held.memory
            if right is None:
                gone = {"status": Status.RETRACTED, "intervals": (), "superseded_by": None}
                new = old if old.status is Status.RETRACTED else old.model_copy(update=gone)
            else:
                new = right.at(old.version).memory
            fresh.memories[rep] = new
            if new == old:
                continue
            back = new.status is Status.ACTIVE and old.status is not Status.ACTIVE
            gone_now = new.status is Status.RETRACTED
            kind = ChangeKind.RESTORED if back else ChangeKind.DELETED if gone_now else ChangeKind.UPDATED
            steps.append(Step(new, kind, cause))
            changed.append(rep)
        # A spelling of what was taken back may have been said before it was; now it stands for itself.
        added = [rep for rep in fresh.memories if rep not in before]
        steps += [Step(fresh.memories[rep], ChangeKind.CREATED, cause) for rep in added]
        work.replace(fresh, first, [*changed, *added])
        self._note(work.number(steps, cause))


def simulate(entries: Iterable[Entry], retractions: Sequence[Retraction]) -> tuple[Cell, list[Step]]:
    """A whole ledger as it should have been: the cell, and every version of every memory."""
    simulation = Simulation()
    cell = simulation.run(entries, retractions)
    return cell, simulation.steps


def _fold(work: Folding, claim: Candidate) -> list[Step]:
    """The new content, at the old versions; `number` counts."""
    match claim.operation:
        case Operation.ASSERT:
            return _assert(work, claim)
        case Operation.CONFIRM:
            return _confirm(work, claim)
        case Operation.CLEAR:
            return [step for rep in list(work.cell.memories) for step in _close(work, rep, claim, Status.SUPERSEDED)]
        case Operation.END:
            return _close(work, _target(work, claim), claim, Status.SUPERSEDED)
        case Operation.EXPIRE:
            return _expire(work, _target(work, claim), claim)
        case Operation.DEMOTE:
            return _set_status(work, _target(work, claim), claim, Status.DEMOTED, ChangeKind.UPDATED)
        case Operation.DELETE:
            return _delete(work, _target(work, claim), claim)


def _target(work: Folding, claim: Candidate) -> str | None:
    if not claim.value:
        # "I don't live there any more" means what holds; an order names a memory, and must not fall upon another one.
        return work.cell.current if claim.channel is not Channel.COMMAND else None
    rep = work.cell.representative(claim.value)
    if rep in work.cell.memories:
        return rep
    if claim.cardinality is Cardinality.MULTI and len(work.cell.memories) == 1:
        return next(iter(work.cell.memories))
    return None


def _representative(work: Folding, claim: Candidate) -> str:
    """The key under which the claim's value is kept; a near-identical spelling joins the one that came first."""
    key = value_key(claim.value)
    rep = work.cell.aliases.get(key, key)
    if rep in work.cell.memories:
        return rep
    multi = claim.cardinality is Cardinality.MULTI
    other = work.oldest() if multi else work.named(claim.value)
    if other is None:
        return key
    work.cell.aliases[key] = other
    return other


def _assert(work: Folding, claim: Candidate) -> list[Step]:
    rep = _representative(work, claim)
    existing = work.cell.memories.get(rep)
    if claim.decision in ("quarantine", "review"):
        if existing is not None:
            return []
        status = Status.QUARANTINED if claim.decision == "quarantine" else Status.PENDING
        return _put(work, rep, created(claim, rep, status), ChangeKind.QUARANTINED, claim)
    if claim.cardinality is Cardinality.MULTI:
        return _hold(work, rep, claim)
    if claim.valid_to is not None and claim.valid_to <= claim.stated_at:
        return _history(work, rep, claim)
    holder = work.cell.memories.get(work.cell.current) if work.cell.current is not None else None
    if holder is None or work.cell.current == rep:
        return _hold(work, rep, claim)
    if _is_weaker(claim, holder) or claim.event_time > claim.stated_at:
        if existing is not None and existing.status is not Status.RETRACTED:
            return []
        return _put(work, rep, created(claim, rep, Status.PENDING), ChangeKind.QUARANTINED, claim)
    winner = memory_id_of(claim, rep)
    steps = _close(work, work.cell.current, claim, Status.SUPERSEDED, by=winner)
    return steps + _hold(work, rep, claim, supersedes=holder.id)


def _is_weaker(claim: Candidate, holder: Memory) -> bool:
    if CREDIBILITY[claim.source_kind] < CREDIBILITY[holder.source_kind]:
        return True
    return claim.confidence < LOW_CONFIDENCE and holder.confidence >= HIGH_CONFIDENCE


def _hold(work: Folding, rep: str, claim: Candidate, *, supersedes: str | None = None) -> list[Step]:
    """The value holds from the claim on: a new memory, one more confirmation, or one more interval.

    What it supersedes is said by the event and by the older memory's `superseded_by`; were it part of this memory, its
    version would depend on when the older one became known.
    """
    replaces = (supersedes,) if supersedes else ()
    if claim.cardinality is Cardinality.SINGLE:
        work.cell.current = rep
    existing = work.cell.memories.get(rep)
    said_anew = claim.operation is Operation.ASSERT and existing is not None and existing.status is Status.RETRACTED
    if existing is None or said_anew:
        # What was taken back is no evidence for what is said now; its identity and its versions go on.
        kind = ChangeKind.CREATED if existing is None else ChangeKind.RESTORED
        return _put(work, rep, created(claim, rep, Status.ACTIVE), kind, claim, replaces)
    again = renewed(existing, claim)
    if existing.status is Status.ACTIVE:
        changed = any(getattr(existing, name) != getattr(again, name) for name in ("text", "value", "expires_at"))
        kind = ChangeKind.UPDATED if changed else ChangeKind.CONFIRMED
    else:
        kind = ChangeKind.RESTORED
    return _put(work, rep, again, kind, claim, replaces)


def _history(work: Folding, rep: str, claim: Candidate) -> list[Step]:
    """A statement about the past: kept as history, never current."""
    if rep in work.cell.memories:
        return []
    past = Interval(start=began(claim), end=claim.valid_to)
    memory = created(claim, rep, Status.SUPERSEDED).model_copy(update={"intervals": (past,)})
    return _put(work, rep, memory, ChangeKind.SUPERSEDED, claim)


def _confirm(work: Folding, claim: Candidate) -> list[Step]:
    """A person or an agent says that it is so: a pending or quarantined memory becomes active."""
    rep = _target(work, claim)
    if rep is None:
        return []
    memory = work.cell.memories[rep]
    if memory.status is Status.DELETED:
        return []
    if claim.cardinality is Cardinality.SINGLE and work.cell.current not in (None, rep):
        steps = _close(work, work.cell.current, claim, Status.SUPERSEDED, by=memory.id)
        return steps + _hold(work, rep, claim, supersedes=steps[0].memory.id if steps else None)
    return _hold(work, rep, claim)


def _close(work: Folding, rep: str | None, claim: Candidate, status: Status, *, by: str | None = None) -> list[Step]:
    held = work.cell.memories.get_held(rep) if rep is not None else None
    if held is None or rep is None or held.status not in (Status.ACTIVE, Status.DEMOTED):
        return []
    memory = held.memory
    end = min(claim.event_time, claim.stated_at)
    intervals = memory.intervals
    if intervals and intervals[-1].end is None:
        start = intervals[-1].start
        intervals = (*intervals[:-1], Interval(start=start, end=max(start, end)))
    if work.cell.current == rep:
        work.cell.current = None
    update = {"status": status, "intervals": intervals, "superseded_by": by}
    kind = ChangeKind.EXPIRED if status is Status.EXPIRED else ChangeKind.SUPERSEDED
    return _put(work, rep, memory.model_copy(update=update), kind, claim)


def _expire(work: Folding, rep: str | None, claim: Candidate) -> list[Step]:
    """The clock saw its end come. By what is known now it may have been said again before that, and run longer."""
    memory = work.cell.memories.get(rep) if rep is not None else None
    if memory is not None and memory.expires_at is not None and memory.expires_at > claim.event_time:
        return []
    return _close(work, rep, claim, Status.EXPIRED)


def _set_status(work: Folding, rep: str | None, claim: Candidate, status: Status, kind: ChangeKind) -> list[Step]:
    memory = work.cell.memories.get(rep) if rep is not None else None
    if memory is None or rep is None or memory.status is not Status.ACTIVE:
        return []
    return _put(work, rep, memory.model_copy(update={"status": status}), kind, claim)


def _delete(work: Folding, rep: str | None, claim: Candidate) -> list[Step]:
    """Content goes, identity and version stay, so that nothing late can bring it back under the same id."""
    memory = work.cell.memories.get(rep) if rep is not None else None
    if memory is None or rep is None or memory.status is Status.DELETED:
        return []
    if work.cell.current == rep:
        work.cell.current = None
    update = {"status": Status.DELETED, "text": "", "value": "", "evidence": (), "provenance": {}, "intervals": ()}
    return _put(work, rep, memory.model_copy(update=update), ChangeKind.DELETED, claim)


def _put(
    work: Folding, rep: str, memory: Memory, change: ChangeKind, claim: Candidate, replaces: tuple[str, ...] = ()
) -> list[Step]:
    return [Step(work.put(rep, memory), change, claim.candidate_id, claim.source_turn_ids, replaces)]
