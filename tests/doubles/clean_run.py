"""Tests, doubles: the stages over a broker that is a list, once, undisturbed; what every disturbed run must equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from processors.intake import Intake
from processors.noise import NoiseFilter
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from streams.clock import BatchClock
from streams.delivery import Delivery, Message
from streams.gating import make_gate
from streams.metrics import Metrics
from streams.runtime import batch_limits
from streams.settings import Settings
from streams.stages.bury import BuryStage
from streams.stages.extract import ExtractStage
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from streams.vectors import comparison, open_embedder
from tests.doubles.log import Broker, Stream


class _NoVectors:
    """Publishes to the list; vectors are another test's business."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        await self._broker.publish(messages)


async def clean_run(truth: Truth, settings: Settings, turns: Iterable[bytes], letters: Iterable[bytes] = ()) -> Broker:
    """Every stage once over everything, without a model; the broker at the end."""
    broker, metrics = Broker(), Metrics()

    def fatal(reason: str) -> None:
        raise AssertionError(reason)

    with ThreadPoolExecutor(1) as executor:
        delivery = Delivery(
            truth,
            _NoVectors(broker),
            executor,
            metrics,
            now=lambda: datetime.now(UTC),
            linger_seconds=0.0,
            on_fatal=fatal,
        )
        gate, limits = make_gate(settings), batch_limits(settings)
        nearest = Nearest(comparison(open_embedder(settings)))
        intake = Intake(RuleBook.load(), NoiseFilter.load(), gate)
        await broker.publish([Outgoing("turns", "k", "k", raw) for raw in turns])
        await broker.publish([Outgoing("deadletters", "k", "k", raw) for raw in letters])
        stages: list[Any] = [
            IngestStage(intake, limits, metrics),
            ResolveStage("candidates", nearest, metrics),
            ResolveStage("commands", nearest, metrics),
            BuryStage(),
        ]
        for stage in stages:
            await delivery.run(_stream(broker, stage.name, stage.topic), stage)
        while await BatchClock(delivery, limits, metrics).close_due(everything=True):
            continue
        extract = ExtractStage(truth, delivery, gate, metrics, None, attempts=5)
        stream = _stream(broker, extract.name, "batches")
        await delivery.run_many(stream, extract.name, extract.handle, size=16, flying=4)
    return broker


def _stream(broker: Broker, group: str, topic: str) -> Stream:
    def acknowledge(message: Message) -> None:
        broker.committed[group, topic] = message.offset + 1

    return Stream(broker.unread(group, topic), on_ack=acknowledge)
