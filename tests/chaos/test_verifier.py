"""The chaos verifier finds nothing wrong with an undisturbed run, and names each kind of damage that is planted in one."""

from __future__ import annotations

import asyncio
import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import pytest
from pydantic import SecretStr

from ops.chaos.found import Batch, Found, Letter, MemoryRow, Record
from ops.chaos.lines import Kind, Line, read, write
from ops.chaos.verifier import INVARIANTS, Violation, verify
from schemas import MemoryUpdated, Turn
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade
from sinks.vectors import open_vectors
from streams.settings import Settings
from streams.vectors import open_embedder
from tests.chaos.undisturbed import Undisturbed, conversation

OUTCOME = "every accepted turn has exactly one outcome"
ORDER = "an owner's events are in order"
SEALED = "every turn that was let in is on the sealed log, in each revision"
EVENTS = "each (memory, version) once for a consumer that drops what it knows"


@dataclass(frozen=True)
class Run:
    lines: list[Line]
    found: Found

    def violations(self, found: Found) -> list[Violation]:
        return verify(self.lines, [line.raw for line in self.lines], found)


def run_through(directory: Path, template: Path, *parts: list[Line]) -> Run:
    """Each part is produced after the one before it was worked through."""
    database = directory / "truth.db"
    shutil.copyfile(template, database)
    settings = Settings(
        _env_file=None,
        database_url=SecretStr(f"sqlite:///{database}"),
        data_dir=directory,
        model_base_url="",
        hash_key=SecretStr("a key for tests only"),
    )
    embedder = open_embedder(settings)
    store = open_vectors(f"edge:{directory}", prefix="memories", model=embedder.model, dimension=embedder.dimension)
    store.ensure()
    truth = Truth(make_engine(f"sqlite:///{database}"))
    try:
        undisturbed = Undisturbed(truth, store, settings)
        for part in parts:
            asyncio.run(undisturbed.run(part))
        return Run(undisturbed.lines, undisturbed.found())
    finally:
        truth.close()
        store.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chaos") / "template.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="module")
