"""Command line, the long-running commands: `up` (embedded), `worker`, `serve`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from pathlib import Path
from typing import Annotated, get_args

import typer
from starlette.types import ASGIApp

from processors.exceptions import FatalError, PoisonError
from streams.allocator import keep_small
from streams.cli.embedded import Embedded, quiet_logs
from streams.cli.output import console
from streams.ending import leave
from streams.health import Health, HealthServer
from streams.runtime import Runtime, wall_clock
from streams.settings import ALL_STAGES, Settings, StageName

log = logging.getLogger("memriver.cli")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(worker)
    app.command()(serve)
    app.command()(mcp)


def up(
    data: Annotated[Path, typer.Option(help="directory of the database and the vectors")] = Path("memriver-data"),
) -> None:
    """Everything in one process, for trying: embedded broker, SQLite, Qdrant Edge. Nothing on the broker survives it."""
    settings = Settings()
    quiet_logs(settings.log_level)
    asyncio.run(_up(settings, data))


async def _up(settings: Settings, data: Path) -> None:
    embedded = Embedded(settings, data)
    try:
        await embedded.start(lambda _event: None)
        health = Health(embedded.runtime, now=wall_clock)
        server = HealthServer(health, embedded.runtime, _api(embedded.runtime, health))
        address = await server.start()
        console.print(
            f"Kafka     {embedded.settings.kafka_bootstrap}  (embedded: for trying, nothing is on disk)", markup=False
        )
        console.print(f"Database  sqlite:///{data / 'memriver.db'}", markup=False)
        console.print(f"API       {address}/v1  {address}/mcp  {address}/openapi.json", markup=False)
        console.print(f"Health    {address}/healthz  {address}/readyz  {address}/metrics", markup=False)
        console.print(
            f"Try       MEMRIVER_KAFKA_BOOTSTRAP={embedded.settings.kafka_bootstrap} memriver import FILE", markup=False
        )
        await _until_stopped(health, _stop_signal())
        await server.stop()
    finally:
        await embedded.stop()


def worker(
    stages: Annotated[str, typer.Option(help=f"comma-separated: {', '.join(ALL_STAGES)}")] = ",".join(ALL_STAGES),
) -> None:
    """Run stages against Kafka, the database and Qdrant. Run as many as the topics have partitions."""
    settings = Settings()
    quiet_logs(settings.log_level)
    asyncio.run(_work(settings, _stages(stages)))


def serve() -> None:
    """The HTTP API and MCP, with health and metrics; takes part in no stage."""
    settings = Settings()
    quiet_logs(settings.log_level)
    asyncio.run(_work(settings, (), api=True))


def mcp(
    key: Annotated[str, typer.Option("--key", envvar="MEMRIVER_KEY", help="the agent's key", show_envvar=True)],
) -> None:
    """An MCP server on stdin and stdout, for an agent that starts its tools itself; `serve` has the same over HTTP."""
    settings = Settings()
    quiet_logs("ERROR")
    asyncio.run(_mcp(settings, key))


async def _mcp(settings: Settings, key: str) -> None:
    from streams.serving import serve_mcp

    runtime = Runtime(settings, ())
    try:
        await runtime.start()
        await serve_mcp(runtime, key)
    finally:
        await runtime.stop()


def _stages(text: str) -> tuple[StageName, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in get_args(StageName)]
    if unknown or not names:
        raise PoisonError(
            "invalid_option", f"--stages takes {', '.join(ALL_STAGES)}, not {', '.join(unknown) or 'nothing'}"
        )
    return tuple(stage for stage in ALL_STAGES if stage in names)


async def _work(settings: Settings, stages: tuple[StageName, ...], *, api: bool = False) -> None:
    runtime = Runtime(settings, stages)
    health = Health(runtime, now=wall_clock)
    server = HealthServer(health, runtime, _api(runtime, health) if api else None)
    stop = _stop_signal()
    told: float | None = None
    try:
        if await _started(runtime, stop):
            address = await server.start()
            log.info("running %s; %s at %s", ", ".join(stages) or "no stage", "API" if api else "health", address)
            await _until_stopped(health, stop)
            told = time.monotonic()
            await server.stop()
        else:
            told = time.monotonic()  # while it was still starting
    finally:
        ended = await runtime.stop()
    if told is not None:
        log.info("stopped %.1f s after being told to; it may take %g", time.monotonic() - told, settings.stop_seconds)
    if not ended:
        leave()


def _api(runtime: Runtime, health: Health) -> ASGIApp:
    # FastAPI and the MCP SDK take a second to import; a worker and the other commands need neither.
    from streams.serving import api_app

    return api_app(runtime, health)


def _stop_signal() -> asyncio.Event:
    """Set by SIGINT or SIGTERM, from now on: a worker may have work in hand before it has wholly started."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    return stop


async def _started(runtime: Runtime, stop: asyncio.Event) -> bool:
    """Start, unless told to stop before that is done."""
    starting, waiting = asyncio.create_task(runtime.start()), asyncio.create_task(stop.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False
    await starting
    return not stop.is_set()


async def _until_stopped(health: Health, stop: asyncio.Event) -> None:
    """Until the signal; a stage that ends on its own ends the process before that (`streams.delivery`)."""
    watch = asyncio.create_task(health.watch())
    waiting = asyncio.create_task(stop.wait())
    small = asyncio.create_task(keep_small())
    done, _pending = await asyncio.wait({watch, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (watch, waiting, small):
        task.cancel()
    if watch in done and watch.exception() is not None:
        raise FatalError("the watchdog stopped") from watch.exception()
    log.info("stopping: unfinished work goes back to the broker")
