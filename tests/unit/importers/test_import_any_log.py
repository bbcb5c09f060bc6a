"""Tests: what holds for every format: detection, determinism, progress, memory, unreadable files."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from processors.exceptions import PoisonError
from schemas import Turn
from streams.importers import FORMATS, ImportOptions, UnreadableFile, detect_format, read_log
from streams.importers.detect import NAMES

SAMPLES = {
    "native.jsonl": "jsonl",
    "table.csv": "csv",
    "openai.jsonl": "openai",
    "sharegpt.json": "sharegpt",
    "langchain_dict.json": "langchain",
    "langchain_dumpd.json": "langchain",
    "telegram.json": "telegram",
    "telegram_account.json": "telegram",
    "discord.json": "discord",
    "whatsapp_android.txt": "whatsapp",
    "whatsapp_ios.txt": "whatsapp",
    "messenger.json": "messenger",
    "messenger_encrypted.json": "messenger",
    "signal.txt": "signal",
}
MAPPING = {"sent_at": "date", "user_id": "author", "text": "message"}


def _options(name: str) -> ImportOptions:
    return ImportOptions(mapping=MAPPING if name == "table.csv" else None)


@pytest.mark.parametrize(("name", "format"), SAMPLES.items())
def test_the_format_is_told_by_the_content(samples: Path, name: str, format: str) -> None:
    assert detect_format(samples / name) == format


def test_every_named_format_has_its_reader() -> None:
    assert tuple(FORMATS) == NAMES


@pytest.mark.parametrize("name", SAMPLES)
def test_importing_twice_gives_equal_turns_with_distinct_ids(samples: Path, name: str) -> None:
    first = list(read_log(samples / name, SAMPLES[name], _options(name)))
    assert first == list(read_log(samples / name, SAMPLES[name], _options(name)))
    turns = [record for record in first if isinstance(record, Turn)]
    keys = {(turn.turn_key, turn.text) for turn in turns}
    assert len(turns) == len(keys)
    assert turns


def test_a_slack_export_is_detected_and_read_the_same_twice(slack_zip: Path) -> None:
    assert detect_format(slack_zip) == "slack"
    assert list(read_log(slack_zip, None, ImportOptions())) == list(read_log(slack_zip, None, ImportOptions()))


@pytest.mark.parametrize("name", SAMPLES)
def test_progress_grows_to_the_size_of_the_file(samples: Path, name: str) -> None:
    seen: list[int] = []
    list(read_log(samples / name, SAMPLES[name], _options(name), progress=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == (samples / name).stat().st_size


def test_progress_of_a_zip_grows_to_its_size(slack_zip: Path) -> None:
    seen: list[int] = []
    list(read_log(slack_zip, "slack", ImportOptions(), progress=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == slack_zip.stat().st_size


@pytest.mark.parametrize("name", SAMPLES)
def test_people_and_conversations_carry_the_tenant_of_the_options(samples: Path, name: str) -> None:
    options = ImportOptions(tenant="acme", mapping=_options(name).mapping)
    records = read_log(samples / name, SAMPLES[name], options)
    assert {record.tenant for record in records if isinstance(record, Turn)} == {"acme"}


def test_what_cannot_be_told_is_refused_with_the_list_of_formats(tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    path.write_text('{"colour": "blue"}')
    with pytest.raises(UnreadableFile, match="jsonl, csv, openai"):
        detect_format(path)
    with pytest.raises(UnreadableFile, match="jsonl, csv, openai"):
        read_log(path, "morse", ImportOptions())


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UnreadableFile) as caught:
            list(read_log(path, name, ImportOptions()))
        assert isinstance(caught.value, PoisonError)


def test_an_empty_file_is_refused_when_its_format_must_be_guessed(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.touch()
    with pytest.raises(UnreadableFile, match="empty"):
        read_log(path, None, ImportOptions())


def test_options_refuse_an_unknown_zone() -> None:
    with pytest.raises(ValueError, match="IANA"):
        ImportOptions(timezone="Mars/Base")


def _native(number: int) -> str:
    return json.dumps(
        {"conversation_id": "c", "turn_id": str(number), "user_id": "u", "role": "user", "text": "x" * 1000,
         "sent_at": "2024-05-01T10:00:00Z"}
    )  # fmt: skip


def _telegram(number: int) -> str:
    return json.dumps(
        {"id": number, "type": "message", "date_unixtime": "1714557600", "from": "A", "from_id": "user1",
         "text": "x" * 1000}
    )  # fmt: skip


def _chunks(kind: str) -> Iterator[str]:
    count = 50_000
    if kind == "jsonl":
        yield from (_native(number) + "\n" for number in range(count))
    elif kind == "whatsapp":
        yield from (f"13/05/24, 21:{n % 60:02} - Ann: {n} " + "x" * 1000 + "\n" for n in range(count))
    else:
        yield '{"name": "big", "type": "personal_chat", "id": 1, "messages": ['
        yield from (_telegram(number) + "," for number in range(count))
        yield _telegram(count) + "]}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "whatsapp", "telegram"])
def test_a_file_of_fifty_megabytes_takes_a_few_of_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "big.log"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_chunks(kind))
    assert path.stat().st_size > 50_000_000
    tracemalloc.start()
    try:
        count = sum(isinstance(record, Turn) for record in read_log(path, kind, ImportOptions()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count >= 50_000
    assert peak < 10_000_000
