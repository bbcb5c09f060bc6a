"""Chaos, the nursery: a process that has loaded all of memriver once, and of which each worker is a fork.

A worker needs many seconds of work to load rules and dictionaries; a run that kills thirty of them would measure little
else. What runs in the fork is `memriver worker` as it is, in a process of its own that takes signals and dies like any.

As a program (`python -m ops.chaos.nursery`): one JSON object a line on standard input starts a worker; one on standard
output tells its process id, and one more how it ended. When standard input ends, so do all.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from ops.dev.server import ROOT


class Forked:
    """A worker's process, as much of `subprocess.Popen` as is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = threading.Event()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended, or so many seconds."""
        self._over.wait(timeout)

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens to one that has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def ended(self, code: int) -> None:
        """Its parent has seen it end."""
        self.returncode = code
        self._over.set()


class Nursery:
    """The other end of the program below."""

    def __init__(self) -> None:
        self._born: dict[int, Forked] = {}
        self._newborn: list[int] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ops.chaos.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C ends the run, which then ends the workers in order.
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True, name="nursery")
        self._listener.start()

    def start(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> Forked:
        """`memriver ARGUMENTS` with this environment; waits until the nursery has loaded everything."""
        assert self._process.stdin is not None
        order = {"arguments": arguments, "environment": dict(environment), "log": str(log)}
        with self._news:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            self._news.wait_for(lambda: bool(self._newborn))
            return self._born[self._newborn.pop()]

    def close(self) -> None:
        """End it, and what still lives of its children."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            news = json.loads(line)
            with self._news:
                if "code" in news:
                    self._born[news["pid"]].ended(news["code"])
                else:
                    self._born[news["pid"]] = Forked(news["pid"])
                    self._newborn.append(news["pid"])
                    self._news.notify_all()


def _load() -> None:
    """Everything that every worker needs, once."""
    import streams.cli
    import streams.model
    from processors.keywords import tokens
    from processors.noise import NoiseFilter
    from processors.rules import RuleBook

    assert streams.cli and streams.model
    RuleBook.load()
    NoiseFilter.load()
    tokens("预热")


def _become(arguments: list[str], environment: dict[str, str], log: str) -> NoReturn:
    """In the fork: the command, with its own environment, log and randomness."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.argv = ["memriver", *arguments]
    code = 1
    try:
        from streams.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the traceback goes into the worker's log, and the fork must not return
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell(**news: int) -> None:
    os.write(1, json.dumps(news).encode() + b"\n")


def main() -> None:
    """Fork on order, report deaths, end with the orders."""
    _load()
    waker, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(alarm)
    children: set[int] = set()
    orders = b""
    while True:
        ready, _, _ = select.select([0, waker], [], [])
        if waker in ready:
            os.read(waker, 4_096)
            for pid in list(children):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    children.discard(pid)
                    _tell(pid=pid, code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            data = os.read(0, 65_536)
            if not data:
                break
            *whole, orders = (orders + data).split(b"\n")
            for order in whole:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _become(**json.loads(order))
                children.add(pid)
                _tell(pid=pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
