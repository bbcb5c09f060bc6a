"""Health: progress, not "the process is up". Also the metrics endpoint, and the watchdog that ends a stage that stands still."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
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

from processors.exceptions import FatalError, MemriverError
from sinks.truth import batches, deadletters, outbox, turns
from streams.runtime import Runtime

log = logging.getLogger("memriver.health")

OUTBOX_LATE_SECONDS = 60.0
"""An outbox row older than this is not on its way, it is stuck."""


class Health:
    """What one process knows of itself and of the stores it works on."""

    def __init__(
        self, runtime: Runtime, *, now: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtime = runtime
        self._now = now
        self._monotonic = monotonic

    def stalled(self) -> dict[str, float]:
        """Stages that have had the same work in hand for longer than the setting allows, with the seconds."""
        limit = self._runtime.settings.stall_seconds
        clock = self._monotonic()
        busy = {
            name: clock - progress.busy_since
            for name, progress in self._runtime.delivery.progress.items()
            if progress.busy_since is not None
        }
        return {name: seconds for name, seconds in busy.items() if seconds > limit}

    def live(self) -> dict[str, Any]:
        """Cheap: no store is asked."""
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

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether this process can do its work now; asks the database, and says what is wrong in one word each."""
        report: dict[str, Any] = {"stalled": self.stalled()}
        try:
            with self._runtime.truth.reading() as connection:
                now = self._now()
                oldest, waiting = outbox.oldest(connection), turns.oldest_unextracted(connection)
                report["database"] = "ok"
                report["outbox_age_seconds"] = (now - oldest).total_seconds() if oldest else 0.0
                report["unextracted_age_seconds"] = (now - waiting).total_seconds() if waiting else 0.0
                report["batches"] = batches.count_by_status(connection)
                report["dead_letters"] = deadletters.count(connection)
        except MemriverError as error:
            report["database"] = str(error)
        try:
            self._runtime.vectors.total()
            report["vectors"] = "ok"
        except MemriverError as error:
            report["vectors"] = str(error)
        fine = (
            report["database"] == "ok"
            and report["vectors"] == "ok"
            and not report["stalled"]
            and report["outbox_age_seconds"] < OUTBOX_LATE_SECONDS
        )
        self._runtime.metrics.outbox_age.set(report.get("outbox_age_seconds", 0.0))
        self._runtime.metrics.unextracted_age.set(report.get("unextracted_age_seconds", 0.0))
        return fine, report

    async def watch(self, interval_seconds: float = 5.0) -> None:
        """Keep the gauges fresh, and end the process when a stage stands still: its supervisor starts a new one."""
        while True:
            await asyncio.sleep(interval_seconds)
            self._lag()
            await asyncio.to_thread(self.ready)
            for stage, seconds in self.stalled().items():
                self._runtime.delivery.fatal(stage, FatalError(f"no progress for {seconds:.0f} s with work in hand"))

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

    def readyz(_request: Request) -> Response:
        fine, report = health.ready()
        return JSONResponse({"status": "ready" if fine else "not ready"} | report, 200 if fine else 503)

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
            timeout_graceful_shutdown=5,
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
