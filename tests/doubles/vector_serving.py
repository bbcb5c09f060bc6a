"""Tests, doubles: the vector server of `memriver vectors serve` in a thread, on a free port of 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

from streams.vector_server import Collections, vector_app


class VectorServing:
    """Serves a directory while the context is open; `stop` and `start` keep the port."""

    def __init__(self, directory: Path, *, api_key: str | None = None) -> None:
        self._directory = directory
        self._api_key = api_key
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._collections: Collections | None = None

    @property
    def url(self) -> str:
        """For `open_vectors`."""
        return f"edge+http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Listen; returns when connections are accepted."""
        self._collections = Collections(self._directory)
        config = uvicorn.Config(
            vector_app(self._collections, api_key=self._api_key),
            port=self.port,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True, name="vector-server")
        self._thread.start()
        waiting = threading.Event()
        for _ in range(1_000):
            if self._server.started:
                return self
            waiting.wait(0.01)
        raise AssertionError("the vector server does not start")

    def stop(self) -> None:
        """Stop listening and give the directory back."""
        if self._server is not None and self._thread is not None and self._collections is not None:
            self._server.should_exit = True
            self._thread.join(timeout=10)
            self._collections.close()
        self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
