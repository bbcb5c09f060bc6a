"""Health: progress, not "the process is up". Also the metrics endpoint, and the watchdog that ends a stage that stands still."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from processors.exceptions import FatalError
from sinks.truth import batches, deadletters, outbox, turns
from streams.probes import OK, Answer, Probe
from streams.runtime import Runtime
from streams.watchdog import Standstill

log = logging.getLogger("memriver.health")

OUTBOX_LATE_SECONDS = 60.0
"""An outbox row older than this is not on its way, it is stuck."""

PROBE_SECONDS = 5.0
"""A part that has not answered by then is away, whatever it may say later."""

OFF = "off"


class Health:
    """What one process knows of itself and of the servers it works with."""

    def __init__(
        self, runtime: Runtime, *, now: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtime = runtime
        self._now = now
        self._standstill = Standstill(runtime.settings.stall_seconds, monotonic)
        self._probes = {
            "database": Probe(self._database, PROBE_SECONDS),
            "broker": Probe(runtime.producer.ping, PROBE_SECONDS),
        }
        if runtime.uses_vectors:
            self._probes["vectors"] = Probe(self._vectors, PROBE_SECONDS)

    def stalled(self) -> dict[str, str]:
        """Stages that stand still for longer than the setting allows, and how."""
        delivery = self._runtime.delivery
        waiting = {stage for stage, _error in delivery.waits}
        return self._standstill.look(delivery.progress, self._runtime.lags(), waiting, self._runtime.unseen())

    def live(self) -> dict[str, Any]:
        """Cheap: no server is asked."""
        stages = {
            name: {"handled": progress.handled, "busy": progress.busy_since is not None}
            for name, progress in self._runtime.delivery.progress.items()
        }
        behind: dict[str, int] = {}
        for stage, topic, _partition, messages in self._runtime.lags():
            behind[f"{stage}:{topic}"] = behind.get(f"{stage}:{topic}", 0) + messages
        return {
            "stalled": self.stalled(),
            "stages": stages,
            "behind": behind,
            "model_channel": self._runtime.settings.model_enabled,
        }

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether this process can do its work now, and what each part says of itself in one word (`processors.Outage`).

        A part is asked, and what a stage has met at it counts as well: a disk that is full shows only to those who write.
        A model that is away makes nothing unready: batches wait, the rule channel goes on.
        """
        asked = await asyncio.gather(*(probe.ask() for probe in self._probes.values()))
        parts = {"vectors": Answer(OFF)} | dict(zip(self._probes, asked, strict=True))
        parts |= {"embedder": Answer(OK), "model": self._model()}
        waiting: dict[str, str] = {}
        for stage, error in self._runtime.delivery.waits:
            waiting[stage] = f"{error.part}: {error.outage}"
            if parts.get(error.part, Answer(OK)).state == OK:
                parts[error.part] = Answer(error.outage, str(error))
        stalled = self.stalled()
        facts = {name: value for answer in asked for name, value in answer.facts.items()}
        late = facts.get("outbox_age_seconds", 0.0) >= OUTBOX_LATE_SECONDS
        bad = {name for name, answer in parts.items() if answer.state not in (OK, OFF)}
        fine = not (bad - {"model"}) and not stalled and not late
        report: dict[str, Any] = {
            "status": "not ready" if not fine else "degraded" if bad else "ready",
            **{name: answer.state for name, answer in parts.items()},
            "why": {name: answer.why for name, answer in parts.items() if answer.why},
            "waiting": waiting,
            "stalled": stalled,
        }
        self._measure(facts)
        return fine, report | {name: value for name, value in facts.items() if name != "letters"}

    def _model(self) -> Answer:
        return Answer(OK if self._runtime.settings.model_enabled else OFF)

    def _database(self) -> Mapping[str, Any]:
        now = self._now()
        self._runtime.truth.probe()
        with self._runtime.truth.reading() as connection:
            oldest, waiting = outbox.oldest(connection), turns.oldest_unextracted(connection)
            letters = deadletters.kinds(connection)
            return {
                "outbox_age_seconds": (now - oldest).total_seconds() if oldest else 0.0,
                "unextracted_age_seconds": (now - waiting).total_seconds() if waiting else 0.0,
                "batches": batches.count_by_status(connection),
                "dead_letters": sum(letters.values()),
                "letters": letters,
            }

    def _vectors(self) -> Mapping[str, Any]:
        collections = self._runtime.collections
        with collections.live() as collection:
            collection.store.total()
            facts = {"collection": collection.name}
        # It answers all the same, from the collection that was live before.
        return facts | ({"collection_trouble": collections.trouble} if collections.trouble else {})

    def _measure(self, facts: Mapping[str, Any]) -> None:
        metrics = self._runtime.metrics
        metrics.outbox_age.set(facts.get("outbox_age_seconds", 0.0))
        metrics.unextracted_age.set(facts.get("unextracted_age_seconds", 0.0))
        if "letters" in facts:
            # Whole anew: what nobody waits for any more must not stand there with its last number.
            metrics.dead_letters_waiting.clear()
            for (stage, reason), number in facts["letters"].items():
                metrics.dead_letters_waiting.labels(stage, reason).set(number)

    async def watch(self, interval_seconds: float = 5.0) -> None:
        """Keep the gauges fresh, and end the process when a stage stands still: its supervisor starts a new one."""
        while True:
            await asyncio.sleep(interval_seconds)
            self._lag()
            # First, and without asking any server: a hanging one is among the reasons for a standstill.
            for stage, how in self.stalled().items():
                self._runtime.delivery.fatal(stage, FatalError(how))
            await self.ready()

    def _lag(self) -> None:
        gauge = self._runtime.metrics.lag
        for stage, topic, partition, behind in self._runtime.lags():
            gauge.labels(stage, topic, str(partition)).set(behind)


