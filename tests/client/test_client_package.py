"""Client tests: the distribution is safe next to an agent's own code — few imports, nothing of the service, Python 3.10."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[2] / "client" / "memriver_client"
MODULES = sorted(CLIENT.rglob("*.py"))
ALLOWED = {"memriver_client", "httpx", "aiokafka"}
YOUNGER_THAN_3_10 = {"StrEnum", "Self", "UTC", "TaskGroup", "ExceptionGroup", "assert_never", "tomllib", "override"}


def _name(path: Path) -> str:
    return str(path.relative_to(CLIENT))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_imports_only_the_standard_library_and_the_two_dependencies(path: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    assert found - ALLOWED <= sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_is_python_3_10(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not (names | attributes) & YOUNGER_THAN_3_10
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "asyncio.timeout" not in calls


def test_only_one_module_knows_kafka_and_only_the_http_ones_httpx() -> None:
    text = {_name(path): path.read_text(encoding="utf-8") for path in MODULES}
    assert [name for name, code in text.items() if "import aiokafka" in code or "from aiokafka" in code] == [
        "replica/log.py"
    ]
    assert [name for name, code in text.items() if "import httpx" in code] == [
        "async_client.py",
        "exchange.py",
        "sync_client.py",
    ]
