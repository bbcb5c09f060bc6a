"""Serving: from a runtime to the HTTP API with MCP beside it; the read side's half of the composition root."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from fastapi import FastAPI
from starlette.applications import Starlette

from recall.access import Keyring, ReadLog
from recall.api import ApiConfig, ChangeHub, create_app
from recall.api.limits import TokenBuckets
from recall.context import ContextBuilder
from recall.guidance import ApprovedHints
from recall.mcp import http_app, make_server
from recall.reading import MemoryReader
from recall.screening import TurnScreen
from recall.service import RecallService
from recall.verbs import Publish, Verbs
from schemas import MemoryUpdated
from streams.access import make_keyring, make_writer
from streams.connection import client_options
from streams.erasing.composing import AskedHere
from streams.health import Health, health_routes
from streams.runtime import Runtime, wall_clock
from streams.settings import Settings

log = logging.getLogger("memriver.serving")

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReadSide:
    """The verbs and what they share with the entrances."""

    verbs: Verbs
    keyring: Keyring
    reads: ReadLog


def make_read_side(runtime: Runtime, publish: Publish) -> ReadSide:
    """Everything behind HTTP, MCP and the command line's verbs."""
    settings, truth, gate, session = runtime.settings, runtime.truth, runtime.gate, runtime.session
    screen = TurnScreen(gate)

    def mask(text: str) -> str:
        return gate.mask_text(text).text

    service = RecallService(truth, runtime.collections, screen=screen, hints=ApprovedHints())
    reader = MemoryReader(truth, service, ContextBuilder(session, mask, wall_clock), session)
    reads = ReadLog(truth, wall_clock)
    verbs = Verbs(truth, reader, make_writer(settings), publish, reads, wall_clock, screen)
    return ReadSide(verbs, make_keyring(settings, truth), reads)


def api_app(runtime: Runtime, health: Health) -> FastAPI:
    """HTTP API at /v1, MCP at /mcp, health and metrics where they always are. The runtime must be started."""
    settings = runtime.settings
    side = make_read_side(runtime, runtime.producer.publish)
    hub = ChangeHub()
    pace = TokenBuckets(settings.api_rate, settings.api_burst, time.monotonic)
    tools: Starlette = http_app(make_server(side.verbs, side.keyring, buckets=pace), hosts=settings.mcp_hosts)
    return create_app(
        runtime.truth,
        side.verbs,
        side.keyring,
        side.reads,
        hub,
        wall_clock,
        config=ApiConfig(
            rate=settings.api_rate,
            burst=settings.api_burst,
            max_body=settings.api_max_body,
            cors_origins=settings.api_cors_origins,
        ),
        erasures=AskedHere(settings, runtime.truth, wall_clock),
        routes=(*health_routes(health, runtime), *tools.routes),
        lifespans=(lambda: tools.router.lifespan_context(tools), lambda: _feeding(settings, hub), _warmed_up),
    )


@asynccontextmanager
async def _warmed_up() -> AsyncIterator[None]:
    """The last step before requests come: what start-up made is no longer looked at by the garbage collector."""
    # Modules, schemas, routes, rules and the segmenter's dictionary live as long as the process. Every full collection
    # would walk all of them, and a request that it falls into waits for that: it would be the slowest percentile.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@asynccontextmanager
async def _feeding(settings: Settings, hub: ChangeHub) -> AsyncIterator[None]:
    """Events from the log to the hub, while the application runs."""
    task = asyncio.create_task(_feed(settings, hub), name="changes")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _feed(settings: Settings, hub: ChangeHub) -> None:
    """From the log's end on. A broker that is away ends the open streams, so that their readers know they missed something."""
    while True:
        # No group: each process of the API sees every partition, and remembers nothing.
        consumer = AIOKafkaConsumer(
            settings.topic("memory_updated"), **client_options(settings), auto_offset_reset="latest", group_id=None
        )
        try:
            await consumer.start()
            async for record in consumer:
                if record.value is not None:
                    _pass_on(hub, record.value)
        except KafkaError as error:
            log.warning("the change feed lost the broker (%s)", type(error).__name__)
            hub.close()
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            await consumer.stop()


def _pass_on(hub: ChangeHub, raw: bytes) -> None:
    try:
        hub.publish(MemoryUpdated.from_bytes(raw))
    except ValueError:
        log.warning("an event on the log could not be read and was left out of the change feed")


async def serve_mcp(runtime: Runtime, key: str) -> None:
    """MCP over stdin and stdout for the holder of one key, until the client goes. The runtime must be started."""
    side = make_read_side(runtime, runtime.producer.publish)
    # A wrong key is said now, in one line, and not at the first call.
    await asyncio.to_thread(side.keyring.principal, key)
    try:
        await make_server(side.verbs, side.keyring, key=key).run_stdio_async()
    finally:
        await asyncio.to_thread(side.reads.flush)
