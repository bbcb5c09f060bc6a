"""A COMMIT that the database carries out when its sender is dead and the successor has looked: what it left leaves as well."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas import Status
from sinks.truth import outbox
from sinks.truth.outbox import Outgoing
from streams.cli.embedded import Embedded
from streams.delivery import LEFT_BEHIND
from tests.doubles.log import until
from tests.doubles.records import claim
from tests.pipeline.river import process, said, settings, write_log


def test_a_running_worker_sends_what_was_committed_behind_its_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario: a claim that ingest found lies in the outbox and nobody knows of it. We expect a memory, and an empty outbox."""
    late = claim(attribute="employer", value="Acme", text="works for Acme")
    log = write_log(tmp_path / "log.jsonl", [said(1, "我住在北京")])

    async def then(embedded: Embedded) -> None:
        runtime = embedded.runtime
        row = Outgoing("candidates", late.candidate_id, late.owner_key, late.to_bytes())
        committed = datetime.now(UTC) - 2 * LEFT_BEHIND
        runtime.truth.run(lambda connection: outbox.put(connection, "ingest", [row], committed))
        await until(lambda: _size(embedded) == 0)
        await embedded.drained()

    monkeypatch.setattr("streams.sweeping._TICK_SECONDS", 0.2)
    left = process(tmp_path / "data", log, given=settings(), then=then)
    assert {item.value for item in left.of(late.owner, Status.ACTIVE)} >= {late.value}
    assert left.unpublished == 0


def _size(embedded: Embedded) -> int:
    with embedded.runtime.truth.reading() as connection:
        return outbox.size(connection)
