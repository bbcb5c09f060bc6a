"""Development services: a server process that is started, stopped, killed and started again on the same data."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / ".dev"

# Below Linux's ephemeral range (32768 and up), so that no outgoing connection takes the port while the server is down.
_PORTS = range(15_000, 30_000)


class ServiceUnavailable(RuntimeError):
    """What the service needs is not installed; the message says what. `ops/dev/install.sh` installs it."""


class ServiceFailed(RuntimeError):
    """The server ended or did not become ready; the message ends with the last lines of its log."""


def free_port(chooser: random.Random) -> int:
    """A loopback port nobody listens on. `chooser` picks where to look first, so that parallel runs do not meet."""
    for _ in range(200):
        port = chooser.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServiceFailed("found no free loopback port")


def accepts(port: int) -> bool:
    """Whether something listens on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A server process with a folder of its own.

    `start()` returns when the server answers; `stop()` ends it cleanly; `kill()` is `kill -9`. After either, `start()`
    brings it back on the same port and data. As a context manager it starts on entry and, on exit, stops and removes
    its folder if the folder was temporary.

    Args:
        home: folder for data, configuration and log; None makes a temporary one.
        attached: end the server when this process dies, however it dies.
    """

    name = "server"
    start_seconds = 60.0

    def __init__(self, home: Path | None = None, *, attached: bool = True) -> None:
        self._temporary = home is None
        self.home = Path(tempfile.mkdtemp(prefix=f"memriver-{self.name}-")) if home is None else home.resolve()
        self.home.mkdir(parents=True, exist_ok=True)
        self.log = self.home / f"{self.name}.log"
        self._attached = attached
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def prepare(self) -> None:
        """Makes configuration and data; called before each start, so it leaves alone what is there."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The server's command line."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the server answers."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """Process id while the server runs."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the server unless it runs, and returns when it answers.

        Raises:
            ServiceUnavailable: something it needs is not installed.
            ServiceFailed: it ended, or did not answer within `start_seconds`.
        """
        if self.running:
            return self
        self.prepare()
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            # A session of its own: Ctrl-C in the terminal goes to the test run, which then stops the server in order.
            self._process = subprocess.Popen(
                self.command(), cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if self._attached:
            self._leash = self._tie(self._process.pid)
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Ends the server cleanly (SIGTERM); after 30 s without effect, by force."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`: what a crash of the machine's process leaves behind."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """`stop()` and `start()`: same port, same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """`stop()`, and the folder goes too if it was temporary."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def output(self) -> str:
        """What the server has logged since its latest start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def run(self, command: list[str]) -> None:
        """Runs a preparing command to its end.

        Raises:
            ServiceFailed: it returned non-zero.
        """
        done = subprocess.run(
            command,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            text = done.stdout.decode(errors="replace")
            raise ServiceFailed(f"{self.name}: {Path(command[0]).name} returned {done.returncode}\n{_tail(text)}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not self.ready():
            if not self.running:
                raise ServiceFailed(f"{self.name} ended while starting\n{_tail(self.output())}")
            if time.monotonic() > deadline:
                raise ServiceFailed(
                    f"{self.name} is not ready after {self.start_seconds:.0f} s\n{_tail(self.output())}"
                )
            time.sleep(0.05)

    def _tie(self, pid: int) -> subprocess.Popen[bytes]:
        # `cat` ends when the last holder of the pipe's other end, this process, is gone. Preferred to PR_SET_PDEATHSIG,
        # which fires when the *thread* that started the server ends.
        clean = 'rm -rf -- "$2"' if self._temporary else ":"
        script = f'cat >/dev/null; kill -9 "$1" 2>/dev/null; {clean}'
        return subprocess.Popen(
            ["sh", "-c", script, "leash", str(pid), str(self.home)], stdin=subprocess.PIPE, start_new_session=True
        )

    def _end(self, how: signal.Signals) -> None:
        process, leash = self._process, self._leash
        self._process = self._leash = None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if leash is not None:
            # The whole session: `sh` and the `cat` it waits for.
            os.killpg(leash.pid, signal.SIGKILL)
            leash.wait()
            if leash.stdin is not None:
                leash.stdin.close()


def _tail(text: str, lines: int = 30) -> str:
    return "\n".join(text.splitlines()[-lines:])
