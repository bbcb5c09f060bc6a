"""An order to erase somebody that was carried out and is delivered once more makes no row of them again."""

from __future__ import annotations

from sqlalchemy import func, select

from processors.resolution.similarity import Nearest
from schemas import Command
from sinks.truth import Truth, outbox
from sinks.truth.tables import owners
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.resolve import ResolveStage
from tests.doubles.records import at


def test_an_erasure_that_comes_again_leaves_nothing_of_the_owner(truth: Truth) -> None:
    """Scenario: a worker dies after it has erased an owner and before it has acknowledged the order.
    We expect the order, when it comes again, to change nothing: a row of the owner's would be found by every later look."""
    command = Command(
        command_id="erase-ann",
        kind="erase",
        tenant="acme",
        owner="ann",
        issued_by="erasure",
        issued_at=at(1),
        payload={"erasure_id": "e1"},
    )
    truth.run(lambda connection: outbox.receive(connection, "resolve", [command.command_id], at(1)))
    stage = ResolveStage("commands", Nearest(lambda _text, others: [0.0] * len(others)), Metrics())
    again = [Delivered(Message("commands", 0, 7, b"", command.to_bytes(), 0.0), command)]
    assert truth.run(lambda connection: stage.commit(connection, again, at(2))) == []
    with truth.reading() as connection:
        assert connection.execute(select(func.count()).select_from(owners)).scalar() == 0
