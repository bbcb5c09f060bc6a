"""Replay, building: from settings to a run; the composition root of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property, partial

from processors.exceptions import FatalError
from processors.extraction.schema import answer_schema
from processors.intake import Intake
from processors.noise import NoiseFilter
from processors.policy import PolicyGate
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from sinks.sealing import DataKeys
from sinks.truth import Truth, collections
from sinks.truth.collections import State
from sinks.truth.outbox import Outgoing
from sinks.truth.replays import Judging
from sinks.vectors.collection import calibration_of
from streams.delivery import Delivery
from streams.gating import make_gate
from streams.metrics import Metrics
from streams.modelling import make_models, pricing
from streams.replay.door import ReplayDoor, Unsealing
from streams.replay.log import KafkaLog, TurnLog, plain
from streams.replay.pipeline import Pipeline, Stages
from streams.replay.run import Replay
from streams.runtime import batch_limits
from streams.sealing import make_identities, make_wrapper
from streams.settings import Settings
from streams.stages.extract import ExtractStage, ModelChannel
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from streams.vectors import comparison, open_embedder

PLAIN, SEALED = "turns", "turns.sealed"


async def default_topic(settings: Settings) -> str:
    """The sealed log where there is one with turns in it: it has what `turns` keeps for days only."""
    try:
        sealed = await KafkaLog(settings, SEALED, plain).extent()
    except FatalError:
        return PLAIN
    return SEALED if any(sealed.ends.values()) else PLAIN


class _Nowhere:
    """A replay publishes nothing."""

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        """`delivery.Publisher`."""
        if messages:
            raise FatalError("a replay wanted to publish")


class Builder:
    """Builds runs of these settings."""

    def __init__(self, settings: Settings, *, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._now = now

    @cached_property
    def _gate(self) -> PolicyGate:
        return make_gate(self._settings)

    @cached_property
    def _noise(self) -> NoiseFilter:
        return NoiseFilter.load()

    def log(self, topic: str, live: Truth) -> TurnLog:
        """The log of this name; raises FatalError for another than `turns` and `turns.sealed`."""
        if topic == SEALED:
            return KafkaLog(self._settings, topic, Unsealing(live, DataKeys(make_wrapper(self._settings))))
        if topic != PLAIN:
            raise FatalError(f"turns are in {PLAIN} and {SEALED}, not in {topic}")
        return KafkaLog(self._settings, topic, plain)

    @asynccontextmanager
    async def replay(
        self, live: Truth, beside: Truth, log: TurnLog, judging: Judging, executor: Executor
    ) -> AsyncIterator[Replay]:
        """A run that judges in this way."""
        settings, metrics, gate = self._settings, Metrics(), self._gate
        channel, model = None, None
        if settings.model_enabled:
            [model] = make_models(settings, answer_schema())
            channel = ModelChannel(model, pricing(settings))
        delivery = Delivery(beside, _Nowhere(), executor, metrics, now=self._now)
        intake = Intake(RuleBook.of(judging.rules), self._noise, gate)
        nearest = self._nearest(live)
        stages = Stages(
            IngestStage(intake, batch_limits(settings), metrics, self._door(live)),
            ExtractStage(beside, delivery, gate, metrics, channel, attempts=settings.model_attempts),
            ResolveStage("candidates", nearest, metrics),
            ResolveStage("commands", nearest, metrics),
        )
        pipeline = Pipeline(live, stages, batch_limits(settings), judging.prompt)
        try:
            yield Replay(live, beside, log, pipeline, stages.ingest, channel, prompt=judging.prompt, now=self._now)
        finally:
            if model is not None:
                await model.aclose()

    def _door(self, live: Truth) -> ReplayDoor:
        return ReplayDoor(live, make_identities(self._settings), DataKeys(make_wrapper(self._settings)))

    def _nearest(self, live: Truth) -> Nearest:
        """Sentences are compared as the live workers compare them."""
        with live.reading() as connection:
            rows = [row for row in collections.existing(connection) if row.status is State.LIVE]
        name = rows[0].embedder if rows else None
        calibration = calibration_of(rows[0]) if rows else None
        settings = self._settings
        renew = partial(comparison, open_embedder(settings, name), calibration)
        return Nearest(
            renew(),
            renew=renew,
            dedupe=settings.dedupe_similarity,
            conflict=settings.conflict_similarity,
        )
