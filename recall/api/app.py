"""HTTP API, the application: routes, guards and problems put together; whoever runs it gives it what it needs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from processors.exceptions import MemriverError
from recall.access import Keyring, ReadLog
from recall.api import asking, erasing, governing, intake, memories, problems
from recall.api.callers import House
from recall.api.changes import ChangeHub
from recall.api.idempotency import Answers
from recall.api.limits import Guard, TokenBuckets
from recall.api.problems import Problem
from recall.erasing import Erasures
from recall.verbs import Verbs
from sinks.truth import Truth

log = logging.getLogger("memriver.api")

_FLUSH_SECONDS = 1.0
_HOUSEKEEPING_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Requests per second and key (and how many at once), bytes of a request, and origins that browsers may come from."""

    rate: float = 100.0
    burst: int = 200
    max_body: int = 1_048_576
    cors_origins: tuple[str, ...] = ()
    stranger_rate: float = 1.0
    stranger_burst: int = 20
    clock: Callable[[], float] = field(default=time.monotonic)


def create_app(
    truth: Truth,
    verbs: Verbs,
    keyring: Keyring,
    reads: ReadLog,
    changes: ChangeHub,
    now: Callable[[], datetime],
    *,
    config: ApiConfig | None = None,
    erasures: Erasures | None = None,
    routes: tuple[BaseRoute, ...] = (),
    mounts: tuple[tuple[str, ASGIApp], ...] = (),
    lifespans: tuple[Callable[[], AbstractAsyncContextManager[Any]], ...] = (),
) -> FastAPI:
    """The API; `routes` and `mounts` are served beside it (health, MCP), `lifespans` are open while it runs."""
    chosen = config or ApiConfig()
    answers = Answers(truth, now)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for opened in lifespans:
                await stack.enter_async_context(opened())
            tending = asyncio.create_task(_tend(reads, answers))
            try:
                yield
            finally:
                tending.cancel()
                changes.close()
                await asyncio.to_thread(reads.flush)

    app = FastAPI(
        title="memriver",
        version="1",
        summary="Long-term memory for a fleet of AI agents",
        # The interactive pages load scripts from elsewhere; the description itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.now = now
    app.state.house = House(
        verbs,
        keyring,
        answers,
        TokenBuckets(chosen.rate, chosen.burst, chosen.clock),
        TokenBuckets(chosen.stranger_rate, chosen.stranger_burst, chosen.clock),
        changes,
    )
    problems.install(app)
    for part in (intake, asking, memories, governing):
        app.include_router(part.router, prefix="/v1")
    if erasures is not None:
        app.state.erasures = erasures
        app.include_router(erasing.router, prefix="/v1")
    app.router.routes.extend(routes)
    for path, other in mounts:
        app.mount(path, other)
    if chosen.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(chosen.cors_origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-Match", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["ETag", "Retry-After"],
        )
    app.add_middleware(Guard, max_body=chosen.max_body)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]  # FastAPI's own way to change the description
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        shape = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas |= shape.pop("$defs", {}) | {"Problem": shape}
        app.openapi_schema = schema
    return app.openapi_schema


async def _tend(reads: ReadLog, answers: Answers) -> None:
    """Writes the read log every second, and drops old answers now and then."""
    passed = 0.0
    while True:
        await asyncio.sleep(_FLUSH_SECONDS)
        passed += _FLUSH_SECONDS
        try:
            await asyncio.to_thread(reads.flush)
            if passed >= _HOUSEKEEPING_SECONDS:
                passed = 0.0
                await asyncio.to_thread(answers.forget_old)
        except MemriverError as error:
            log.warning("housekeeping of the API waits: %s", type(error).__name__)
