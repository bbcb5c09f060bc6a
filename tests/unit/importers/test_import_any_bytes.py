"""Tests: whatever bytes a file has, its format is told or refused in words, and one bad record costs only itself."""

from __future__ import annotations

import contextlib
import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.importers import ImportOptions, UnreadableFile, detect_format, read_log
from streams.importers.detect import NAMES
from tests.unit.importers.conftest import Read

NO_TEXT = {
    "half a surrogate pair": b"\xed\xa0\x80",
    "half a pair, escaped": rb"\ude00",
    "beyond the last character": b"\xf4\x90\x80\x80",
    "an overlong zero": b"\xc0\x80",
    "a byte of no character": b"\xff",
    "a zero": b"\x00",
}
NO_JSON = {
    "an integer of five thousand digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "a number beyond all numbers": b'{"a": 1.5e999999999999999999999}',
    "a float as long as a page": b'{"a": ' + b"9" * 5_000 + b".5}",
    "nothing but brackets": b"[" * 60_000,
    "nothing but objects": b'{"a":' * 10_000,
}
LINES = {
    "jsonl": {"conversation_id": "c", "turn_id": "1", "user_id": "u", "role": "user", "text": "hi",
              "sent_at": "2024-05-01T10:00:00Z"},
    "openai": {"messages": [{"role": "user", "content": "hi"}]},
    "sharegpt": {"conversations": [{"from": "human", "value": "hi"}]},
    "langchain": {"type": "human", "content": "hi"},
}  # fmt: skip
JSON_EXPORTS = ("telegram.json", "discord.json")


@pytest.mark.parametrize("broken", NO_TEXT.values(), ids=NO_TEXT)
@pytest.mark.parametrize("name", ["jsonl", "openai", "sharegpt"])
def test_a_first_line_that_is_no_text_is_one_bad_record(
    tmp_path: Path, read: Callable[..., Read], name: str, broken: bytes
) -> None:
    """Scenario: a gateway cut a name in half, in the first line of its log.
    We expect the other lines as if it were not there, without being told the format."""
    path = tmp_path / "log.jsonl"
    good = json.dumps(LINES[name]).encode() + b"\n"
    path.write_bytes(b'{"who": "' + broken + b'"}\n' + good * 3)
    assert detect_format(path) == name
    got = read(path)
    assert [turn.text for turn in got.turns] == ["hi"] * 3
    assert [record.line for record in got.bad] == [1]


@pytest.mark.parametrize("broken", NO_JSON.values(), ids=NO_JSON)
@pytest.mark.parametrize("name", LINES)
def test_a_first_line_that_no_parser_likes_does_not_hide_the_format(tmp_path: Path, name: str, broken: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(broken[:60_000] + b"\n" + json.dumps(LINES[name]).encode() + b"\n")
    assert detect_format(path) == name


@pytest.mark.parametrize("broken", NO_TEXT.values(), ids=NO_TEXT)
@pytest.mark.parametrize("sample", JSON_EXPORTS)
def test_an_export_that_stops_being_text_is_read_up_to_there(
    samples: Path, tmp_path: Path, read: Callable[..., Read], sample: str, broken: bytes
) -> None:
    """Scenario: bytes in the middle of a chat export are no text. We expect what stands before them, and one bad record."""
    whole = (samples / sample).read_bytes()
    strings = [place for place in range(len(whole)) if whole.startswith(b'": "', place)]
    place = strings[len(strings) * 3 // 4] + 4
    path = tmp_path / sample
    path.write_bytes(whole[:place] + broken + whole[place:])
    assert detect_format(path) == detect_format(samples / sample)
    before, got = read(sample), read(path)
    assert got.turns and got.turns == before.turns[: len(got.turns)]
    assert {record.reason for record in got.bad} - {record.reason for record in before.bad} <= {
        "encoding",
        "lone_surrogate",
        "not_json",
    }
    assert len(got.bad) > 0


@pytest.mark.parametrize("sample", ["whatsapp_android.txt", "whatsapp_ios.txt", "signal.txt"])
def test_a_text_export_is_known_by_its_good_lines(samples: Path, tmp_path: Path, sample: str) -> None:
    path = tmp_path / "export.log"
    for broken in NO_TEXT.values():
        path.write_bytes(broken + b"\n" + (samples / sample).read_bytes())
        assert detect_format(path) == detect_format(samples / sample)


def test_a_table_is_known_by_its_ending_or_its_header_whatever_stands_below(tmp_path: Path) -> None:
    for name in ("log.csv", "log.txt"):
        path = tmp_path / name
        path.write_bytes(b"text,sent_at\n" + b"\n".join(NO_TEXT.values()))
        assert detect_format(path) == "csv"


def test_a_zip_of_anything_is_told_by_its_names_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    for member, format in {"general/2024-01-31.json": "slack", "_chat.txt": "whatsapp"}.items():
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("caf\udce9.bin".encode("utf-8", "surrogateescape").decode("cp437"), b"\xff")
            archive.writestr(member, b"[\xed\xa0\x80")
        assert detect_format(path) == format
    whole = path.read_bytes()
    # A name that is said to be UTF-8 and is not, in the directory at the end.
    lying = whole[: whole.rindex(b"caf")] + b"\xff\xff\xff" + whole[whole.rindex(b"caf") + 3 :]
    for damaged in (b"PK\x03\x04", whole[:-20], lying):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableFile):
            detect_format(path)


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_before_nonsense_is_refused_in_words(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(mark + b"\xd8\x00\xd8\x00\xff")
    with pytest.raises(UnreadableFile):
        detect_format(path)


heads = st.sampled_from(
    [b"", b"{", b"[", b"PK", b"PK\x03\x04", b"text,sent_at\n", b"\xef\xbb\xbf{", b"\xff\xfe", b'{"']
)
odd = st.sampled_from([*NO_TEXT.values(), b'"', b"\n{", b'{"messages":[{"role":', b'{"turn_id":"', b"\xed", b"1e9"])
anything = st.builds(lambda head, parts: head + b"".join(parts), heads, st.lists(odd | st.binary(max_size=20)))


@settings(max_examples=100, deadline=None)
@given(anything, st.sampled_from([".jsonl", ".csv", ".zip", ".txt"]), st.sampled_from(NAMES))
def test_any_bytes_are_told_or_refused_and_never_an_error_of_ours(content: bytes, ending: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{ending}"
        path.write_bytes(content)
        with contextlib.suppress(UnreadableFile):
            assert detect_format(path) in NAMES
        for format in (None, name):
            with contextlib.suppress(UnreadableFile):
                list(read_log(path, format, ImportOptions()))
