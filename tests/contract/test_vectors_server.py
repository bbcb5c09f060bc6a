"""The server adapter against a server that is away, old, limiting or refusing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from processors.exceptions import FatalError, MemriverError, TransientError
from sinks.vectors import Scope, VectorStore, open_vectors

SCOPE = Scope(tenant="acme", owner_keys=("alice",))


class FakeQdrant(ThreadingHTTPServer):
    """Answers `/` with a version, and everything else with one status."""

    version = "1.16.2"
    status = 500
    headers: dict[str, str]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.headers = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: FakeQdrant

    def do_GET(self) -> None:
        if self.path == "/":
            self._send(200, {"title": "qdrant", "version": self.server.version})
        else:
            self._send(self.server.status, {"status": {"error": "secret detail"}, "time": 0})

    do_PUT = do_POST = do_GET

    def _send(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def qdrant() -> Iterator[FakeQdrant]:
    server = FakeQdrant()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def connect(url: str) -> VectorStore:
    return open_vectors(url, prefix="memories", model="hashing-1", dimension=2, timeout_s=5)


def test_a_server_that_cannot_fence_writes_is_refused(qdrant: FakeQdrant) -> None:
    qdrant.version = "1.15.5"
    store = connect(qdrant.url)
    with pytest.raises(FatalError, match=r"1\.16 or newer"):
        store.ensure()
    store.close()


@pytest.mark.parametrize(
    ("status", "expected"),
    [(500, TransientError), (503, TransientError), (408, TransientError), (401, FatalError), (400, FatalError)],
)
def test_an_error_answer_keeps_its_policy_and_drops_its_text(
    qdrant: FakeQdrant, status: int, expected: type[MemriverError]
) -> None:
    qdrant.status = status
    store = connect(qdrant.url)
    with pytest.raises(expected) as raised:
        store.ensure()
    assert str(status) in str(raised.value)
    assert "secret detail" not in str(raised.value)
    store.close()


def test_a_limit_says_when_to_come_back(qdrant: FakeQdrant) -> None:
    qdrant.status = 429
    qdrant.headers = {"Retry-After": "7"}
    store = connect(qdrant.url)
    with pytest.raises(TransientError) as raised:
        store.ensure()
    assert raised.value.retry_after == 7
    store.close()


def test_a_server_that_is_away_is_transient(qdrant: FakeQdrant) -> None:
    store = connect("http://127.0.0.1:1")
    with pytest.raises(TransientError, match="does not answer"):
        store.ensure()
    store.close()
