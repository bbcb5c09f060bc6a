"""The resolve stage: the single writer of memories; folds claims into cells, writes versions, events and reviews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection

from processors.exceptions import PoisonError
from processors.resolution import (
    Cell,
    Change,
    Entry,
    Retraction,
    advance,
    cell_key_of,
    slot_key_of,
)
from processors.resolution.reconcile import BEHIND
from processors.resolution.similarity import Nearest, is_sentence
from processors.resolution.spelling import same_value
from schemas import (
    Candidate,
    Cardinality,
    ChangeKind,
    Command,
    CommandKind,
    DeadLetter,
    Memory,
    MemoryUpdated,
    Operation,
    Outcome,
    Status,
    Turn,
    digest,
    new_id,
)
from sinks.sealing.guard import Guard, Named
from sinks.truth import deadletters, ledger, memories, outbox, portable, reviews, turns
from sinks.truth.outbox import Outgoing
from sinks.truth.together import Questions, foresee
from streams.deadletter import dead_letter, letters_out
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.adopting import Adopted, adopted
from streams.stages.commands import claims_of
from streams.stages.erasing import erased
from streams.stages.folding import CellFolder, Touched
from streams.stages.republishing import republished
from streams.stages.reviewing import decided

SLOT_LIMIT = 200
"""Values of one slot that a new sentence is compared with; more than a person's list has, and a bound on the work."""


MAX_ORDER_KEY = 255
_MOVING = (CommandKind.ADOPT, CommandKind.REPUBLISH, CommandKind.ERASE)
_LOOKING = (CommandKind.DECIDE_REVIEW, *_MOVING)
"""Commands whose effect depends on what is there, whatever version they state; what follows a moving one depends on it."""


@dataclass(slots=True)
class _Group:
    now: datetime
    nearest: Nearest
    owners: dict[str, tuple[str, str, str]]
    sequences: dict[str, int]
    fresh: set[str]
    partitions: dict[str, int]
    cells: dict[str, Touched] = field(default_factory=dict)
    claims: list[tuple[Entry, str, str]] = field(default_factory=list)
    slots: dict[str, dict[str, Cell]] = field(default_factory=dict)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    adopted: dict[str, Adopted] = field(default_factory=dict)
    again: list[tuple[Change, str, str]] = field(default_factory=list)
    lifted: list[tuple[Change, str, str]] = field(default_factory=list)
    tombstones: list[tuple[str, str]] = field(default_factory=list)
    erased: list[tuple[str, str, int]] = field(default_factory=list)


