"""Delivery: an empty truth on SQLite for each test, migrated once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sinks.truth import Truth, make_engine
from sinks.truth.migrate import upgrade


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file to copy."""
    path = tmp_path_factory.mktemp("streams") / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def truth(empty_database: Path, tmp_path: Path) -> Iterator[Truth]:
    """An empty truth."""
    path = tmp_path / "truth.db"
    shutil.copyfile(empty_database, path)
    store = Truth(make_engine(f"sqlite:///{path}"))
    yield store
    store.close()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """Threads for what blocks."""
    with ThreadPoolExecutor(2) as threads:
        yield threads