def health_routes(health: Health, runtime: Runtime) -> tuple[Route, ...]:
    """`/healthz` (alive and moving), `/readyz` (its servers answer), `/metrics` (Prometheus)."""

    def healthz(_request: Request) -> Response:
        report = health.live()
        return JSONResponse(
            {"status": "stalled" if report["stalled"] else "ok"} | report, 503 if report["stalled"] else 200
        )

    async def readyz(_request: Request) -> Response:
        fine, report = await health.ready()
        return JSONResponse(report, 200 if fine else 503)

    def metrics(_request: Request) -> Response:
        return Response(generate_latest(runtime.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return (Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics))


def web_app(health: Health, runtime: Runtime) -> Starlette:
    """The health routes alone, for a process that serves nothing else."""
    return Starlette(routes=list(health_routes(health, runtime)))


class HealthServer:
    """The endpoints on their own port, in the event loop of the process; `app` serves more than health beside them."""

    def __init__(self, health: Health, runtime: Runtime, app: ASGIApp | None = None) -> None:
        settings = runtime.settings
        config = uvicorn.Config(
            app or web_app(health, runtime),
            host=settings.http_host,
            port=settings.http_port,
            log_level="warning",
            access_log=False,
            lifespan="off" if app is None else "on",
            # Streams that are open when the process ends are cut after this; they never end by themselves.
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        # Signals belong to whoever runs the process.
        self._server.capture_signals = _no_signals  # type: ignore[method-assign]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listen; returns the address. Port 0 takes a free one.

        Raises:
            FatalError: the port is taken.
        """
        self._task = asyncio.create_task(self._serve())
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise FatalError("the health endpoint did not start")
            await asyncio.sleep(0.01)
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def _serve(self) -> None:
        try:
            await self._server.serve()
        except SystemExit as error:
            raise FatalError("the HTTP port is taken: set MEMRIVER_HTTP_PORT") from error

    async def stop(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


@contextmanager
def _no_signals() -> Iterator[None]:
    yield
