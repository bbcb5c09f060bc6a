"""`make bench`: starts Kafka and MariaDB, measures, prints JSON. `--only NAME`, `--turns N` for one of them.

`--only recall` and `--only rebuild` need no server; their size is memories. With `--apart` the vector store of rebuild,
memory and load is a process of its own, so that the memory of builder and worker is their own.

Exit code 1, after the JSON: the load had facts without an event, or work was left over.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ops.bench import measure
from ops.bench.load import load
from ops.bench.rebuild import rebuild
from ops.bench.recall import SIZES, recall
from ops.dev.services import Kafka, MariaDb, VectorServer

_ROOT = Path(__file__).resolve().parents[2]
_WITHOUT_SERVERS = ("recall", "rebuild")


def main() -> None:
    """Run the measurements that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench", description=__doc__)
    parser.add_argument(
        "--only", choices=["importer", "ingest", "whole_path", "latency", "recall", "rebuild", "memory", "load"]
    )
    parser.add_argument(
        "--turns", type=int, default=None, help="size of a measurement: turns; memories for recall and rebuild"
    )
    parser.add_argument(
        "--sizes", type=_sizes, default=SIZES, help="numbers of memories for recall: 1000,10000,100000,1000000"
    )
    parser.add_argument("--apart", action="store_true", help="the vector store in a process of its own")
    parser.add_argument("--conversations", type=int, default=200_000, help="size of the load")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.only in (None, "recall"):
        # Before the others and without a server: what it says of memory is this process's own.
        print("measuring recall …", file=sys.stderr)
        results["recall"] = recall((arguments.turns,) if arguments.turns else arguments.sizes)
    if arguments.only in (None, "rebuild"):
        print("measuring rebuild …", file=sys.stderr)
        results["rebuild"] = rebuild(arguments.turns or 100_000, apart=arguments.apart)
    if arguments.only not in _WITHOUT_SERVERS:
        results |= _with_servers(arguments)
    print(
        json.dumps(
            {
                "machine": _machine(),
                "backend": "Kafka and MariaDB of ops/dev, Qdrant Edge; recall, rebuild: SQLite, Qdrant Edge",
                **results,
            },
            indent=2,
        )
    )
    wrong = [line for result in results.values() if isinstance(result, dict) for line in result.get("wrong", ())]
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    if wrong:
        raise SystemExit(1)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(","))


def _with_servers(arguments: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with (
        Kafka() as kafka,
        MariaDb() as mariadb,
        _model() as model_url,
        VectorServer() if arguments.apart else nullcontext() as vectors,
    ):
        # A server's own default of 128 MB is read from disk again and again after some 300,000 turns, as on no server in use.
        mariadb.execute(f"SET GLOBAL innodb_buffer_pool_size = {2**30}")

        def bench(name: str, **settings: Any) -> measure.Bench:
            url = mariadb.create_database(f"bench_{name}_{time.time_ns()}")
            return measure.Bench(kafka.bootstrap, url, name, qdrant_url=vectors.url if vectors else "", **settings)

        plan: dict[str, Callable[[], Any]] = {
            "importer": lambda: measure.importer(bench("importer"), arguments.turns or 100_000),
            "ingest": lambda: measure.ingest(bench("ingest"), arguments.turns or 40_000),
            "whole_path": lambda: measure.whole_path(bench("whole", model_url=model_url), arguments.turns or 20_000),
            "latency": lambda: measure.latency(bench("latency"), 30, 100),
        }
        if arguments.only == "memory":
            plan = {
                "memory": lambda: measure.memory(bench("memory", model_url=model_url), arguments.turns or 1_000_000)
            }
        if arguments.only == "load":
            plan = {"load": lambda: load(bench("load", model_url=model_url), arguments.conversations)}
        for name, run in plan.items():
            if arguments.only in (None, name):
                print(f"measuring {name} …", file=sys.stderr)
                results[name] = run()
    return results


class _model:
    """The model double at 0 ms, as a process of its own; it lives with the tests and is used from here by path."""

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            [sys.executable, str(_ROOT / "tests/doubles/model_server.py"), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = [word for word in line.split() if word.startswith("http://")]
            if found:
                return found[0]
        raise SystemExit("the model double did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def _machine() -> dict[str, Any]:
    packages = ("faust-streaming", "aiokafka", "SQLAlchemy", "PyMySQL", "qdrant-edge-py", "pydantic")
    return {
        "cpus": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "command": "python -m ops.bench " + " ".join(sys.argv[1:]),
    }


if __name__ == "__main__":
    main()
