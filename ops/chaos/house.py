"""Chaos, what runs: broker, database, vector server, model, and workers with a supervisor that restarts the dead."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ops.chaos.model import likes_found
from ops.chaos.nursery import Forked, Nursery
from ops.chaos.proxy import Proxy
from ops.dev.services import Kafka, MariaDb, VectorServer
from tests.doubles.model_server import ModelServer

SESSION_SECONDS = 4.0
"""After that long without a heartbeat the broker gives a worker's partitions away."""
RESTART_PAUSE = 1.0
STOP_SECONDS = 10.0
"""A worker that is asked to stop should have stopped by then; the report says so when it has not."""
FORCED = "did not stop"
"""How `House.terminate` begins when it had to kill."""
KEY = "a key for chaos runs only"


@dataclass(slots=True)
class Worker:
    """One place for a worker process: who runs there, and what happened to those before."""

    name: str
    process: Forked | None = None
    wanted: bool = False
    # A death that was ordered is no news.
    ordered: bool = False
    started: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker that ended although nobody had asked for it."""

    at: float
    worker: str
    code: int
    last_words: str


def judging(name: str) -> dict[str, str]:
    """How a worker judges turns: the first one as `memriver worker` does by default, with a process beside it, which dies and
    sleeps with nobody; the others in their own process, since each judge's start costs seconds that a short run has not."""
    return {} if name == "worker 1" else {"MEMRIVER_JUDGE_PROCESSES": "0"}


@dataclass(slots=True)
class House:
    """Everything that a run needs. `say(what)` writes into the run's diary."""

    directory: Path
    kafka: Kafka
    mariadb: MariaDb
    database: str
    prefix: str
    nursery: Nursery
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    vectors: VectorServer = field(init=False)
    model: ModelServer = field(default_factory=lambda: ModelServer(rule=likes_found, retry_after="0.2"))
    to_database: Proxy = field(init=False)
    to_vectors: Proxy = field(init=False)
    workers: list[Worker] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    _supervisor: asyncio.Task[None] | None = None
    _closing: bool = False

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.vectors = VectorServer(self.directory / "vectors")
        self.to_database, self.to_vectors = Proxy(self.mariadb.port), Proxy(self.vectors.port)

    async def start(self, workers: int) -> None:
        """The servers, and the proxies before them; then the workers, and somebody who looks after them."""
        await asyncio.to_thread(self.vectors.start)
        self.model.keep_calls = False
        self.model.start()
        await self.to_database.start()
        await self.to_vectors.start()
        self.workers = [Worker(f"worker {number + 1}") for number in range(workers)]
        for worker in self.workers:
            self.launch(worker)
        self._supervisor = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """Workers first, in an orderly way, then the rest. Also of a house that never came to stand."""
        self._closing = True
        if self._supervisor is not None:
            self._supervisor.cancel()
        await asyncio.gather(*(self.terminate(worker) for worker in self.workers))
        await self.to_database.stop()
        await self.to_vectors.stop()
        await asyncio.to_thread(self.model.stop)
        await asyncio.to_thread(self.vectors.stop)

    def launch(self, worker: Worker) -> None:
        """A worker with all stages, as a supervisor would start it."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRIVER_", "OPENAI_"))}
        url = self.mariadb.url(self.database).replace(f":{self.mariadb.port}/", f":{self.to_database.port}/")
        environment = clean | {
            "MEMRIVER_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "MEMRIVER_DATABASE_URL": url,
            "MEMRIVER_QDRANT_URL": f"edge+http://127.0.0.1:{self.to_vectors.port}",
            "MEMRIVER_MODEL_BASE_URL": self.model.base_url,
            "MEMRIVER_MODEL_API_KEY": "none",
            "MEMRIVER_MODEL_TIMEOUT_SECONDS": "3",
            # Kills come far more often here than a batch that kills its worker would.
            "MEMRIVER_MODEL_ATTEMPTS": "100",
            "MEMRIVER_DATA_DIR": str(self.directory / worker.name.replace(" ", "-")),
            "MEMRIVER_TOPIC_PREFIX": self.prefix,
            "MEMRIVER_HASH_KEY": KEY,
            "MEMRIVER_SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
            "MEMRIVER_BATCH_SECONDS": "2",
            # Of the few things that people say here. The second opinion has none.
            "MEMRIVER_CHECKPOINT_BEHIND": "2",
            "MEMRIVER_HTTP_PORT": "0",
            "MEMRIVER_LOG_LEVEL": "INFO",
            **judging(worker.name),
        }
        with self._log(worker).open("ab") as log:
            log.write(b"--- started\n")
        worker.process = self.nursery.start(["worker"], environment, self._log(worker))
        worker.wanted, worker.ordered, worker.started = True, False, self.clock()

    async def terminate(self, worker: Worker) -> str:
        """SIGTERM; by force when it does not obey. Returns how it went."""
        process, worker.wanted, worker.ordered = worker.process, False, True
        if process is None or process.poll() is not None:
            return "was not running"
        began = self.clock()
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 3 * STOP_SECONDS)
        took = self.clock() - began
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return f"{FORCED} within {took:.0f} s and was killed"
        return f"stopped after {took:.1f} s, code {process.returncode}"

    def kill(self, worker: Worker) -> str:
        """SIGKILL."""
        worker.ordered = True
        if worker.process is None or worker.process.poll() is not None:
            return "was not running"
        worker.process.send_signal(signal.SIGKILL)
        worker.process.wait()
        return f"killed {self.clock() - worker.started:.0f} s after its start"

    def _log(self, worker: Worker) -> Path:
        return self.directory / f"{worker.name.replace(' ', '-')}.log"

    def _last_words(self, worker: Worker) -> str:
        lines = self._log(worker).read_text(errors="replace").splitlines()[-400:]
        telling = [line for line in lines if " CRITICAL " in line or "memriver:" in line]
        return (telling or lines or [""])[-1][:300]

    async def _supervise(self) -> None:
        """Restart who died, after a pause, as systemd or Kubernetes would."""
        while True:
            await asyncio.sleep(0.2)
            for worker in self.workers:
                if not worker.wanted or worker.process is None or worker.process.poll() is None:
                    continue
                code = worker.process.poll() or 0
                if not worker.ordered:
                    self.ended.append(Ended(self.clock(), worker.name, code, self._last_words(worker)))
                    self.say(f"{worker.name} ended by itself with {code}: {self.ended[-1].last_words}")
                worker.wanted = False
                asyncio.get_running_loop().call_later(RESTART_PAUSE, self._revive, worker)

    def _revive(self, worker: Worker) -> None:
        if (
            not self._closing
            and worker in self.workers
            and (worker.process is None or worker.process.poll() is not None)
        ):
            self.launch(worker)

    def running(self) -> Sequence[Worker]:
        """Workers whose process lives."""
        return [worker for worker in self.workers if worker.process is not None and worker.process.poll() is None]