class ResolveStage:
    """Candidates and commands in; memories, history, reviews and `memory_updated` out."""

    name = "resolve"

    def __init__(
        self,
        topic: Literal["candidates", "commands"],
        nearest: Nearest,
        metrics: Metrics,
        guard: Guard | None = None,
        *,
        behind: int = BEHIND,
    ) -> None:
        """`guard` None: a replay, which is given what was let in. `behind`: see `reconcile`."""
        self.topic: str = topic
        self._contract: type[Candidate] | type[Command] = Candidate if topic == "candidates" else Command
        self._nearest = nearest
        self._metrics = metrics
        self._guard = guard
        self._folder = CellFolder(metrics, behind=behind)

    def prepare(self, message: Message) -> Candidate | Command:
        """Raises ValueError for anything that is not what the topic holds."""
        return self._contract.from_bytes(message.value or b"")

    def commit(
        self, connection: Connection, group: Sequence[Delivered[Candidate | Command]], now: datetime
    ) -> list[Outgoing]:
        """One transaction, in as many runs as it takes for each stated version to be compared with the state before it."""
        foresee(connection, self._foreseen([item.item for item in group]))
        admitted = self._admitted(connection, group)
        return [message for run in _runs(admitted) for message in self._commit_run(connection, run, now)]

    def _foreseen(self, items: Sequence[Candidate | Command]) -> Questions:
        """What is asked, in this order, for new claims whose cells are their own; all else asks for itself."""
        if self._guard is not None:
            yield from self._guard.foreseen([_named(item) for item in items])
        yield from ledger.locking_owners(item.owner_key for item in items)
        yield from outbox.waiting_for(self.name, {item.owner_key for item in items})
        claims = [item for item in items if isinstance(item, Candidate)]
        if len(claims) < len(items):
            return  # what a command does comes first
        yield from ledger.knowing_claims(claim.candidate_id for claim in claims)
        slots = {slot_key_of(claim) for claim in claims if _looks_around(claim)}
        yield from ledger.looking_into_slots(slots, limit=SLOT_LIMIT)
        yield from ledger.loading_cells(cell_key_of(claim) for claim in claims)
        yield from ledger.retracting(claim.turn_key for claim in claims)

    def _admitted(
        self, connection: Connection, group: Sequence[Delivered[Candidate | Command]]
    ) -> Sequence[Delivered[Candidate | Command]]:
        """Without what was under way when its owner, conversation or turn was erased."""
        if self._guard is None:
            return group
        refused = self._guard.refuses(connection, [_named(item.item) for item in group])
        return [
            item
            for item, gone in zip(group, refused, strict=True)
            if not gone or (isinstance(item.item, Command) and item.item.kind is CommandKind.ERASE)
        ]

    def _commit_run(
        self, connection: Connection, group: Sequence[Delivered[Candidate | Command]], now: datetime
    ) -> list[Outgoing]:
        """The owners' row locks first, so that a worker that was paused and came back cannot interfere."""
        group = self._without_repeated_erasures(connection, group)
        owners = {
            item.item.owner_key: (item.item.tenant, item.item.owner_kind.value, item.item.owner) for item in group
        }
        known_owners = ledger.known_owners(connection, owners)
        work = _Group(
            now,
            self._nearest.afresh(),
            owners,
            dict.fromkeys(owners, 0) | known_owners,
            owners.keys() - known_owners.keys(),
            {item.item.owner_key: item.message.partition for item in group},
        )
        # A process that was paused, or whose COMMIT took its time, may have committed for these owners what it has not
        # sent: it leaves before what follows from it.
        earlier = outbox.take_over(connection, self.name, owners)
        claims = [item.item for item in group if isinstance(item.item, Candidate)]
        claims += self._obey(connection, work, group)
        known = ledger.known_claims(connection, [claim.candidate_id for claim in claims])
        fresh = {claim.candidate_id: claim for claim in claims if claim.candidate_id not in known}
        self._place(connection, work, list(fresh.values()))
        stored = {key: item.cell for key, item in work.adopted.items()}
        changes = work.lifted + self._folder.fold(connection, work.cells, work.claims, stored, now)
        self._mark_turns(connection, work, list(fresh.values()))
        again = [claim for claim in claims if claim.candidate_id in known and claim.decision in ("accept", "mask")]
        turns.remember_again(connection, {claim.turn_key: claim.turn_revision for claim in again})
        gone = {memory_id for memory_id, _owner_key, _version in work.erased}
        return [row for row in earlier if row.key not in gone] + self._publish(connection, work, changes)

    def _without_repeated_erasures(
        self, connection: Connection, group: Sequence[Delivered[Candidate | Command]]
    ) -> Sequence[Delivered[Candidate | Command]]:
        """Locking the owner of one that was carried out, and comes again, would make a row for somebody who is gone."""
        erasures = [
            item.item.command_id
            for item in group
            if isinstance(item.item, Command) and item.item.kind is CommandKind.ERASE
        ]
        done = outbox.seen(connection, self.name, erasures)
        return [item for item in group if not (isinstance(item.item, Command) and item.item.command_id in done)]

    def _obey(
        self, connection: Connection, work: _Group, group: Sequence[Delivered[Candidate | Command]]
    ) -> list[Candidate]:
        """New commands: retractions change what is void, everything else becomes claims of its own."""
        commands: dict[str, Delivered[Candidate | Command]] = {}
        for item in group:
            if isinstance(item.item, Command) and (item.item.command_id not in commands or item.message.redriven):
                commands[item.item.command_id] = item
        refused = {key: _refusal_of(key) for key in commands}
        seen = outbox.seen(connection, self.name, [*commands, *refused.values()])
        # One that was refused is done as well, unless somebody sends it once more after mending what was wrong.
        new = {
            key: item
            for key, item in commands.items()
            if key not in seen and (refused[key] not in seen or item.message.redriven is not None)
        }
        claims: list[Candidate] = []
        received: list[str] = []
        for key, delivered in new.items():
            command = delivered.item
            assert isinstance(command, Command)
            try:
                if command.kind is CommandKind.RETRACT_TURN:
                    self._retract(connection, work, command)
                    received.append(key)
                    continue
                if command.kind is CommandKind.ADOPT:
                    claims += self._adopt(connection, work, command)
                    received.append(key)
                    continue
                if command.kind is CommandKind.ERASE:
                    self._erase(connection, work, command)
                    received.append(key)
                    continue
                if command.kind is CommandKind.REPUBLISH:
                    self._republish(connection, work, command)
                    received.append(key)
                    continue
                decides = command.kind is CommandKind.DECIDE_REVIEW
                made = decided(connection, command) if decides else claims_of(connection, command)
                for retraction in made.retractions:
                    self._retract(connection, work, retraction)
            except (PoisonError, ValueError) as error:
                # What an order means shows only beside the memory it names; a senseless one must not stop the others.
                work.letters.append(dead_letter(self.name, delivered.message, error, work.now))
                self._metrics.dead_letters.labels(self.name, work.letters[-1].reason).inc()
                if refused[key] not in seen:
                    received.append(refused[key])
                continue
            received.append(key)
            claims += made.claims
            work.reviews += made.reviews
        outbox.receive(connection, self.name, received, work.now)
        return claims

    def _adopt(self, connection: Connection, work: _Group, command: Command) -> list[Candidate]:
        """Cells of an export; what has to find its cell here is returned."""
        made = adopted(connection, command, lambda about: self._let_in(connection, about))
        for retraction in made.retractions:
            self._retract(connection, work, retraction)
        work.adopted |= made.cells
        for cell_key, (slot_key, entries) in made.entries.items():
            if not entries:
                continue
            touched = work.cells.setdefault(cell_key, Touched(command.owner_key, slot_key))
            touched.whole = True
            touched.new += entries
            work.claims += [(entry, slot_key, cell_key) for entry in entries]
        return made.claims

    def _let_in(self, connection: Connection, about: Sequence[Candidate | Turn]) -> list[bool]:
        """Which of these may come with an import: what was erased may not."""
        if self._guard is None:
            return [True] * len(about)
        return [not gone for gone in self._guard.refuses(connection, [_named(item) for item in about])]

    def _erase(self, connection: Connection, work: _Group, command: Command) -> None:
        owner_key = command.owner_key
        gone = erased(connection, command)
        work.erased += [(memory_id, owner_key, version) for memory_id, version in gone.tombstones]
        for cell_key, (slot_key, entries) in gone.left.items():
            touched = work.cells.setdefault(cell_key, Touched(owner_key, slot_key))
            touched.whole = True
            touched.new += entries
            work.claims += [(entry, slot_key, cell_key) for entry in entries]
        if gone.whole:
            del work.sequences[owner_key]

    def _republish(self, connection: Connection, work: _Group, command: Command) -> None:
        made = republished(connection, command)
        owner_key = command.owner_key
        # Numbers that replicas have seen are not given out for something else.
        work.sequences[owner_key] = max(work.sequences[owner_key], made.owner_seq)
        work.again += made.again
        work.lifted += made.lifted
        work.tombstones += [(name, owner_key) for name in made.gone]

    def _retract(self, connection: Connection, work: _Group, command: Command) -> None:
        if command.retraction_turn_key is None:
            raise PoisonError("invalid_field", "retract_turn needs retraction_turn_key")
        aim = None
        if command.target_turn_key is not None:
            key = str(command.payload.get("order_key", ""))
            if not 0 < len(key) <= MAX_ORDER_KEY:
                raise PoisonError(
                    "invalid_field", f"retract_turn needs an order_key of 1 to {MAX_ORDER_KEY} characters"
                )
            aim = Retraction(key, command.target_turn_key, command.below_revision)
        before = ledger.save_retraction(connection, command.retraction_turn_key, command.owner_key, aim)
        if before is not None and before != command.target_turn_key:
            work.given_back.append(before)
        targets = {key for key in (before, command.target_turn_key) if key is not None}
        for cell_key, (owner_key, slot_key) in ledger.cells_of_turns(connection, targets).items():
            # A turn holds its own speaker's claims only; a crafted command must not reach another owner's cells.
            if owner_key == command.owner_key:
                work.cells.setdefault(cell_key, Touched(owner_key, slot_key)).aimed_at |= targets

    def _place(self, connection: Connection, work: _Group, claims: list[Candidate]) -> None:
        """Find each claim's cell: its own, or the one of a value it repeats in other words."""
        wanted = {slot_key_of(claim) for claim in claims if _looks_around(claim)}
        work.slots = ledger.cells_of_slots(connection, wanted, limit=SLOT_LIMIT)
        for claim in sorted(claims, key=lambda item: Entry.of(item).key):
            slot = slot_key_of(claim)
            for position, cell_key in enumerate(self._cells_for(work, claim, slot)):
                copy = claim
                if position:
                    copy = claim.model_copy(update={"candidate_id": new_id(claim.candidate_id, cell_key)})
                entry = Entry.of(copy)
                work.claims.append((entry, slot, cell_key))
                work.cells.setdefault(cell_key, Touched(claim.owner_key, slot)).new.append(entry)

    def _cells_for(self, work: _Group, claim: Candidate, slot: str) -> list[str]:
        own = cell_key_of(claim)
        if claim.cardinality is Cardinality.SINGLE:
            return [own]
        cells = work.slots.setdefault(slot, {})
        if claim.operation is Operation.CLEAR:
            return list(cells) or [own]
        if own in cells:
            return [own]
        if claim.operation is not Operation.ASSERT:
            active = [
                key
                for key, cell in cells.items()
                for memory in cell.memories.values()
                if memory.status is Status.ACTIVE and _names(claim.value, memory.value)
            ]
            return [active[0]] if len(active) == 1 else [own]
        if is_sentence(claim.category) and claim.decision in ("accept", "mask"):
            stored = [
                (key, memory)
                for key, cell in cells.items()
                for memory in cell.memories.values()
                if memory.status is Status.ACTIVE
            ]
            found = work.nearest.find(claim, stored)
            if found is not None and found.same:
                return [found.cell_key]
            if found is not None:
                work.reviews.append(_potential(claim, found.memory, found.similarity))
        preview = Cell()
        advanced = advance(preview, [Entry.of(claim)])
        cells[own] = advanced[0] if advanced else preview
        return [own]

    def _mark_turns(self, connection: Connection, work: _Group, claims: list[Candidate]) -> None:
        if work.given_back:
            turns.give_back(connection, work.given_back, work.now)
        held = [claim.turn_key for claim in claims if claim.decision in ("accept", "mask")]
        turns.mark(connection, held, Outcome.REMEMBERED)

    def _publish(self, connection: Connection, work: _Group, changes: list[tuple[Change, str, str]]) -> list[Outgoing]:
        latest: dict[str, tuple[Memory, str, str]] = {}
        events: list[MemoryUpdated] = []
        out = [
            Outgoing("memory_updated", name, owner_key, None, work.partitions[owner_key], version=version)
            for name, owner_key, version in work.erased
        ]
        as_it_was = [(change, item.slot_key, key) for key, item in work.adopted.items() for change in item.changes()]
        for change, slot_key, cell_key in [*as_it_was, *work.again, *changes]:
            memory = change.memory
            latest[memory.id] = (memory, slot_key, cell_key)
            owner_key = memory.owner_key
            work.sequences[owner_key] += 1
            event = MemoryUpdated(
                event_id=f"{memory.id}:{memory.version}",
                change=change.change,
                memory=memory,
                owner_seq=work.sequences[owner_key],
                cause=change.cause,
                cause_turn_ids=change.turn_ids,
                replaces=change.replaces,
                occurred_at=work.now,
            )
            events.append(event)
            partition = work.partitions[owner_key]
            out.append(Outgoing("memory_updated", memory.id, owner_key, event.to_bytes(), partition, memory=memory))
            if memory.status is Status.DELETED:
                out.append(Outgoing("memory_updated", memory.id, owner_key, None, partition, version=memory.version))
            if change.change is ChangeKind.QUARANTINED and not _is_asked(connection, change):
                work.reviews.append(_question(change))
            self._metrics.changes.labels(change.change.value).inc()
        out += [
            Outgoing("memory_updated", name, owner_key, None, work.partitions[owner_key])
            for name, owner_key in work.tombstones
        ]
        memories.save(connection, latest.values())
        for item in work.adopted.values():
            portable.keep_history(connection, item.versions)
        memories.append_versions(connection, [change for change, _slot, _cell in changes], work.now, events=events)
        memories.open_reviews(connection, work.reviews, work.now)
        ledger.save_sequences(connection, work.owners, work.sequences, fresh=work.fresh)
        return out + letters_out(deadletters.put(connection, work.letters))


