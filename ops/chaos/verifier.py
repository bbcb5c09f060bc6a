"""Chaos, the verdict: invariants by name, each held against what a run left; a violation comes with its evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ops.chaos.found import Found
from ops.chaos.lines import Line
from ops.chaos.world import World, expected
from schemas import MemoryUpdated, Turn

EVIDENCE = 5
"""Cases shown of one violation; `count` says how many there are."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, how often, and the first cases of it."""

    invariant: str
    count: int
    evidence: tuple[str, ...]


def verify(lines: Sequence[Line], acknowledged: Iterable[bytes], found: Found) -> list[Violation]:
    """Everything that is wrong with what is left of this log.

    Args:
        lines: all that was produced, acknowledged by the broker or not.
        acknowledged: the bytes of those that the broker said it has.
    """
    by_raw = {line.raw: line for line in lines}
    by_raw |= {line.raw: line for line in lines if line.resent}
    world = expected((place, by_raw[raw]) for place, raw in found.log if raw in by_raw)
    case = _Case(world, found, by_raw, frozenset(acknowledged))
    violations = []
    for name, check in INVARIANTS.items():
        wrong = list(check(case))
        if wrong:
            violations.append(Violation(name, len(wrong), tuple(wrong[:EVIDENCE])))
    return violations


@dataclass(frozen=True, slots=True)
class _Case:
    world: World
    found: Found
    by_raw: dict[bytes, Line]
    acknowledged: frozenset[bytes]

    def named(self, identity: str) -> str:
        """A memory as a person would look for it."""
        return f"{identity} {'/'.join(self.world.names.get(identity, ('unknown',)))}"


def _log_is_whole(case: _Case) -> Iterator[str]:
    there = {raw for _place, raw in case.found.log}
    for raw in case.acknowledged - there:
        yield f"acknowledged by the broker and not in the log: {_line(case.by_raw[raw])}"
    for place, raw in case.found.log:
        if raw not in case.by_raw:
            yield f"{place}: nobody produced this message"


def _one_outcome(case: _Case) -> Iterator[str]:
    for key, wanted in case.world.outcomes.items():
        got = case.found.outcomes.get(key)
        if got is None:
            yield f"turn {key}: expected {_words(wanted)}, it is lost"
        elif got != wanted:
            yield f"turn {key}: expected {_words(wanted)}, found {_words(got)}"
    for key in case.found.outcomes.keys() - case.world.outcomes.keys():
        yield f"turn {key}: {_words(case.found.outcomes[key])}, but nobody said it"


def _sealed(case: _Case) -> Iterator[str]:
    """Whatever was let in can be replayed, as it was said; a copy may be there twice."""
    copies = set(case.found.sealed)
    for raw, name in case.world.spoken.items():
        if raw not in copies:
            yield f"turn {name}: no copy of it"
    for raw in copies - case.world.spoken.keys():
        turn = Turn.from_bytes(raw)
        yield f"turn {turn.conversation_id}/{turn.turn_id}, revision {turn.revision}: a copy that nobody said so"


def _looked_up(case: _Case) -> Iterator[str]:
    for key, wanted in case.world.outcomes.items():
        got = case.found.looked_up.get(key)
        if got != wanted:
            yield f"turn {key}: expected {_words(wanted)}, the look-up says {_words(got)}"
    for command in case.world.commands:
        state = case.found.commands.get(command, "pending")
        if state != "applied":
            yield f"command {command}: {state}"


def _sum(case: _Case) -> Iterator[str]:
    """Every message of the log is a turn or command that is there, one that was there already, or a dead letter."""
    filtered = sum(outcome == "filtered" for outcome, _reason in case.found.outcomes.values())
    stored = len(case.found.outcomes) - filtered
    commands = sum(state == "applied" for state in case.found.commands.values())
    letters = len({letter.place for letter in case.found.letters})
    parts = {
        "stored": stored,
        "filtered": filtered,
        "commands": commands,
        "dead-lettered": letters,
        "seen before": case.world.duplicates + sum(case.world.revisions.values()),
    }
    if sum(parts.values()) != len(case.found.log):
        yield f"{len(case.found.log)} messages, but " + " + ".join(f"{n} {name}" for name, n in parts.items())


def _letters(case: _Case) -> Iterator[str]:
    places = Counter(letter.place for letter in case.found.letters)
    for place in case.world.places - places.keys():
        yield f"{place}: no dead letter for a message that nobody can process"
    for letter in case.found.letters:
        if letter.place not in case.world.places:
            yield f"{letter.place}: {letter.stage} gave up with {letter.reason}, and should not have"
        if places[letter.place] > 1:
            yield f"{letter.place}: {places[letter.place]} dead letters for one message"
        if letter.identity not in case.found.letters_sent:
            yield f"{letter.place}: the letter {letter.identity} is not on its topic"
    for identity in case.found.letters_sent.keys() - {letter.identity for letter in case.found.letters}:
        yield f"the letter {identity} is on its topic and not in truth"


