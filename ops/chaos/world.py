"""Chaos, the expectation: what must be left of a log, worked out from its meaning by a few plain rules.

Independent of memriver's own resolver on purpose: no code of `processors.resolution` is used. The load is restricted
(`talk.py`) so that these rules are enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ops.chaos.lines import Kind, Line
from ops.chaos.talk import UNKNOWN_MEMORY, memory_id
from schemas import Turn

Key = tuple[str, str, str]
"""Owner, attribute, value."""

_SINGLE = frozenset({"residence"})
_ORDERS = (Kind.CONFIRM, Kind.FORGET, Kind.DELETE)


@dataclass(frozen=True, slots=True)
class Expected:
    """One memory. `version`, `evidence`: None where they depend on what overtook what; a memory that rests has no fixed count.

    `optional`: it may also never have come to be, since it was taken back before the model saw it.
    """

    status: str
    version: int | None = None
    evidence: int | None = None
    optional: bool = False


@dataclass(slots=True)
class World:
    """What must be left. Outcomes are (outcome, reason) by turn key; `places` are those of messages nobody can process.

    `spoken`: every turn in each of its revisions as memriver writes it, and its name for people.
    """

    memories: dict[str, Expected] = field(default_factory=dict)
    names: dict[str, Key] = field(default_factory=dict)
    outcomes: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    spoken: dict[bytes, str] = field(default_factory=dict)
    commands: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    messages: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something that a cell counts: a claim, or the taking back of one."""

    at: tuple[int, int]
    kind: Kind
    value: str
    source: str
    revision: int = 0
    below: int | None = None

    def voids(self, other: _Entry) -> bool:
        takes = self.kind in (Kind.RETRACT, Kind.UNSAY) and other.kind is Kind.STATE and other.source == self.source
        return takes and (self.below is None or other.revision < self.below)


def expected(log: Iterable[tuple[str, Line]]) -> World:
    """From every message that is in the log, with its place there, in the order of each partition."""
    world = World()
    seen: set[bytes] = set()
    lines: list[Line] = []
    loose: set[str] = set()
    for place, line in log:
        world.messages += 1
        if line.resent:
            loose.add(line.owner)
        if line.kind is Kind.JUNK and line.reason != UNKNOWN_MEMORY:
            world.places.add(place)
        elif line.raw in seen:
            world.duplicates += 1
        elif line.kind is Kind.JUNK:
            seen.add(line.raw)
            world.places.add(place)
        else:
            seen.add(line.raw)
            lines.append(line)
    targets = _targets(lines)
    _outcomes(world, lines, targets)
    for line in lines:
        if line.is_turn:
            name = f"{line.conversation}/{line.turn_id}, revision {line.revision}"
            world.spoken[Turn.from_bytes(line.raw).to_bytes()] = name
    for (owner, attribute, value), entries in _cells(lines, targets).items():
        _remember(world, owner, attribute, value, entries, loose=owner in loose)
    world.commands = {line.command_id for line in lines if line.kind in _ORDERS}
    return world


def _targets(lines: Sequence[Line]) -> dict[str, Line]:
    """Which turn each "scratch that" takes back: the nearest earlier one of its speaker that takes nothing back itself."""
    said: dict[str, dict[str, Line]] = defaultdict(dict)
    for line in lines:
        if line.is_turn and line.role == "user" and line.revision == 0:
            said[line.conversation][line.turn_id] = line
    found: dict[str, Line] = {}
    for turns in said.values():
        last: Line | None = None
        for line in sorted(turns.values(), key=lambda item: item.at):
            if line.kind is not Kind.RETRACT:
                last = line
            elif last is not None:
                found[line.turn_key] = last
    return found


