"""Tests of the importers: samples and a short way to read them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import Turn
from streams.importers import BadRecord, ImportOptions, Record, ServiceMessage, read_log


class Read:
    """All records of a log, sorted by kind."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.turns = [record for record in records if isinstance(record, Turn)]
        self.bad = [record for record in records if isinstance(record, BadRecord)]
        self.service = [record.kind for record in records if isinstance(record, ServiceMessage)]

    @property
    def reasons(self) -> list[tuple[int | None, str]]:
        return [(record.line, record.reason) for record in self.bad]

    def turn(self, turn_id: str) -> Turn:
        return next(turn for turn in self.turns if turn.turn_id == turn_id)


@pytest.fixture
def samples() -> Path:
    return Path(__file__).parents[2] / "data" / "importers"


@pytest.fixture
def read(samples: Path) -> Callable[..., Read]:
    """`read("openai.jsonl", "openai", user_id="u")`; a path instead of a name is taken as it is."""

    def reader(name: str | Path, format: str | None = None, **options: Any) -> Read:
        path = name if isinstance(name, Path) else samples / name
        return Read(list(read_log(path, format, ImportOptions(**options))))

    return reader


@pytest.fixture
def slack_zip(samples: Path, tmp_path: Path) -> Path:
    """The Slack sample as the zip that Slack hands out."""
    target = tmp_path / "workspace.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((samples / "slack").rglob("*.json")):
            archive.write(file, file.relative_to(samples / "slack").as_posix())
    return target