def _memories(case: _Case) -> Iterator[str]:
    for identity, wanted in case.world.memories.items():
        got = case.found.memories.get(identity)
        name = case.named(identity)
        if got is None:
            if not wanted.optional:
                yield f"{name}: expected {wanted.status}, it is lost"
        elif got.status != wanted.status:
            yield f"{name}: expected {wanted.status}, found {got.status} at version {got.version}"
        elif wanted.version is not None and got.version != wanted.version:
            yield f"{name}: expected version {wanted.version}, found {got.version}"
        elif wanted.evidence is not None and got.evidence != wanted.evidence:
            yield f"{name}: expected {wanted.evidence} pieces of evidence, found {got.evidence}"
    for identity in case.found.memories.keys() - case.world.memories.keys():
        row = case.found.memories[identity]
        yield f"{identity}: {row.status} at version {row.version}, but nobody said it"


def _claims(case: _Case) -> Iterator[str]:
    for key, (least, most) in case.world.claims.items():
        if not least <= case.found.claims[key] <= most:
            yield f"turn {key}: {case.found.claims[key]} claims instead of {least} to {most}"


def _versions(case: _Case) -> Iterator[str]:
    for identity in case.found.memories.keys() | case.found.versions.keys():
        row, versions = case.found.memories.get(identity), case.found.versions.get(identity, [])
        if sorted(versions) != list(range(1, len(versions) + 1)):
            yield f"{case.named(identity)}: the history has {sorted(versions)}"
        if row is None or row.version != max(versions, default=0):
            at = row.version if row else None
            yield f"{case.named(identity)}: truth is at {at}, its history ends at {max(versions, default=0)}"


def _points(case: _Case) -> Iterator[str]:
    for identity, row in case.found.memories.items():
        point = case.found.points.get(identity)
        if point is None:
            yield f"{case.named(identity)}: no point, truth is at {row.version}"
        elif point != (row.version, row.status):
            yield f"{case.named(identity)}: the point is {point}, truth {(row.version, row.status)}"


def _orphans(case: _Case) -> Iterator[str]:
    for identity in case.found.points.keys() - case.found.memories.keys():
        yield f"{identity}: a point {case.found.points[identity]} of a memory that truth does not know"


def _decoded(case: _Case) -> Iterator[tuple[int, int, MemoryUpdated]]:
    for record in case.found.events:
        if record.raw is not None:
            yield record.partition, record.offset, MemoryUpdated.from_bytes(record.raw)


def _each_version_once(case: _Case) -> Iterator[str]:
    """What a consumer sees that drops what it knows: every version of truth, each with one content."""
    seen: dict[tuple[str, int], bytes] = {}
    for record in case.found.events:
        if record.raw is None:
            continue
        event = MemoryUpdated.from_bytes(record.raw)
        key = (event.memory.id, event.memory.version)
        if seen.setdefault(key, record.raw) != record.raw:
            yield f"{case.named(key[0])}: version {key[1]} has two contents, one at {record.partition}:{record.offset}"
    history = {(identity, version) for identity, versions in case.found.versions.items() for version in versions}
    for identity, version in sorted(history - seen.keys()):
        yield f"{case.named(identity)}: version {version} was never sent"
    for identity, version in sorted(seen.keys() - history):
        yield f"{case.named(identity)}: version {version} was sent, and truth does not know it"


def _ordered(case: _Case) -> Iterator[str]:
    """Within its partition an owner's events come in the order in which they were numbered, and a number is one event's.

    Repetitions aside: a reader who drops what it knows by number would drop a second event under a number with them.
    """
    last: dict[str, int] = defaultdict(int)
    home: dict[str, int] = {}
    numbered: dict[tuple[str, int], str] = {}
    for partition, offset, event in _decoded(case):
        owner = event.memory.owner
        if home.setdefault(owner, partition) != partition:
            yield f"{owner}: events in partitions {home[owner]} and {partition}"
        if event.owner_seq > last[owner] + 1:
            yield f"{owner}: event {event.owner_seq} follows {last[owner]} at {partition}:{offset}"
        first = numbered.setdefault((owner, event.owner_seq), event.event_id)
        if first != event.event_id:
            yield f"{owner}: event {event.owner_seq} is {first}, and {event.event_id} at {partition}:{offset}"
        last[owner] = max(last[owner], event.owner_seq)


