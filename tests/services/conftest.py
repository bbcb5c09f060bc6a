"""Service tests: everything in this folder talks to real servers and carries the mark that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks this folder's tests `services`; pytest hands over the items of all folders."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.services)
