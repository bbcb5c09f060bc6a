"""HTTP API, limits: how often a key may ask, how much it may send, and the headers that every answer carries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall.api.problems import problem, unexpected

_BUCKETS = 20_000
"""Callers remembered; the one that has been quiet longest goes first."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"strict-transport-security", b"max-age=31536000"),
)
"""Of the OWASP REST security cheat sheet; `no-store`, since every answer is somebody's private life."""


class TokenBuckets:
    """A bucket per caller: `burst` requests at once, `rate` per second after that. Per process."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str) -> float:
        """0.0 when the request may go on; otherwise the seconds to wait."""
        now = self._clock()
        with self._lock:
            tokens, then = self._held.pop(caller, (self._burst, now))
            tokens = min(self._burst, tokens + (now - then) * self._rate)
            wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
            self._held[caller] = (tokens - 1 if not wait else tokens, now)
            if len(self._held) > _BUCKETS:
                self._held.popitem(last=False)
        return wait


class Guard:
    """Outermost: reads the body up to a limit, adds the headers, and turns what nobody caught into a plain 500."""

    def __init__(self, app: ASGIApp, *, max_body: int) -> None:
        self._app = app
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = {name.lower() for name, _value in message.get("headers", [])}
                more = [header for header in _HEADERS if header[0] not in given]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        body = await self._body(scope, receive)
        if body is None:
            await problem(413, "too_large", f"a request may have {self._max_body} bytes")(scope, receive, guarded)
            return
        try:
            await self._app(scope, _replayed(body, receive), guarded)
        except Exception as error:
            if started:
                raise
            await unexpected(error)(scope, receive, guarded)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return b""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body:
            return None
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay
