"""Development services by hand: `python -m ops.dev up` leaves them running, `down` ends them, `status` tells."""

from __future__ import annotations

import argparse
import json
import sys

import psutil

from ops.dev.server import DEV, ROOT, Server, ServiceFailed, ServiceUnavailable
from ops.dev.services import Kafka, MariaDb

_RUN = DEV / "run"
_STATE = _RUN / "processes.json"
_ENV = DEV / "services.env"
_DATABASE = "memriver"


def main() -> int:
    """Returns the exit code: 0; 1 when a service cannot start; for `status`, 3 when one does not run."""
    parser = argparse.ArgumentParser(prog="python -m ops.dev", description=__doc__)
    parser.add_argument("what", choices=["up", "down", "status"])
    what = parser.parse_args().what
    if what == "up":
        return _up()
    if what == "down":
        return _down()
    return _status()


def _servers() -> tuple[Kafka, MariaDb]:
    return Kafka(_RUN / "kafka", attached=False), MariaDb(_RUN / "mariadb", attached=False)


def _up() -> int:
    _RUN.mkdir(parents=True, exist_ok=True)
    kafka, mariadb = _servers()
    processes = _processes()
    for server in (kafka, mariadb):
        if server.name not in processes:
            try:
                _say(f"{server.name}: starting, log in {server.log.relative_to(ROOT)}")
                _note(server.start())
            except (ServiceUnavailable, ServiceFailed) as error:
                _say(str(error))
                return 1
    url = mariadb.create_database(_DATABASE)
    _ENV.touch(mode=0o600)
    _ENV.write_text(f"MEMRIVER_KAFKA_BOOTSTRAP={kafka.bootstrap}\nMEMRIVER_DATABASE_URL={url}\n", encoding="utf-8")
    _say(f"both run; these lines are in {_ENV.relative_to(ROOT)} too:")
    sys.stdout.write(_ENV.read_text(encoding="utf-8"))
    return 0


def _down() -> int:
    processes = _processes()
    for process in processes.values():
        process.terminate()
    _, stubborn = psutil.wait_procs(list(processes.values()), timeout=30)
    for process in stubborn:
        process.kill()
    for name in processes:
        _say(f"{name}: ended; its data stays in {(_RUN / name).relative_to(ROOT)}")
    _STATE.unlink(missing_ok=True)
    _ENV.unlink(missing_ok=True)
    return 0


def _status() -> int:
    processes = _processes()
    for name in (Kafka.name, MariaDb.name):
        _say(f"{name}: " + (f"runs, process {processes[name].pid}" if name in processes else "does not run"))
    if len(processes) < 2:
        return 3
    sys.stdout.write(_ENV.read_text(encoding="utf-8"))
    return 0


def _note(server: Server) -> None:
    if server.pid is None:
        raise ServiceFailed(f"{server.name} ended right after it had started")
    noted = {name: [process.pid, process.create_time()] for name, process in _processes().items()}
    noted[server.name] = [server.pid, psutil.Process(server.pid).create_time()]
    _STATE.write_text(json.dumps(noted), encoding="utf-8")


def _processes() -> dict[str, psutil.Process]:
    """The noted processes that still live; a reused process id is told by its other start time."""
    if not _STATE.exists():
        return {}
    living = {}
    for name, (pid, created) in json.loads(_STATE.read_text(encoding="utf-8")).items():
        try:
            process = psutil.Process(pid)
            if process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE:
                living[name] = process
        except psutil.NoSuchProcess:
            continue
    return living


def _say(line: str) -> None:
    # Standard output carries the settings only, so that it can be read by `eval` and `env`.
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
