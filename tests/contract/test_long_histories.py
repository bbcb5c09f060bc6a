"""What one more message costs does not grow with what was said before: counted in rows that the server reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, text

from processors.batching import BatchLimits
from processors.intake import Intake
from processors.noise import NoiseFilter
from processors.policy import PolicyGate, PolicySettings
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from sinks.sealing.guard import Guard
from sinks.truth import Truth
from streams.metrics import Metrics
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from tests.doubles.carrier import Carrier
from tests.doubles.records import at, claim, turn
from tests.doubles.sealing import sealer

pytestmark = pytest.mark.services

FEW, MANY = 50, 2_000
LATER = at(10_000)


def rows_read(truth: Truth, work: Callable[[], None]) -> int:
    """Rows that the server looks at for `work`, by whatever index: the least of some tries.

    InnoDB removes index entries of what has changed in its own time, and passes over them until then.
    """

    def total() -> int:
        with truth.reading() as connection:
            found = dict(connection.execute(text("SHOW GLOBAL STATUS LIKE 'Handler%'")).all())
        read = sum(int(value) for name, value in found.items() if name.startswith("Handler_read_"))
        return read + int(found["Handler_icp_attempts"])  # those that the engine itself has passed over

    total()
    idle = -total() + total()
    found: list[int] = []
    for _ in range(6):
        time.sleep(0.5)
        before = total()
        work()
        found.append(total() - before - idle)
    return min(found)


def test_what_waits_is_found_in_a_long_conversation_without_reading_it(mariadb_truth: Truth) -> None:
    """Scenario: a conversation that has gone on for years. We expect what waits in it for a batch to be looked up by the whole
    index: with a condition that the server does not take for an equation it read all that was ever said there."""
    gate = PolicyGate(PolicySettings(), b"a key for tests only")
    intake = Intake(RuleBook.load(), NoiseFilter.load(), gate)
    carry_out = Carrier(mariadb_truth, IngestStage(intake, BatchLimits(), Metrics(), sealer()), LATER)
    for start in range(0, MANY, 500):
        lines = [turn(n, text=f"第{n}个接口的报价还要再核对一遍") for n in range(start, start + 500)]
        others = [line.model_copy(update={"conversation_id": f"other {n % 50}"}) for n, line in enumerate(lines)]
        carry_out([*lines, *others])
    plans: list[tuple[str, str]] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, _many: bool) -> None:
        if context.compiled and "FROM turns" in statement and "turns.pending" in statement.partition("WHERE")[2]:
            raw = connection.connection.cursor()
            raw.execute(f"EXPLAIN {statement}", parameters)
            plans.extend((row[5], row[6]) for row in raw.fetchall())

    event.listen(mariadb_truth.engine, "before_cursor_execute", explain)
    whole = {("ix_turns_pending", "131")}
    for attempt in range(30):
        # Until the server has removed what it knows of turns that waited once, it takes them for waiting.
        time.sleep(1.0 if attempt else 0.0)
        with mariadb_truth.begin() as connection:
            connection.execute(text("ANALYZE TABLE turns"))
        plans.clear()
        for number in range(6):
            place = MANY + 6 * attempt + number
            carry_out([turn(place, text=f"第{place}个接口的报价和合同都还要再看一遍")])
        assert plans, "a batch has closed"
        if set(plans) == whole:
            break
    event.remove(mariadb_truth.engine, "before_cursor_execute", explain)
    assert set(plans) == whole, "131 bytes: the conversation's 130, and whether it waits"


def test_a_claim_costs_the_same_for_somebody_of_whom_much_is_known(mariadb_truth: Truth) -> None:
    guard = Guard(sealer().identities)
    stage = ResolveStage("candidates", Nearest(lambda _text, others: [0.0] * len(others)), Metrics(), guard)
    carry_out = Carrier(mariadb_truth, stage, LATER)
    cost: dict[int, int] = {}
    known = 0
    for length in (FEW, MANY):
        while known < length:
            size = min(500, length - known)
            carry_out(
                [
                    claim(n, attribute=f"thing {n}", value=f"value {n}", text=f"thing {n} is {n}")
                    for n in range(known, known + size)
                ],
            )
            known += size

        def more() -> None:
            nonlocal known
            carry_out([claim(known, attribute="residence", value=f"City {known}")])
            carry_out([claim(known + 1, attribute=f"thing {known}", value="new")])
            known += 2

        cost[length] = rows_read(mariadb_truth, more)
    assert cost[FEW] > 0
    assert cost[MANY] < 1.5 * cost[FEW] + 50, cost