def _compacted(case: _Case) -> Iterator[str]:
    """What compaction will keep of each memory is its newest state, and nothing of what was deleted."""
    last: dict[str, bytes | None] = {}
    for record in case.found.events:
        last[record.key] = record.raw
    for identity, row in case.found.memories.items():
        kept = last.get(identity, b"")
        gone = row.status == "deleted"
        if gone and kept is not None:
            yield f"{case.named(identity)}: deleted, but its last message is no tombstone"
        elif not gone and not kept:
            yield f"{case.named(identity)}: its last message is {'a tombstone' if kept is None else 'missing'}"
        elif not gone and kept:
            memory = MemoryUpdated.from_bytes(kept).memory
            if (memory.version, memory.status.value) != (row.version, row.status):
                yield f"{case.named(identity)}: the topic ends at version {memory.version}, truth is at {row.version}"


def _resurrected(case: _Case) -> Iterator[str]:
    """What was deleted, retracted or never said is nowhere to be found as if it held."""
    for identity, wanted in case.world.memories.items():
        if wanted.status not in ("deleted", "retracted"):
            continue
        row, point, copy = (
            case.found.memories.get(identity),
            case.found.points.get(identity),
            case.found.held.get(identity),
        )
        for where, status in (
            ("truth", row.status if row else ""),
            ("the vectors", point[1] if point else ""),
            ("the replica", copy[1] if copy else ""),
        ):
            if status == "active":
                yield f"{case.named(identity)}: {wanted.status}, and active in {where}"
        if wanted.status == "deleted" and row is not None and row.value:
            yield f"{case.named(identity)}: deleted, and truth still has its value"
        if wanted.status == "deleted" and copy is not None:
            yield f"{case.named(identity)}: deleted, and held by the replica"


def _replica(case: _Case) -> Iterator[str]:
    truth = {
        identity: (row.version, row.status) for identity, row in case.found.memories.items() if row.status != "deleted"
    }
    for identity in truth.keys() | case.found.held.keys():
        if truth.get(identity) != case.found.held.get(identity):
            yield f"{case.named(identity)}: truth {truth.get(identity)}, replica {case.found.held.get(identity)}"
    if case.found.conflicts:
        yield f"the replica saw {case.found.conflicts} versions with two contents"


def _sessions(case: _Case) -> Iterator[str]:
    for conversation, wanted in case.world.sessions.items():
        got = case.found.sessions.get(conversation, [])
        if got != wanted:
            missing = [turn for turn, _text in wanted if turn not in dict(got)]
            yield f"conversation {conversation}: {len(got)} turns instead of {len(wanted)}; missing {missing[:5]}"
        if case.found.turn_counts.get(conversation) != len(wanted):
            yield f"conversation {conversation}: counts {case.found.turn_counts.get(conversation)} turns of {len(wanted)}"


def _nothing_waits(case: _Case) -> Iterator[str]:
    for conversation, waiting in case.found.pending.items():
        if waiting:
            yield f"conversation {conversation}: {waiting} turns wait for a batch"
    for batch in case.found.batches:
        if batch.status not in ("extracted", "empty"):
            yield f"batch {batch.identity}: {batch.status}"


def _batched_once(case: _Case) -> Iterator[str]:
    times = Counter(key for batch in case.found.batches for key in batch.turn_keys)
    for key, count in times.items():
        if count > 1 + case.world.revisions.get(key, 0):
            yield f"turn {key}: in {count} batches, with {case.world.revisions.get(key, 0)} edits"


def _outbox(case: _Case) -> Iterator[str]:
    if case.found.outbox:
        yield f"{case.found.outbox} messages were committed and not sent"


Check = Callable[[_Case], Iterator[str]]
INVARIANTS: dict[str, Check] = {
    "what the broker took is in the log": _log_is_whole,
    "every accepted turn has exactly one outcome": _one_outcome,
    "every turn that was let in is on the sealed log, in each revision": _sealed,
    "a look-up tells the outcome": _looked_up,
    "produced = stored + filtered + dead-lettered": _sum,
    "one dead letter for what nobody can process, none for anything else": _letters,
    "the memories are those that were stated": _memories,
    "each statement is one claim": _claims,
    "versions have no gap and never fall": _versions,
    "vector version = truth version": _points,
    "no orphan points": _orphans,
    "each (memory, version) once for a consumer that drops what it knows": _each_version_once,
    "an owner's events are in order": _ordered,
    "the compacted topic ends where truth is": _compacted,
    "nothing is resurrected": _resurrected,
    "replica = truth": _replica,
    "sessions hold every turn once, as said": _sessions,
    "no turn and no batch waits": _nothing_waits,
    "a turn is in one batch for each revision": _batched_once,
    "the outbox is empty": _outbox,
}


def _line(line: Line) -> str:
    return f"{line.kind} {line.turn_id or line.command_id or line.key}"


def _words(outcome: tuple[str, str | None] | None) -> str:
    if outcome is None:
        return "nothing"
    return f"{outcome[0]} ({outcome[1]})" if outcome[1] else outcome[0]
