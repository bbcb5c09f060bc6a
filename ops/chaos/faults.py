"""Chaos, the hand that does it: each kind of fault on the house, and its healing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pymysql

from ops.chaos.house import House, Worker
from ops.chaos.schedule import Fault, FaultKind
from ops.dev.server import Server
from tests.doubles.model_replies import Behaviour

_MODEL = {
    FaultKind.MODEL_LIMITS: Behaviour.RATE_LIMITED,
    FaultKind.MODEL_FAILS: Behaviour.SERVER_ERROR,
    FaultKind.MODEL_HANGS: Behaviour.HANG,
    FaultKind.MODEL_RESETS: Behaviour.RESET,
}
_LATE_SECONDS = 0.05


class Faults:
    """Does faults, one at a time on each server and worker; whatever is done is undone before `do` returns."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._actions: dict[FaultKind, Callable[[Fault], Awaitable[str]]] = {
            FaultKind.KILL: self._kill,
            FaultKind.TERM: self._term,
            FaultKind.ZOMBIE: self._zombie,
            FaultKind.ZOMBIE_SENDING: self._zombie_sending,
            FaultKind.JOIN: self._join,
            FaultKind.BROKER_STOP: lambda fault: self._down(fault, house.kafka, kill=False),
            FaultKind.BROKER_KILL: lambda fault: self._down(fault, house.kafka, kill=True),
            FaultKind.BROKER_FREEZE: lambda fault: self._freeze(fault, house.kafka),
            FaultKind.DATABASE_STOP: lambda fault: self._down(fault, house.mariadb, kill=False),
            FaultKind.DATABASE_KILL: lambda fault: self._down(fault, house.mariadb, kill=True),
            FaultKind.DATABASE_FREEZE: lambda fault: self._freeze(fault, house.mariadb),
            FaultKind.DATABASE_SLOW: self._database_slow,
            FaultKind.DATABASE_CUT: self._database_cut,
            FaultKind.DATABASE_LOCK: self._database_lock,
            FaultKind.VECTORS_KILL: lambda fault: self._down(fault, house.vectors, kill=True),
            FaultKind.VECTORS_REFUSE: self._vectors_refuse,
            FaultKind.VECTORS_SLOW: self._vectors_slow,
            FaultKind.VECTORS_CUT: self._vectors_cut,
        }

    async def do(self, fault: Fault) -> str:
        """Returns what came of it, in a few words."""
        async with self._locks[self._subject(fault)]:
            if fault.kind in _MODEL:
                return await self._model(fault)
            return await self._actions[fault.kind](fault)

    def _subject(self, fault: Fault) -> str:
        name = fault.kind.value.split(":")[0]
        return f"worker {fault.worker}" if name == "worker" else name

    def _worker(self, fault: Fault) -> Worker:
        return self._house.workers[fault.worker]

    async def _kill(self, fault: Fault) -> str:
        return self._house.kill(self._worker(fault))

    async def _term(self, fault: Fault) -> str:
        worker = self._worker(fault)
        went = await self._house.terminate(worker)
        self._house.launch(worker)
        return went

    async def _zombie(self, fault: Fault) -> str:
        process = self._worker(fault).process
        if process is None or process.poll() is not None:
            return "was not running"
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        process.send_signal(signal.SIGCONT)
        return "woke up after its partitions had moved"

    async def _zombie_sending(self, fault: Fault) -> str:
        """It has committed and waits for the vectors; then it sleeps while another one takes over; then it goes on."""
        async with self._locks["vector server"]:
            self._house.to_vectors.hold()
            await asyncio.sleep(0.7)
            process = self._worker(fault).process
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGSTOP)
            self._house.to_vectors.release()
        if process is None:
            return "was not running"
        await asyncio.sleep(fault.seconds)
        process.send_signal(signal.SIGCONT)
        return "woke up with messages in hand that had been sent by another one"

    async def _join(self, fault: Fault) -> str:
        worker = Worker("worker 4")
        self._house.workers.append(worker)
        self._house.launch(worker)
        await asyncio.sleep(fault.seconds)
        went = await self._house.terminate(worker)
        self._house.workers.remove(worker)
        return went

    async def _down(self, fault: Fault, server: Server, *, kill: bool) -> str:
        await asyncio.to_thread(server.kill if kill else server.stop)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(server.start)
        return f"away for {fault.seconds} s and its start"

    async def _freeze(self, fault: Fault, server: Server) -> str:
        pid = server.pid
        if pid is None:
            return "was not running"
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
        return "stood still"

    async def _database_slow(self, fault: Fault) -> str:
        self._house.to_database.delay = _LATE_SECONDS
        await asyncio.sleep(fault.seconds)
        self._house.to_database.delay = 0.0
        return f"each answer {2 * _LATE_SECONDS:.1f} s late"

    async def _database_cut(self, fault: Fault) -> str:
        self._house.to_database.cut()
        return "every connection reset"

    async def _database_lock(self, fault: Fault) -> str:
        """As a long transaction of somebody else."""
        house = self._house
        await asyncio.to_thread(_lock_owners, house.mariadb.url(house.database), fault.seconds)
        return "let go"

    async def _vectors_refuse(self, fault: Fault) -> str:
        proxy = self._house.to_vectors
        proxy.refusing = True
        proxy.cut()
        await asyncio.sleep(fault.seconds)
        proxy.refusing = False
        return "took connections again"

    async def _vectors_slow(self, fault: Fault) -> str:
        self._house.to_vectors.delay = _LATE_SECONDS
        await asyncio.sleep(fault.seconds)
        self._house.to_vectors.delay = 0.0
        return f"each answer {2 * _LATE_SECONDS:.1f} s late"

    async def _vectors_cut(self, fault: Fault) -> str:
        self._house.to_vectors.cut()
        return "every connection reset"

    async def _model(self, fault: Fault) -> str:
        model = self._house.model
        before = model.requests["/chat/completions"]
        model.default = _MODEL[fault.kind]
        await asyncio.sleep(fault.seconds)
        model.default = Behaviour.OK
        return f"{model.requests['/chat/completions'] - before} calls meanwhile"


def _lock_owners(url: str, seconds: float) -> None:
    import time

    from sqlalchemy.engine import make_url

    address = make_url(url)
    connection = pymysql.connect(
        host=address.host or "",
        port=address.port or 0,
        user=address.username or "",
        password=address.password or "",
        database=address.database,
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT owner_key FROM owners FOR UPDATE")
            cursor.fetchall()
            time.sleep(seconds)
        connection.rollback()
    finally:
        connection.close()
