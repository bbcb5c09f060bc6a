"""Unit tests: the rooms stay apart — who may import what, who may ack, how long an agent is, what is not a name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "processors", "streams", "sinks", "recall")

FORBIDDEN = {
    "schemas": {"processors", "streams", "sinks", "recall"},
    "processors": {
        *("streams", "sinks", "recall"),
        *("faust", "mode", "aiokafka", "confluent_kafka", "sqlalchemy", "alembic", "pymysql", "openai", "httpx"),
        *("qdrant_client", "qdrant_edge"),
    },
    "sinks": {"streams", "recall"},
}

NOT_A_NAME = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}


def _modules(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imports(path: Path) -> set[str]:
    """Top-level packages that a module imports, also inside functions and for type checking only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def _called_methods(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("path", _modules(*FORBIDDEN), ids=_name)
def test_a_module_imports_nothing_from_a_room_downstream_of_its_own(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    assert not _imports(path) & FORBIDDEN[room]


@pytest.mark.parametrize("path", _modules("processors", "schemas"), ids=_name)
def test_judgement_has_no_wall_clock(path: Path) -> None:
    """Time is injected: `datetime.now`, `date.today`, `time.time` would make a replay next year give other dates."""
    clocks = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
    clocks |= {("time", name) for name in ("time", "time_ns", "monotonic", "perf_counter")}
    read = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value
            read.add((owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", ""), node.attr))
    assert not read & clocks


@pytest.mark.parametrize("path", _modules(*ROOMS), ids=_name)
def test_only_delivery_acks(path: Path) -> None:
    """Faust commits past an unacked message once a later one is acked, so the order of acks is written in one place."""
    if path != ROOT / "streams" / "delivery.py":
        assert not _called_methods(path) & {"ack", "noack"}


def test_an_agent_is_at_most_eighty_lines() -> None:
    lines = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in _modules("streams/agents")}
    assert {name: count for name, count in lines.items() if count > 80} == {}


@pytest.mark.parametrize("path", _modules(*ROOMS, "ops", "tests"), ids=_name)
def test_a_file_is_named_after_what_it_holds(path: Path) -> None:
    names = {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    assert not {word for name in names for word in name.split("_")} & NOT_A_NAME


@pytest.mark.parametrize("path", _modules(*ROOMS, "ops"), ids=_name)
def test_a_file_says_in_its_first_line_what_room_it_is_in(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring
    assert text.startswith('"""')
