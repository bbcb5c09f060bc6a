"""Pipeline tests: runs that several modules look at; starting a river takes seconds, so each log runs once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.river import Left, process

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "ops" / "demo"


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo log as `memriver process --json` saw it, and the directory that it left."""

    result: dict[str, Any]
    stderr: str
    data: Path


def memriver(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, without this machine's settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRIVER_", "OPENAI_"))}
    return subprocess.run(
        [sys.executable, "-m", "streams", *arguments],
        env=clean | {"MEMRIVER_HASH_KEY": "a key for tests only"} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo log through the command line."""
    data = tmp_path_factory.mktemp("demo") / "data"
    done = memriver("process", str(DEMO / "gateway.jsonl"), "--json", "--data", str(data))
    assert done.returncode == 0, done.stderr
    return Demo(json.loads(done.stdout), done.stderr, data)


@pytest.fixture(scope="session")
def demo_again(demo: Demo) -> Left:
    """The same log once more into the same directory, by a second process over a new broker."""
    return process(demo.data, DEMO / "gateway.jsonl", tenant="demo")


@pytest.fixture(scope="session", params=[1, 20260309])
def demo_shuffled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The lines of the log in another order, in a fresh directory."""
    lines = (DEMO / "gateway.jsonl").read_bytes().splitlines(keepends=True)
    random.Random(request.param).shuffle(lines)
    directory = tmp_path_factory.mktemp("shuffled")
    log = directory / "shuffled.jsonl"
    log.write_bytes(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines))
    return process(directory / "data", log, tenant="demo")
