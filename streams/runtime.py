"""The composition root: from settings to running stages. Nothing else builds adapters."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from processors.batching import BatchLimits
from processors.exceptions import FatalError
from processors.extraction.schema import answer_schema
from processors.intake import Intake
from processors.keywords import tokens
from processors.noise import NoiseFilter
from processors.policy.threats import ThreatScanner
from processors.ports import ChatReply
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from processors.session.render import summary_schema
from recall.session import SessionMemory
from sinks.sealing.guard import Named
from sinks.truth import Truth, make_engine
from sinks.truth.migrate import check as check_schema
from sinks.vectors import VectorStore
from streams.agents import bury as bury_agent
from streams.agents import extract as extract_agent
from streams.agents import feedback as feedback_agent
from streams.agents import ingest as ingest_agent
from streams.agents import resolve as resolve_agent
from streams.clock import BatchClock
from streams.collector import settle
from streams.delivery import Delivery
from streams.ending import Ending
from streams.erasing.composing import make_erasure_clock
from streams.expiry import ExpiryClock
from streams.faust_app import make_app
from streams.gating import make_gate
from streams.judging import JudgePool
from streams.metrics import Metrics
from streams.modelling import make_models, pricing
from streams.outflow import Outflow
from streams.position import committed
from streams.producer import EventProducer
from streams.projection import VectorProjection
from streams.reindex.clock import ReindexClock
from streams.sealing import make_guard, make_sealer
from streams.settings import Settings, StageName
from streams.stages.bury import BuryStage
from streams.stages.extract import ExtractStage, ModelChannel
from streams.stages.feedback import FeedbackStage
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from streams.summaries import SummaryClock
from streams.sweeping import Sweep
from streams.vectors import live_comparison, open_collections, settle_live

if TYPE_CHECKING:
    from streams.model import OpenAIChatModel

log = logging.getLogger("memriver.runtime")

_WITH_VECTORS: frozenset[StageName] = frozenset({"resolve", "feedback", "erasure", "reindex"})
"""Stages that read or write vectors. A worker without any of them leaves Qdrant Edge, which one process may open, to another."""


def wall_clock() -> datetime:
    """Now, in UTC; the only clock of the service."""
    return datetime.now(UTC)


def open_truth(settings: Settings) -> Truth:
    """The relational store of these settings; the schema must be there already."""
    return Truth(make_engine(settings_url(settings)))


def settings_url(settings: Settings) -> str:
    """The database address, password included; never to be logged."""
    return settings.database_url.get_secret_value()


def batch_limits(settings: Settings) -> BatchLimits:
    """When a batch closes."""
    return BatchLimits(settings.batch_turns, settings.batch_tokens, timedelta(seconds=settings.batch_seconds))


class Runtime:
    """Everything one process runs. `start`, then `stop`; `failed` is set when a stage ended on its own."""

    def __init__(
        self,
        settings: Settings,
        stages: Sequence[StageName],
        *,
        now: Callable[[], datetime] = wall_clock,
        on_fatal: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self.stages = tuple(stages)
        # Without a stage it is the API, which recalls.
        self.uses_vectors = not stages or not _WITH_VECTORS.isdisjoint(stages)
        self.metrics = Metrics()
        self.truth = open_truth(settings)
        self.collections = open_collections(settings, self.truth)
        self.producer = EventProducer(settings)
        self._executor = ThreadPoolExecutor(settings.worker_threads, thread_name_prefix="memriver")
        projection = VectorProjection(self.collections)
        self.delivery = Delivery(
            self.truth,
            Outflow(self.producer, projection, self._executor, truth=self.truth),
            self._executor,
            self.metrics,
            now=now,
            group_size=settings.group_size,
            linger_seconds=settings.group_linger_ms / 1000,
            on_fatal=on_fatal,
        )
        self.gate = make_gate(settings)
        self.model: OpenAIChatModel | None = None
        self._summariser: OpenAIChatModel | None = None
        if settings.model_enabled:
            self.model, self._summariser = make_models(settings, answer_schema(), summary_schema())
        self.session = self._make_session(now)
        self.clock = BatchClock(self.delivery, batch_limits(settings), self.metrics)
        self.expiry = ExpiryClock(self.delivery)
        self.summaries = SummaryClock(self.delivery, self.truth, self.session, rng=random.Random())
        self.erasure = make_erasure_clock(self, now)
        self.reindex = ReindexClock(settings, self.truth, self.collections, self.delivery.fatal, now=now)
        self._now = now
        self._judges: JudgePool | None = None
        self._apps: list[Any] = []
        self._sweep = Sweep(self.delivery)
        self._tasks: list[asyncio.Task[None]] = []

    def _make_session(self, now: Callable[[], datetime]) -> SessionMemory:
        gate, scanner, guard = self.gate, ThreatScanner(), make_guard(self.settings)
        return SessionMemory(
            self.truth,
            mask=lambda text: gate.mask_text(text).text,
            suspect=lambda text: bool(scanner.scan(text)),
            now=now,
            model=self._summariser,
            spent=self._spent,
            refuses=lambda connection, thread: guard.refuses(connection, [Named(thread.tenant, thread.owner_key)])[0],
        )

    def _spent(self, reply: ChatReply) -> None:
        """A summary costs like an extraction: the cost of a thousand turns has both in it."""
        self.metrics.model_tokens.labels("prompt").inc(reply.prompt_tokens)
        self.metrics.model_tokens.labels("completion").inc(reply.completion_tokens)
        self.metrics.model_cost.inc(pricing(self.settings)(reply))

    async def start(self) -> None:
        """Connect, drain what timers left behind, join the consumer groups.

        Raises:
            TransientError, FatalError: something that must be there is not.
        """
        await asyncio.to_thread(self.truth.ping)
        await asyncio.to_thread(check_schema, settings_url(self.settings))
        if self.uses_vectors:
            await asyncio.to_thread(settle_live, self.settings, self.truth, self.collections, self._now())
            # The segmenter of their keywords loads its dictionary on first use, for a second; not in the middle of a group.
            await asyncio.to_thread(tokens, "预热")
        await self.producer.start()
        for stage in self.stages:
            if stage == "clock":
                self._tasks.append(asyncio.create_task(self.clock.run(), name="clock"))
            elif stage == "expiry":
                self._tasks.append(asyncio.create_task(self.expiry.run(), name="expiry"))
            elif stage == "summaries":
                self._tasks.append(asyncio.create_task(self.summaries.run(), name="summaries"))
            elif stage == "erasure":
                self._tasks.append(asyncio.create_task(self.erasure.run(), name="erasure"))
            elif stage == "reindex":
                self._tasks.append(asyncio.create_task(self.reindex.run(), name="reindex"))
            else:
                self._apps.append(self._app(stage))
        if self._judges is not None:
            await self._judges.warm()
        await asyncio.gather(*(app.start() for app in self._apps))
        self._tasks.append(asyncio.create_task(self._sweep.run(), name="sweep"))
        settle()
        if not self.settings.model_enabled and "extract" in self.stages:
            log.warning("the model channel is off (MEMRIVER_MODEL_BASE_URL is not set): batches wait in the database")

    def _app(self, stage: StageName) -> Any:
        settings, delivery = self.settings, self.delivery
        app = make_app(settings, stage)
        if stage == "ingest":
            intake = Intake(RuleBook.load(), NoiseFilter.load(), self.gate)
            if settings.judge_processes:
                self._judges = JudgePool(intake, partial(make_gate, settings), settings.judge_processes)
            work = IngestStage(intake, batch_limits(settings), self.metrics, make_sealer(settings))
            ingest_agent.register(app, settings, delivery, work, self._judges)
        elif stage == "bury":
            bury_agent.register(app, settings, delivery, BuryStage())
        elif stage == "extract":
            channel = ModelChannel(self.model, pricing(settings)) if self.model is not None else None
            extract_agent.register(
                app,
                settings,
                delivery,
                ExtractStage(
                    self.truth,
                    delivery,
                    self.gate,
                    self.metrics,
                    channel,
                    attempts=settings.model_attempts,
                    guard=make_guard(settings),
                ),
            )
        elif stage == "resolve":
            renew = partial(live_comparison, self.collections)
            nearest = Nearest(
                renew(),
                renew=renew,
                dedupe=settings.dedupe_similarity,
                conflict=settings.conflict_similarity,
            )
            resolve_agent.register(
                app,
                settings,
                delivery,
                ResolveStage(
                    "candidates", nearest, self.metrics, make_guard(settings), behind=settings.checkpoint_behind
                ),
                ResolveStage(
                    "commands", nearest, self.metrics, make_guard(settings), behind=settings.checkpoint_behind
                ),
            )
        elif stage == "feedback":
            heard = FeedbackStage(self.gate, RuleBook.load(), self.metrics, self._model_of_recall, make_guard(settings))
            feedback_agent.register(app, settings, delivery, heard)
        else:
            raise FatalError(f"there is no stage {stage}")

        async def assigned(_app: Any, partitions: set[Any], **_more: Any) -> None:
            delivery.assigned(stage, {partition.partition for partition in partitions})
            # A group that was away longer than its log is kept would go on at the log's start without a word.
            places = [(item.topic, item.partition) for item in partitions]
            try:
                for (topic, partition), offset in (await committed(settings, app.conf.id, places)).items():
                    delivery.standing.expect(stage, topic, partition, offset)
            finally:
                delivery.standing.told(stage)

        async def revoked(_app: Any, _partitions: set[Any], **_more: Any) -> None:
            delivery.standing.ask(stage)

        # Faust keeps a weak reference only; the app must hold the handlers itself.
        app.memriver_handlers, app.memriver_stage = (assigned, revoked), stage
        app.on_partitions_assigned.connect(assigned)
        app.on_partitions_revoked.connect(revoked)
        return app

    @property
    def vectors(self) -> VectorStore:
        """The live collection's store at this moment; for health and tests. Whoever asks questions takes `collections`."""
        with self.collections.live() as collection:
            return collection.store

    def _model_of_recall(self) -> str:
        with self.collections.live() as collection:
            return collection.embedder.model

    def lags(self) -> list[tuple[str, str, int, int]]:
        """(stage, topic, partition, messages behind) as far as the consumers know."""
        found: list[tuple[str, str, int, int]] = []
        for app in self._apps:
            consumer = app.consumer
            for partition in consumer.assignment():
                end = consumer.highwater(partition)
                done = consumer._committed_offset.get(partition)
                if end is not None and done is not None:
                    found.append((app.memriver_stage, partition.topic, partition.partition, max(0, end - done)))
        return found

    def unseen(self) -> set[str]:
        """Stages that were given a partition and have had no answer about it from any broker since."""
        return {
            app.memriver_stage
            for app in self._apps
            if any(app.consumer.highwater(partition) is None for partition in app.consumer.assignment())
        }

    async def stop(self, within: float | None = None) -> bool:
        """Leave the groups, so that others take over at once; unfinished work was never acknowledged.

        Half of the time (`within` seconds, by default `stop_seconds` of the settings) is for finishing what is in hand. False
        means that something hangs in a thread, in a server that does not answer: then the process has to be left by force,
        which is as safe as being killed.
        """
        ending = Ending(within if within is not None else self.settings.stop_seconds)
        self.delivery.close()
        for task in self._tasks:
            task.cancel()
        await ending.wait(asyncio.gather(*self._tasks, return_exceptions=True), share=0.25)
        await ending.wait(self.delivery.idle(), share=0.5)
        for app in self._apps:
            # Faust would wait for all that it has read ahead; it was not acknowledged, and others will read it.
            app.conf.stream_wait_empty = False
        # Else a consumer's thread goes on, and would keep the interpreter from ending while no broker answers.
        left = await ending.wait(asyncio.gather(*(app.stop() for app in self._apps)), share=0.5)
        await ending.wait(self.delivery.settle(), share=0.5)
        await ending.wait(self.producer.stop(), share=0.5)
        for model in (self.model, self._summariser):
            if model is not None:
                await ending.wait(model.aclose(), share=0.5)
        if self._judges is not None:
            self._judges.close()
        if not await ending.wait(asyncio.to_thread(self._executor.shutdown)):
            return False
        await self.reindex.stop()
        self.collections.close()
        self.truth.close()
        return left
