"""Tests: whatever stands in a field of one record, the import goes on."""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

JUNK: tuple[Any, ...] = (None, True, 5, -1, 1e300, "", "x", "1e999", [], [5, None], {}, {"a": 1}, [{"a": 5}], "\x00")
MESSAGES: dict[str, Callable[[Any], list[Any]]] = {
    "telegram.json": lambda data: data["messages"],
    "discord.json": lambda data: data["messages"],
    "messenger.json": lambda data: data["messages"],
    "sharegpt.json": lambda data: data,
    "langchain_dict.json": lambda data: data,
    "langchain_dumpd.json": lambda data: data,
}


def _mutations(record: Any) -> Iterator[Any]:
    """The record with every value in turn, at any depth, replaced by every kind of junk."""
    if isinstance(record, dict | list):
        for key in list(record) if isinstance(record, dict) else range(len(record)):
            for inner in _mutations(record[key]):
                changed = copy.copy(record)
                changed[key] = inner
                yield changed
    yield from JUNK


@pytest.mark.parametrize("name", MESSAGES)
def test_json_messages_with_junk_in_any_field_never_stop_the_import(
    read: Any, samples: Path, tmp_path: Path, name: str
) -> None:
    data = json.loads((samples / name).read_text(encoding="utf-8-sig"))
    messages = MESSAGES[name](data)
    messages[:] = [changed for message in list(messages) for changed in _mutations(message)]
    path = tmp_path / name
    path.write_text(json.dumps(data).replace("1e+300", "1e300"))
    assert len(read(path, name.split(".")[0].split("_")[0]).records) >= len(messages)


def test_openai_lines_with_junk_in_any_field_never_stop_the_import(read: Any, samples: Path, tmp_path: Path) -> None:
    lines = (samples / "openai.jsonl").read_text().splitlines()
    path = tmp_path / "openai.jsonl"
    path.write_text("\n".join(json.dumps(changed) for line in lines for changed in _mutations(json.loads(line))))
    assert read(path, "openai").turns


def test_native_lines_with_junk_in_any_field_never_stop_the_import(read: Any, samples: Path, tmp_path: Path) -> None:
    line = json.loads((samples / "native.jsonl").read_text().splitlines()[0])
    path = tmp_path / "native.jsonl"
    path.write_text("\n".join(json.dumps(changed) for changed in _mutations(line)))
    mapping = {"user_id": "user_id", "sent_at": "sent_at", "text": "text", "timezone": "timezone"}
    assert read(path, "jsonl").turns
    assert read(path, "jsonl", mapping=mapping).turns


def test_slack_messages_and_users_with_junk_in_any_field_never_stop_the_import(
    read: Any, samples: Path, tmp_path: Path
) -> None:
    path = tmp_path / "junk.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((samples / "slack").rglob("*.json")):
            records = json.loads(file.read_text(encoding="utf-8"))
            changed = [variant for record in records for variant in _mutations(record)]
            archive.writestr(file.relative_to(samples / "slack").as_posix(), json.dumps(changed))
    assert read(path, "slack").turns
