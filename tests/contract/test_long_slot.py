"""A slot of hundreds of values: what comes a little late is folded from a checkpoint, and truth is what it would be without."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from processors.resolution import Entry, Retraction, order_key, simulate
from processors.resolution.similarity import Nearest
from schemas import Candidate, Command, Status
from sinks.truth import Truth, memories
from sinks.truth.sql import chunks
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.resolve import ResolveStage
from tests.doubles.records import at, claim, turn

MANY = 320
SPACE = 10
"""Between the numbers of two turns, so that others can come late in between."""


def move(number: int, to: str | None = None) -> Candidate:
    place = to or f"City {number}"
    return claim(number, value=place, text=f"lives in {place}")


def taking_back(number: int) -> Command:
    """One minute after it was said."""
    said = claim(number)
    return Command(
        command_id=f"back-{number}",
        kind="retract_turn",
        tenant=said.tenant,
        owner=said.owner,
        issued_by="test",
        issued_at=at(number + 1),
        target_turn_key=turn(number).turn_key,
        retraction_turn_key=turn(number + 1).turn_key,
        payload={"order_key": order_key(at(number + 1), f"t{number + 1}", 0, "")},
    )


class House:
    """The resolve stage, and everything that it was told."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        nearest = Nearest(lambda _text, others: [0.0] * len(others))
        self._metrics = Metrics()
        self._stages = {topic: ResolveStage(topic, nearest, self._metrics) for topic in ("candidates", "commands")}
        self.claims: list[Candidate] = []
        self.retractions: list[Retraction] = []

    def arrive(self, *items: Candidate | Command) -> None:
        for item in items:
            if isinstance(item, Candidate):
                self.claims.append(item)
            else:
                key = str(item.payload["order_key"])
                self.retractions.append(Retraction(key, item.target_turn_key or "", None))
        topic = "candidates" if isinstance(items[0], Candidate) else "commands"
        group = [
            Delivered(Message(topic, 0, number, b"", item.to_bytes(), 0.0), item) for number, item in enumerate(items)
        ]
        self._truth.run(lambda connection: self._stages[topic].commit(connection, group, at(0)))

    def folded_whole(self) -> int:
        """How often the ledger was folded from its beginning."""
        return int(self._metrics.registry.get_sample_value("memriver_folds_total", {"onto": "nothing"}) or 0)

    def current(self) -> list[tuple[str, int, int]]:
        """What truth holds: value, version, evidence."""
        with self._truth.reading() as connection:
            found = memories.listing(connection, limit=10_000)
        return _active(found)

    def expected(self) -> list[tuple[str, int, int]]:
        """What the whole ledger comes to."""
        cell, _steps = simulate([Entry.of(item) for item in self.claims], self.retractions)
        return _active(cell.memories.values())


def _active(found: Iterable[Any]) -> list[tuple[str, int, int]]:
    return [(m.value, m.version, m.evidence_count) for m in found if m.status is Status.ACTIVE]


@pytest.fixture
def house(truth: Truth) -> House:
    """Three hundred moves and one turn that came late, so that there is a checkpoint."""
    made = House(truth)
    for numbers in chunks(range(SPACE, (MANY + 1) * SPACE, SPACE), 500):
        made.arrive(*(move(number) for number in numbers))
    made.arrive(move(MANY * SPACE - 5))
    assert made.current() == made.expected()
    return made


END = MANY * SPACE


@pytest.mark.parametrize(
    ("arriving", "whole"),
    [
        ([(move(END - 15),), (move(END - 25), move(END + 20))], False),
        ([(move(5),)], True),
        ([(taking_back(END),)], False),
        ([(taking_back(END - 20),), (move(END - 45),)], False),
        ([(taking_back(SPACE * 3),), (move(END - 15),)], True),
        ([(taking_back(END + 40),), (move(END + 40),), (move(END + 38),)], False),
        ([(move(END - 15, "Leeds"),), (taking_back(END - 15),), (move(END + 5, "Leeds"),)], False),
    ],
    ids=[
        "a little late",
        "before the checkpoint",
        "the last turn taken back",
        "a recent turn taken back and a late one",
        "an old turn taken back",
        "taken back before it came",
        "late, taken back and said again",
    ],
)
def test_a_long_slot_ends_as_its_whole_ledger_would(
    house: House, arriving: list[tuple[Candidate | Command, ...]], *, whole: bool
) -> None:
    before = house.folded_whole()
    for group in arriving:
        house.arrive(*group)
        assert house.current() == house.expected()
    assert (house.folded_whole() > before) is whole


def test_a_claim_of_the_model_is_a_little_late_in_a_short_slot_too(truth: Truth) -> None:
    """Scenario: twenty moves, and between the last ones what a batch found some turns later.
    We expect one fold of everything, and from then on of the last ones only."""
    house = House(truth)
    house.arrive(*(move(number) for number in range(SPACE, 21 * SPACE, SPACE)))
    for late in (15, 14, 13):
        house.arrive(move(20 * SPACE - late, "Leeds"), move(20 * SPACE + 50 - late))
        assert house.current() == house.expected()
    assert house.folded_whole() == 1