def _runs(group: Sequence[Delivered[Candidate | Command]]) -> Iterator[list[Delivered[Candidate | Command]]]:
    """Cut the group before each command that looks at what an earlier message of the same owner may have changed.

    Two agents that both saw version 1 and whose commands arrive together must not both find it still there. So does part
    of an export: which of its cells are here already depends on what came before it.
    """
    run: list[Delivered[Candidate | Command]] = []
    owners, moved = set[str](), set[str]()
    for delivered in group:
        item = delivered.item
        looks = isinstance(item, Command) and (item.expected_version is not None or item.kind in _LOOKING)
        if (looks and item.owner_key in owners) or item.owner_key in moved:
            yield run
            run, owners, moved = [], set(), set()
        run.append(delivered)
        owners.add(item.owner_key)
        if isinstance(item, Command) and item.kind in _MOVING:
            moved.add(item.owner_key)
    if run:
        yield run


def _named(item: Candidate | Command | Turn) -> Named:
    if isinstance(item, Command):
        return Named(item.tenant, item.owner_key)
    return Named(item.tenant, item.owner_key, digest(item.tenant, item.conversation_id), item.turn_key)


def _refusal_of(command_id: str) -> str:
    """The inbox's name for a command that meant nothing when it came."""
    return digest("refused", command_id)


