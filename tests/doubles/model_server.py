"""Tests, doubles: a local server that speaks the OpenAI API and misbehaves on order.

    with ModelServer() as server:
        server.script(Behaviour.RATE_LIMITED, Behaviour.OK)
        … base_url=server.base_url …

Behaviours come from a queue (`script`), else from a marker in the request (`#model:fences`), else `default`. By itself:
`python tests/doubles/model_server.py --port 8089`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import re
import socket
import struct
import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.doubles.model_replies import Behaviour, Rule, answer, sentences_found, spoiled

_MARKER = re.compile(r"#model:([a-z_0-9]+)")


@dataclass(frozen=True, slots=True)
class Call:
    """One chat request as it came in, and how it was answered."""

    behaviour: Behaviour
    body: dict[str, Any] = field(repr=False)

    @property
    def system(self) -> str:
        """The first message."""
        return str(self.body["messages"][0]["content"])

    @property
    def user(self) -> str:
        """The last message."""
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


class ModelServer:
    """The server in a thread of its own, on a free port of 127.0.0.1 unless one is given.

    `latency` is seconds before each answer (0: the benchmark's stub); `retry_after` is what a 429 asks for; `dimension`
    is the length of an embedding.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        rule: Rule = sentences_found,
        default: Behaviour = Behaviour.OK,
        latency: float = 0.0,
        retry_after: str = "0.01",
        dimension: int = 64,
        model: str = "double-1",
    ) -> None:
        self.rule = rule
        self.default = default
        self.latency = latency
        self.retry_after = retry_after
        self.dimension = dimension
        self.model = model
        self.port = port
        self.calls: list[Call] = []
        self.requests: Counter[str] = Counter()
        self.keep_calls = True
        self._queue: deque[Behaviour] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def base_url(self) -> str:
        """For `AsyncOpenAI(base_url=…)`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def behaviours(self) -> list[Behaviour]:
        """How the chat calls so far were answered."""
        return [call.behaviour for call in self.calls]

    def script(self, *behaviours: Behaviour) -> None:
        """Answer the next chat calls like this, in order."""
        with self._lock:
            self._queue.extend(behaviours)

    def start(self) -> Self:
        """Listen; returns when connections are accepted."""
        ready: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), daemon=True, name="model-double"
        )
        self._thread.start()
        self.port = ready.result(timeout=10)
        return self

    def stop(self) -> None:
        """Close all connections, also those that hang, and end the thread."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _serve(self, ready: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._connection(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        try:
            server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        except OSError as error:
            ready.set_exception(error)
            return
        ready.set_result(server.sockets[0].getsockname()[1])
        await self._stopping.wait()
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when the connection is over."""
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        path = target.split("?", 1)[0].removeprefix("/v1")
        with self._lock:
            self.requests[path] += 1
        if method == "GET" and path == "/models":
            models = [{"id": self.model, "object": "model", "created": 0, "owned_by": "double"}]
            return await _send(writer, _json(200, {"object": "list", "data": models}))
        if method == "POST" and path == "/embeddings":
            return await _send(writer, _json(200, self._embeddings(json.loads(raw))))
        if method == "POST" and path == "/chat/completions":
            return await self._chat(writer, json.loads(raw))
        return await _send(writer, _json(404, {"error": {"message": "no such path", "code": None}}))

    async def _chat(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> bool:
        behaviour = self._next(body)
        if self.keep_calls:
            self.calls.append(Call(behaviour, body))
        if self.latency:
            await asyncio.sleep(self.latency)
        match behaviour:
            case Behaviour.HANG:
                await asyncio.Event().wait()
            case Behaviour.RESET:
                connection: socket.socket = writer.get_extra_info("socket")
                # Linger 0: the close is a reset, not an orderly end.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            case Behaviour.SLOW_DRIP:
                return await _drip(writer, self._completion(self._good(body)))
        return await _send(writer, self._answer(behaviour, body))

    def _next(self, body: dict[str, Any]) -> Behaviour:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
        marker = _MARKER.search(json.dumps(body.get("messages", ""), ensure_ascii=False))
        return Behaviour(marker[1]) if marker else self.default

    def _good(self, body: dict[str, Any]) -> str:
        return answer(self.rule(str(body["messages"][-1]["content"])))

    def _answer(self, behaviour: Behaviour, body: dict[str, Any]) -> _Answer:
        failure = self._failure(behaviour, body)
        if failure is not None:
            return failure
        items = self.rule(str(body["messages"][-1]["content"]))
        good = answer(items)
        match behaviour:
            case Behaviour.TRUNCATED:
                return self._completion(good[: max(1, len(good) * 2 // 3)], finish="length")
            case Behaviour.REFUSAL:
                return self._completion("", finish="content_filter")
            case Behaviour.REASONING_ONLY:
                return self._completion("", reasoning=good)
            case _:
                return self._completion(spoiled(behaviour, items))

    def _failure(self, behaviour: Behaviour, body: dict[str, Any]) -> _Answer | None:
        asked = (body.get("response_format") or {}).get("type")
        match behaviour:
            case Behaviour.RATE_LIMITED:
                return _error(429, "slow down", "rate_limit_exceeded", ("retry-after", self.retry_after))
            case Behaviour.RATE_LIMITED_SILENT:
                return _error(429, "slow down", "rate_limit_exceeded")
            case Behaviour.SERVER_ERROR:
                return _error(500, "internal error", None)
            case Behaviour.UNAUTHORIZED:
                return _error(401, "wrong key", "invalid_api_key")
            case Behaviour.TOO_LONG:
                return _error(400, "maximum context length is 10 tokens", "context_length_exceeded")
            case Behaviour.CONTENT_POLICY:
                return _error(400, "content management policy", "content_filter")
            case Behaviour.BAD_REQUEST:
                return _error(400, "cannot do that", None)
            case Behaviour.NO_RESPONSE_FORMAT if asked is not None:
                return _error(400, "response_format is not supported by this model", None)
            case Behaviour.NO_JSON_SCHEMA if asked == "json_schema":
                return _error(400, "This response_format type is unavailable now", "invalid_request_error")
            case Behaviour.NO_MAX_TOKENS if "max_tokens" in body:
                return _error(400, "Unsupported parameter: 'max_tokens'", "unsupported_parameter")
            case Behaviour.ERROR_WITH_200:
                return _json(200, {"error": {"message": "something went wrong", "code": "unknown"}})
            case Behaviour.RATE_LIMIT_WITH_200:
                return _json(200, {"error": {"message": "slow down", "code": 429}})
            case Behaviour.HTML_WITH_200:
                return _Answer(200, b"<html><body>Bad gateway</body></html>", content_type="text/html")
            case _:
                return None

    def _completion(self, text: str, *, finish: str = "stop", reasoning: str | None = None) -> _Answer:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
        return _json(
            200,
            {
                "id": "chatcmpl-double",
                "object": "chat.completion",
                "created": 0,
                "model": self.model,
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": usage,
            },
        )

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        data = [
            {"object": "embedding", "index": index, "embedding": _vector(text, self.dimension)}
            for index, text in enumerate(texts)
        ]
        return {"object": "list", "model": self.model, "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def _json(status: int, data: Any, *headers: tuple[str, str]) -> _Answer:
    return _Answer(status, json.dumps(data, ensure_ascii=False).encode(), headers)


def _error(status: int, message: str, code: str | None, *headers: tuple[str, str]) -> _Answer:
    return _json(status, {"error": {"message": message, "type": "error", "param": None, "code": code}}, *headers)


def _head(answer: _Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Double", f"content-type: {answer.content_type}"]
    lines += [f"content-length: {len(answer.body)}", *(f"{name}: {value}" for name, value in answer.headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _send(writer: asyncio.StreamWriter, answer: _Answer) -> bool:
    writer.write(_head(answer) + answer.body)
    await writer.drain()
    return True


async def _drip(writer: asyncio.StreamWriter, answer: _Answer) -> bool:
    """A byte now and then: never idle for long, never done."""
    writer.write(_head(answer))
    for position in range(len(answer.body)):
        writer.write(answer.body[position : position + 1])
        await writer.drain()
        await asyncio.sleep(0.02)
    return True


def _vector(text: str, dimension: int) -> list[float]:
    """A unit vector that depends on the text alone."""
    raw = hashlib.shake_256(text.encode()).digest(dimension)
    values = [byte - 127.5 for byte in raw]
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


def main() -> None:
    """Serve until interrupted."""
    arguments = argparse.ArgumentParser(description="OpenAI-compatible server that misbehaves on order")
    arguments.add_argument("--port", type=int, default=8089)
    arguments.add_argument("--default", type=Behaviour, default=Behaviour.OK, choices=list(Behaviour))
    arguments.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    given = arguments.parse_args()
    server = ModelServer(port=given.port, default=given.default, latency=given.latency)
    server.keep_calls = False
    with server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