def _outcomes(world: World, lines: Sequence[Line], targets: dict[str, Line]) -> None:
    latest: dict[str, Line] = {}
    for line in lines:
        if line.is_turn and (line.turn_key not in latest or latest[line.turn_key].revision < line.revision):
            latest[line.turn_key] = line
    taken_back = {line.turn_key for line in targets.values()}
    for key, line in latest.items():
        world.revisions[key] = line.revision
        if line.kind is Kind.UNSAY:
            world.outcomes[key] = ("filtered", "deleted")
        elif key in taken_back:
            world.outcomes[key] = ("filtered", "retracted")
        elif line.kind is Kind.RETRACT:
            world.outcomes[key] = ("filtered", "retraction")
        elif line.kind is Kind.NOISE:
            world.outcomes[key] = ("filtered", line.reason)
        elif line.kind is Kind.STATE:
            world.outcomes[key] = ("remembered", None)
        else:
            world.outcomes[key] = ("extracted", None)
    spoken: dict[str, list[Line]] = defaultdict(list)
    for line in latest.values():
        spoken[line.conversation_key].append(line)
    for conversation, turns in spoken.items():
        world.sessions[conversation] = [(line.turn_id, line.text) for line in sorted(turns, key=lambda item: item.at)]
    stated: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.kind is Kind.STATE:
            stated[line.turn_key].append(line)
    for key in latest:
        made = stated.get(key, [])
        # The model may not have been asked about what was taken back in time.
        least = sum(line.channel == "rule" or key not in taken_back for line in made)
        world.claims[key] = (least, len(made))


def _cells(lines: Sequence[Line], targets: dict[str, Line]) -> dict[Key, list[_Entry]]:
    """What each cell counts: all values of a slot that holds one, each value of a slot that holds many (value "" and not)."""
    cells: dict[Key, list[_Entry]] = defaultdict(list)
    touched: dict[str, set[Key]] = defaultdict(set)
    for line in lines:
        if line.kind not in (Kind.STATE, *_ORDERS):
            continue
        key = (line.owner, line.attribute, "" if line.attribute in _SINGLE else line.value)
        source = line.turn_key if line.kind is Kind.STATE else line.command_id
        cells[key].append(_Entry((line.at, 0), line.kind, line.value, source, line.revision))
        touched[source].add(key)
    for line in lines:
        if line.kind is Kind.RETRACT and line.turn_key in targets:
            target, entry_at, below = targets[line.turn_key].turn_key, (line.at, 1), None
        elif line.is_turn and line.revision > 0 and line.edited_at is not None:
            target, entry_at = line.turn_key, (line.edited_at, 1)
            below = None if line.kind is Kind.UNSAY else line.revision
        else:
            continue
        kind = Kind.RETRACT if line.kind is Kind.RETRACT else Kind.UNSAY
        for key in touched[target]:
            cells[key].append(_Entry(entry_at, kind, "", target, below=below))
    return cells


def _remember(world: World, owner: str, attribute: str, value: str, entries: list[_Entry], *, loose: bool) -> None:
    ordered = sorted(entries, key=lambda entry: entry.at)
    voids = [entry for entry in ordered if entry.kind in (Kind.RETRACT, Kind.UNSAY)]
    claims = [entry for entry in ordered if entry not in voids]
    counting = [entry for entry in ordered if entry not in voids or any(entry.voids(claim) for claim in claims)]
    standing = _fold([claim for claim in claims if not any(void.voids(claim) for void in voids)], single=not value)
    for said in dict.fromkeys(claim.value for claim in claims):
        identity = memory_id(owner, attribute, said)
        world.names[identity] = (owner, attribute, said)
        status, evidence = standing.get(said, ("retracted", 0))
        first = min(claim.at for claim in claims if claim.value == said)
        version = sum(entry.at >= first for entry in counting)
        # A turn and its edit were said at one moment: which of the two counts from which is for their ids to decide.
        alone = not any(claim.at == first and claim.value != said for claim in claims)
        fixed = status == "active" and alone and not loose
        # One that the model finds and its speaker takes back may be taken back before the model is asked.
        optional = status == "retracted" and attribute == "likes"
        world.memories[identity] = Expected(
            status, version if fixed else None, evidence if fixed and not voids else None, optional
        )


def _fold(claims: Sequence[_Entry], *, single: bool) -> dict[str, tuple[str, int]]:
    """(status, pieces of evidence) of each value after these claims."""
    state: dict[str, tuple[str, int]] = {}
    for claim in claims:
        status, evidence = state.get(claim.value, ("", 0))
        if claim.kind is Kind.STATE or (claim.kind is Kind.CONFIRM and status):
            if single:
                state = {key: ("superseded" if held == "active" else held, n) for key, (held, n) in state.items()}
            state[claim.value] = ("active", evidence + 1)
        elif claim.kind is Kind.FORGET and status == "active":
            state[claim.value] = ("superseded", evidence)
        elif claim.kind is Kind.DELETE and status:
            state[claim.value] = ("deleted", evidence)
    return state
