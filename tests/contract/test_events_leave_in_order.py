"""Two processes that write for one owner: what the first has committed leaves before what the second makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from processors.resolution.similarity import Nearest
from schemas import Candidate, Command, Memory, MemoryUpdated
from sinks.truth import Truth, outbox
from sinks.truth.audit import AuditChain
from sinks.truth.erasure import Scope
from sinks.truth.outbox import Outgoing
from sinks.vectors import Tombstone
from streams.delivery import Delivered, Message
from streams.erasing.opening import Opening, Wish
from streams.metrics import Metrics
from streams.outflow import Outflow
from streams.stages.erasing import order_of
from streams.stages.resolve import ResolveStage
from tests.doubles.records import at, claim, turn
from tests.doubles.sealing import sealer


def move(number: int, owner: str = "ann") -> Candidate:
    place = f"City {number}"
    return claim(number, value=place, text=f"lives in {place}", owner=owner, namespace=f"user/{owner}/profile")


def commit(truth: Truth, items: Sequence[Candidate | Command]) -> list[Outgoing]:
    """One group of a process that has published nothing yet, or dies before it does."""
    topic: Literal["candidates", "commands"] = "candidates" if isinstance(items[0], Candidate) else "commands"
    stage = ResolveStage(topic, Nearest(lambda _text, others: [0.0] * len(others)), Metrics())
    group = [Delivered(Message(topic, 3, number, b"", item.to_bytes(), 0.0), item) for number, item in enumerate(items)]
    return truth.run(
        lambda connection: outbox.put(connection, stage.name, stage.commit(connection, group, at(0)), at(0))
    )


def numbers(rows: Sequence[Outgoing]) -> list[tuple[str, int]]:
    """Whose event, and which of theirs."""
    events = [MemoryUpdated.from_bytes(row.payload) for row in rows if row.payload is not None]
    return [(event.memory.owner, event.owner_seq) for event in events]


def left(truth: Truth) -> list[Outgoing]:
    with truth.reading() as connection:
        return outbox.leftover(connection, "resolve", 100)


def test_what_another_process_has_not_sent_leaves_first(truth: Truth) -> None:
    """Scenario: a process is paused between its commit and its publication; its successor has looked for what was left
    before that commit. We expect the successor to send both, in order: whoever reads sees no gap."""
    slow = commit(truth, [move(1), move(2), move(3, "bob")])
    assert numbers(slow) == [("ann", 1), ("ann", 2), ("ann", 3), ("bob", 1)]
    after = numbers(commit(truth, [move(4)]))
    assert after == [("ann", number) for number in range(1, len(after) + 1)]
    assert len(after) > 3
    # It stands for nobody else's.
    assert {whose for whose, _number in numbers(commit(truth, [move(5, "cleo")]))} == {"cleo"}
    assert numbers(left(truth))[0] == ("bob", 1)


def test_what_was_sent_and_is_deleted_is_not_sent_again(truth: Truth) -> None:
    first = commit(truth, [move(1)])
    truth.run(lambda connection: outbox.done(connection, [row.id for row in first]))
    second = numbers(commit(truth, [move(2)]))
    assert second[0] == ("ann", 2)


def test_the_slow_one_deletes_nothing_of_what_was_taken_over(truth: Truth) -> None:
    first = commit(truth, [move(1)])
    second = commit(truth, [move(2)])
    truth.run(lambda connection: outbox.done(connection, [row.id for row in first]))
    assert numbers(left(truth)) == numbers(second)


def test_what_was_erased_is_not_taken_over(truth: Truth) -> None:
    """Scenario: the events of a memory lie in the outbox when its owner is erased.
    We expect their tombstones alone to leave: nothing that says what was erased is written anew."""
    commit(truth, [move(1)])
    truth.run(lambda connection: sealer().admit(connection, [turn(1)], at(1)))
    out = erased(truth, Scope.OWNER, "ann", 2)
    assert [row.payload for row in out] == [None]
    assert left(truth) == out


def erased(truth: Truth, scope: Scope, name: str, minute: int) -> list[Outgoing]:
    """The rows that the order leaves."""
    made = sealer()
    item = Opening(truth, made, AuditChain(b"a secret of this deployment")).open(
        Wish(scope, "acme", name), by="test", reason="", now=at(minute)
    )
    return commit(truth, [order_of(item, "acme", "user", "ann", at(minute))])


class Broker:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.sent += messages


class NoVectors:
    def write(self, memories: Sequence[Memory]) -> int:
        return len(list(memories))

    def bury(self, gone: Sequence[Tombstone]) -> None:
        pass


def published(truth: Truth, rows: Sequence[Outgoing]) -> list[Outgoing]:
    """What leaves when a process sends these."""
    broker = Broker()
    with ThreadPoolExecutor(1) as executor:
        outflow = Outflow(broker, NoVectors(), executor, truth=truth)  # type: ignore[arg-type]  # what it uses of them
        asyncio.run(outflow.flush(rows))
    return broker.sent


def test_who_wakes_up_and_says_what_holds_leaves_no_gap(truth: Truth) -> None:
    """Scenario: a process is paused after a commit; its successor sends that event, commits more and has sent none of it
    when the first one wakes up, sends its event again and sees that truth is further.
    We expect it to send what lies between as well: the newest event alone would be a gap."""
    slow = commit(truth, [move(1)])
    truth.run(lambda connection: outbox.done(connection, [row.id for row in slow]))  # its successor has sent them
    commit(truth, [claim(50, attribute="likes", cardinality="multi", value="tea", text="likes tea"), move(60)])
    order = [number for _whose, number in numbers(published(truth, slow))]
    highest = 0
    for number in order:
        assert number <= highest + 1, order
        highest = max(highest, number)
    assert highest > 1


def test_a_late_tombstone_does_not_end_what_was_said_again(truth: Truth) -> None:
    """Scenario: a process is paused between an erasure's commit and its tombstone; its successor sends that, the person says it
    again and the successor sends the event. Then the first one wakes up and sends its tombstone.
    We expect the event once more: a compacted topic would end with a tombstone of something that holds."""
    truth.run(lambda connection: sealer().admit(connection, [turn(1)], at(1)))
    [first] = commit(truth, [move(1)])
    late = erased(truth, Scope.MEMORY, first.key, 2)
    assert [(row.key, row.payload) for row in late] == [(first.key, None)]
    truth.run(lambda connection: outbox.done(connection, [row.id for row in left(truth)]))
    again = commit(truth, [claim(9, value="City 1", text="lives in City 1")])
    assert {row.key for row in again} == {first.key}
    truth.run(lambda connection: outbox.done(connection, [row.id for row in again]))
    sent = published(truth, late)
    assert [(row.key, row.payload) for row in sent] == [(first.key, None), (first.key, again[-1].payload)]


def test_a_tombstone_that_is_right_is_said_once(truth: Truth) -> None:
    truth.run(lambda connection: sealer().admit(connection, [turn(1)], at(1)))
    [first] = commit(truth, [move(1)])
    late = erased(truth, Scope.MEMORY, first.key, 2)
    assert published(truth, late) == late


def test_an_event_of_what_is_gone_is_followed_by_a_tombstone_that_names_its_version(truth: Truth) -> None:
    truth.run(lambda connection: sealer().admit(connection, [turn(1)], at(1)))
    [first] = commit(truth, [move(1)])
    erased(truth, Scope.MEMORY, first.key, 2)
    assert [(row.key, row.payload, row.version) for row in published(truth, [first])] == [
        (first.key, first.payload, None),
        (first.key, None, 1),
    ]