def run(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    yield run_through(tmp_path_factory.mktemp("run"), template, conversation(seed=5, people=12, messages=600))


def test_nothing_is_wrong_with_an_undisturbed_run(run: Run) -> None:
    assert run.violations(run.found) == []


def test_the_run_had_all_that_the_load_can_do(run: Run) -> None:
    assert {line.kind for line in run.lines} == set(Kind)
    states = {row.status for row in run.found.memories.values()}
    assert states == {"active", "superseded", "retracted", "deleted"}


@pytest.mark.parametrize("seed", range(3))
def test_the_expectation_does_not_depend_on_the_order_of_arrival(template: Path, tmp_path: Path, seed: int) -> None:
    """Scenario: people's two conversations are worked through one after the other, orders last.
    We expect: what the verifier worked out from the moments at which things were said."""
    lines = conversation(seed=seed, people=6, messages=240)
    orders = [line for line in lines if line.topic == "commands"]
    turns = [line for line in lines if line.topic == "turns"]
    halves = [[line for line in turns if line.conversation.endswith("b") is half] for half in (True, False)]
    run = run_through(tmp_path, template, *halves, orders)
    assert run.violations(run.found) == []


def test_a_log_that_is_kept_reads_back_the_same(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl", run.lines)
    assert list(read(tmp_path / "log.jsonl")) == run.lines


# -- damage, and the invariants that must name it

Damage = Callable[[Run, Found], None]


def memory_with(run: Run, status: str) -> str:
    return next(key for key, row in sorted(run.found.memories.items()) if row.status == status)


def turn_of(run: Run, kind: Kind) -> str:
    last = {line.turn_key: line for line in run.lines if line.is_turn}
    retracts = [line.conversation for line in run.lines if line.kind is Kind.RETRACT]
    return next(key for key, line in last.items() if line.kind is kind and line.conversation not in retracts)


def lose_a_turn(run: Run, found: Found) -> None:
    key = turn_of(run, Kind.CHAT)
    del found.outcomes[key], found.looked_up[key]
    conversation_key = next(line.conversation_key for line in run.lines if line.is_turn and line.turn_key == key)
    turn_id = next(line.turn_id for line in run.lines if line.is_turn and line.turn_key == key)
    found.sessions[conversation_key] = [item for item in found.sessions[conversation_key] if item[0] != turn_id]


def keep_no_copy_of_a_turn(run: Run, found: Found) -> None:
    """A worker that died between commit and copy, and a successor that took the turn for done."""
    raw = next(line.raw for line in run.lines if line.kind is Kind.NOISE)
    found.sealed = [copied for copied in found.sealed if copied != Turn.from_bytes(raw).to_bytes()]


def keep_the_last_revision_only(run: Run, found: Found) -> None:
    edited = next(line for line in run.lines if line.is_turn and line.revision > 0)
    turns = {raw: Turn.from_bytes(raw) for raw in found.sealed}
    gone = {raw for raw, turn in turns.items() if turn.turn_key == edited.turn_key and turn.revision < edited.revision}
    found.sealed = [raw for raw in found.sealed if raw not in gone]


def seal_another_text(run: Run, found: Found) -> None:
    turn = Turn.from_bytes(found.sealed[0])
    found.sealed.append(turn.model_copy(update={"text": "not what was said"}).to_bytes())


def double_a_turn_in_its_session(run: Run, found: Found) -> None:
    key = sorted(found.sessions)[0]
    found.sessions[key].append(found.sessions[key][-1])
    found.turn_counts[key] += 1


def invent_a_turn(run: Run, found: Found) -> None:
    found.outcomes["0" * 32] = ("extracted", None)


def leave_a_turn_on_its_way(run: Run, found: Found) -> None:
    found.outcomes[turn_of(run, Kind.CHAT)] = ("batched", None)


def let_noise_through(run: Run, found: Found) -> None:
    found.outcomes[turn_of(run, Kind.NOISE)] = ("extracted", None)


def look_up_an_older_outcome(run: Run, found: Found) -> None:
    found.looked_up[turn_of(run, Kind.CHAT)] = ("stored", None)


def ignore_a_command(run: Run, found: Found) -> None:
    found.commands[sorted(found.commands)[0]] = "pending"


def lose_a_message_of_the_log(run: Run, found: Found) -> None:
    raw = next(line.raw for line in run.lines if line.kind is Kind.STATE)
    found.log = [(place, found_raw) for place, found_raw in found.log if found_raw != raw]


def lose_a_dead_letter(run: Run, found: Found) -> None:
    found.letters.pop()


def double_a_dead_letter(run: Run, found: Found) -> None:
    found.letters.append(replace(found.letters[0], identity="another"))
    found.letters_sent["another"] += 1


def give_up_on_a_good_message(run: Run, found: Found) -> None:
    place = next(place for place, raw in found.log if raw == next(x.raw for x in run.lines if x.kind is Kind.CHAT))
    found.letters.append(Letter("another", "ingest", "unreadable", place))
    found.letters_sent["another"] += 1


def keep_a_letter_to_itself(run: Run, found: Found) -> None:
    del found.letters_sent[found.letters[0].identity]


def lose_a_memory(run: Run, found: Found) -> None:
    key = memory_with(run, "active")
    del found.memories[key], found.versions[key], found.points[key], found.held[key]
    found.events = [record for record in found.events if record.key != key]


def invent_a_memory(run: Run, found: Found) -> None:
    found.memories["m"] = MemoryRow("active", 1, "Leeds", 1)
    found.versions["m"], found.points["m"], found.held["m"] = [1], (1, "active"), (1, "active")


def count_a_claim_twice(run: Run, found: Found) -> None:
    """The version follows everywhere, so that only the expectation can tell."""
    key = memory_with(run, "active")
    row = found.memories[key]
    found.memories[key] = replace(row, version=row.version + 1, evidence=row.evidence + 1)
    found.versions[key].append(row.version + 1)
    found.points[key] = found.held[key] = (row.version + 1, row.status)
    found.claims[turn_of(run, Kind.CHAT)] += 1


def supersede_what_holds(run: Run, found: Found) -> None:
    key = memory_with(run, "active")
    found.memories[key] = replace(found.memories[key], status="superseded")


def leave_a_gap_in_a_history(run: Run, found: Found) -> None:
    key = next(key for key, versions in sorted(found.versions.items()) if len(versions) > 2)
    found.versions[key].remove(2)


def regress_a_version(run: Run, found: Found) -> None:
    key = next(key for key, row in sorted(found.memories.items()) if row.version > 1)
    found.memories[key] = replace(found.memories[key], version=found.memories[key].version - 1)


def leave_an_old_point(run: Run, found: Found) -> None:
    key = next(key for key, row in sorted(found.memories.items()) if row.version > 1)
    found.points[key] = (1, "active")


def lose_a_point(run: Run, found: Found) -> None:
    del found.points[memory_with(run, "active")]


def leave_an_orphan(run: Run, found: Found) -> None:
    found.points["11111111-1111-4111-8111-111111111111"] = (3, "active")


def resurrect(run: Run, found: Found) -> None:
    key = memory_with(run, "deleted")
    row = found.memories[key]
    found.memories[key] = replace(row, status="active", value="back again")
    found.points[key] = found.held[key] = (row.version, "active")


def resurrect_in_the_replica_only(run: Run, found: Found) -> None:
    found.held[memory_with(run, "deleted")] = (1, "active")


def send_two_contents(run: Run, found: Found) -> None:
    first = next(record for record in found.events if record.raw is not None)
    other = orjson.loads(first.raw or b"") | {"cause": "another"}
    found.events.append(replace(first, offset=first.offset + 10**6, raw=orjson.dumps(other)))


def never_send_a_version(run: Run, found: Found) -> None:
    key = next(key for key, row in sorted(found.memories.items()) if row.version > 1 and row.status == "active")
    first = next(record for record in found.events if record.key == key)
    found.events.remove(first)


def end_with_an_older_version(run: Run, found: Found) -> None:
    """A worker that was paused between commit and publication, and woke up after its successor."""
    key = next(key for key, row in sorted(found.memories.items()) if row.version > 1 and row.status == "active")
    first = next(record for record in found.events if record.key == key)
    found.events.append(replace(first, offset=10**9))


def let_an_event_overtake(run: Run, found: Found) -> None:
    places = [number for number, record in enumerate(found.events) if record.raw is not None]
    owners = [MemoryUpdated.from_bytes(found.events[number].raw or b"").memory.owner for number in places]
    owner = next(name for name in owners if owners.count(name) > 1)
    one, other = [place for place, name in zip(places, owners, strict=True) if name == owner][:2]
    found.events[one], found.events[other] = found.events[other], found.events[one]


def number_two_events_alike(run: Run, found: Found) -> None:
    """Each version is there once, no number is missing, and none overtakes another: the second one only looks known."""
    events = [MemoryUpdated.from_bytes(record.raw) for record in found.events if record.raw is not None]
    numbers = {event.event_id: (event.memory.owner, event.owner_seq) for event in events}
    known = next(event for event in events if event.owner_seq > 1)
    taken = next(key for key, number in numbers.items() if number == (known.memory.owner, known.owner_seq - 1))
    assert taken != known.event_id
    for number, record in enumerate(list(found.events)):
        if record.raw is not None and MemoryUpdated.from_bytes(record.raw).event_id == known.event_id:
            alike = orjson.loads(record.raw) | {"owner_seq": known.owner_seq - 1}
            found.events.append(replace(record, offset=10**6 + number, raw=orjson.dumps(alike)))
            found.events.append(replace(record, offset=10**7 + number))


def split_an_owner(run: Run, found: Found) -> None:
    number = next(number for number, record in enumerate(found.events) if record.raw is not None)
    found.events[number] = replace(found.events[number], partition=7)


def send_no_tombstone(run: Run, found: Found) -> None:
    key = memory_with(run, "deleted")
    found.events = [record for record in found.events if record.key != key or record.raw is not None]


def keep_the_replica_behind(run: Run, found: Found) -> None:
    key = next(key for key, row in sorted(found.memories.items()) if row.version > 1 and row.status == "active")
    found.held[key] = (1, "active")


def tell_the_replica_two_things(run: Run, found: Found) -> None:
    found.conflicts = 1


def leave_a_turn_waiting(run: Run, found: Found) -> None:
    found.pending[sorted(found.pending)[0]] = 1


def leave_a_batch_open(run: Run, found: Found) -> None:
    found.batches[0] = replace(found.batches[0], status="closed")


def batch_a_turn_twice(run: Run, found: Found) -> None:
    key = turn_of(run, Kind.CHAT)
    found.batches.append(Batch("another", "empty", (key,)))


def leave_the_outbox(run: Run, found: Found) -> None:
    found.outbox = 3


DAMAGE: list[tuple[Damage, set[str]]] = [
    (lose_a_turn, {OUTCOME, "sessions hold every turn once, as said", "produced = stored + filtered + dead-lettered"}),
    (keep_no_copy_of_a_turn, {SEALED}),
    (keep_the_last_revision_only, {SEALED}),
    (seal_another_text, {SEALED}),
    (double_a_turn_in_its_session, {"sessions hold every turn once, as said"}),
    (invent_a_turn, {OUTCOME}),
    (leave_a_turn_on_its_way, {OUTCOME}),
    (let_noise_through, {OUTCOME}),
    (look_up_an_older_outcome, {"a look-up tells the outcome"}),
    (ignore_a_command, {"a look-up tells the outcome"}),
    (lose_a_message_of_the_log, {"what the broker took is in the log"}),
    (lose_a_dead_letter, {"one dead letter for what nobody can process, none for anything else"}),
    (double_a_dead_letter, {"one dead letter for what nobody can process, none for anything else"}),
    (give_up_on_a_good_message, {"one dead letter for what nobody can process, none for anything else"}),
    (keep_a_letter_to_itself, {"one dead letter for what nobody can process, none for anything else"}),
    (lose_a_memory, {"the memories are those that were stated"}),
    (invent_a_memory, {"the memories are those that were stated"}),
    (count_a_claim_twice, {"the memories are those that were stated", "each statement is one claim"}),
    (supersede_what_holds, {"the memories are those that were stated"}),
    (leave_a_gap_in_a_history, {"versions have no gap and never fall"}),
    (regress_a_version, {"versions have no gap and never fall"}),
    (leave_an_old_point, {"vector version = truth version"}),
    (lose_a_point, {"vector version = truth version"}),
    (leave_an_orphan, {"no orphan points"}),
    (resurrect, {"nothing is resurrected", "the memories are those that were stated"}),
    (resurrect_in_the_replica_only, {"nothing is resurrected", "replica = truth"}),
    (send_two_contents, {EVENTS}),
    (never_send_a_version, {EVENTS}),
    (end_with_an_older_version, {"the compacted topic ends where truth is"}),
    (let_an_event_overtake, {ORDER}),
    (number_two_events_alike, {ORDER}),
    (split_an_owner, {ORDER}),
    (send_no_tombstone, {"the compacted topic ends where truth is"}),
    (keep_the_replica_behind, {"replica = truth"}),
    (tell_the_replica_two_things, {"replica = truth"}),
    (leave_a_turn_waiting, {"no turn and no batch waits"}),
    (leave_a_batch_open, {"no turn and no batch waits"}),
    (batch_a_turn_twice, {"a turn is in one batch for each revision"}),
    (leave_the_outbox, {"the outbox is empty"}),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGE, ids=[damage.__name__ for damage, _named in DAMAGE])
def test_planted_damage_is_named(run: Run, damage: Damage, named: set[str]) -> None:
    found = copy.deepcopy(run.found)
    damage(run, found)
    violations = run.violations(found)
    assert named <= {violation.invariant for violation in violations}
    assert all(violation.count and violation.evidence for violation in violations)


def test_each_invariant_has_damage_that_it_names() -> None:
    assert {name for _damage, named in DAMAGE for name in named} == set(INVARIANTS)


def test_evidence_names_the_memory_as_a_person_would_look_for_it(run: Run) -> None:
    found = copy.deepcopy(run.found)
    key = memory_with(run, "active")
    found.points[key] = (99, "active")
    (violation,) = run.violations(found)
    line = next(line for line in run.lines if line.kind is Kind.STATE and key in violation.evidence[0])
    assert violation.evidence[0].startswith(key)
    assert "99" in violation.evidence[0]
    assert line is not None


def test_records_are_compared_as_they_lie(run: Run) -> None:
    assert all(isinstance(record, Record) for record in run.found.events)
