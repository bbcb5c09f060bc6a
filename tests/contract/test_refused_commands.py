"""A command that meant nothing when it came: known when it comes again, and obeyed when somebody sends it once more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from processors.resolution.similarity import Nearest
from schemas import Command, CommandKind, new_id
from sinks.truth import Truth, deadletters
from sinks.truth.deadletters import Redriven
from streams.deadletter import header_of, redriven_of
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.resolve import ResolveStage
from tests.doubles.house import House, said

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def deliver(truth: Truth, command: Command, *headers: tuple[str, bytes]) -> int:
    """Through the resolver as the delivery does it; returns how many messages go out."""
    stage = ResolveStage("commands", Nearest(lambda _text, others: [0.0] * len(others)), Metrics())
    message = Message("commands", 0, 1, None, command.to_bytes(), 0.0, headers)

    def work(connection: Any) -> Sequence[Any]:
        out = stage.commit(connection, [Delivered(message, stage.prepare(message))], NOW)
        deadletters.resolve(connection, stage.name, redriven_of([message]), NOW)
        return out

    return len([item for item in truth.run(work) if item.topic == "memory_updated"])


def letters(truth: Truth) -> list[tuple[str, int]]:
    with truth.reading() as connection:
        rows = deadletters.listing(connection, deadletters.LetterFilter(status=None))
        return [(row["status"], row["attempts"]) for row in rows]


def take(truth: Truth, command: Command) -> tuple[str, bytes]:
    """As `memriver dlq redrive` does; returns the header."""
    with truth.reading() as connection:
        [row] = deadletters.listing(connection)
    attempt = truth.run(
        lambda connection: deadletters.redrive(
            connection, row["dead_letter_id"], command.to_bytes(), mended=False, by="eve", now=NOW
        )
    )
    assert attempt is not None
    return header_of(Redriven(row["dead_letter_id"], attempt))


def test_a_refused_command_is_obeyed_once_when_it_is_redriven_and_makes_sense_by_then(truth: Truth) -> None:
    house = House(truth)
    [memory] = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    given: dict[str, Any] = {"tenant": memory.tenant, "owner": memory.owner, "issued_by": "ann", "issued_at": NOW}
    restore = Command(
        command_id=new_id("restore"),
        kind=CommandKind.RESTORE,
        memory_id=memory.id,
        payload={"version": memory.version + 1},
        **given,
    )
    for _delivery in range(2):
        assert deliver(truth, restore) == 0
    assert letters(truth) == [("waiting", 1)], "the memory never had this version"

    again = take(truth, restore)
    assert deliver(truth, restore, again) == 0
    assert letters(truth) == [("waiting", 2)], "still not"

    confirm = Command(command_id=new_id("confirm"), kind=CommandKind.CONFIRM, memory_id=memory.id, **given)
    assert deliver(truth, confirm) == 1
    assert deliver(truth, restore) == 0, "its first message, redelivered, is done with"

    third = take(truth, restore)
    assert deliver(truth, restore, third) == 1
    assert letters(truth) == [("resolved", 2)]
    assert deliver(truth, restore, third) == 0, "a second copy changes nothing"
    assert deliver(truth, restore) == 0
    assert letters(truth) == [("resolved", 2)]