def _looks_around(claim: Candidate) -> bool:
    """Whether it depends on what else is in its slot, where that can be."""
    alone = claim.cardinality is Cardinality.SINGLE
    return not alone and (claim.operation is not Operation.ASSERT or is_sentence(claim.category))


def _names(said: str, stored: str) -> bool:
    """Whether the words of an ending ("I don't drink coffee any more") mean a stored value ("coffee in the morning")."""
    return same_value(said, stored) or (len(said) >= 2 and (said in stored or stored in said))


def _potential(claim: Candidate, memory: Memory, similarity: float) -> dict[str, Any]:
    return {
        "kind": "potential",
        "owner_key": claim.owner_key,
        "memory_id": memory.id,
        "candidate_id": claim.candidate_id,
        "detail": f"similar ({similarity:.2f}) to a stored memory; both are kept",
    }


def _is_asked(connection: Connection, change: Change) -> bool:
    """A memory that an undone answer locked up again: its question was opened again with it."""
    return change.cause.startswith("retraction:") and reviews.is_open(connection, change.memory.id)


def _question(change: Change) -> dict[str, Any]:
    memory = change.memory
    kind = "quarantine" if memory.status is Status.QUARANTINED else "conflict"
    if memory.audit.decision == "review":
        kind = "review"
    return {
        "kind": kind,
        "owner_key": memory.owner_key,
        "memory_id": memory.id,
        "candidate_id": change.cause if len(change.cause) <= 36 else digest(change.cause),
        "detail": " ".join(memory.audit.reasons) or "a weaker claim contradicts what is known",
    }
