"""A promise names its test: every test that a document speaks of is there, under that name."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    chain(
        (ROOT / name for name in ("README.md", "README.zh-CN.md", "ARCHITECTURE.md")),
        *((ROOT / "ops" / room).glob("*.md") for room in ("decisions", "chaos", "runbooks")),
    )
)
_PATH = re.compile(r"tests/[\w./*-]*[\w/*]")
_SPAN = re.compile(r"`([^`\n]+)`")
_FUNCTION = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
_NAMED = re.compile(r"(?P<path>tests/[\w./*-]+)?(?:::)?(?P<name>(?:test_|…)[a-z0-9_]+…?)?(?:\[[\w-]+\])?")


def dangling(text: str) -> list[str]:
    """What the text names and nobody finds. A file without a folder is in that of the file named before it; a function
    without a file is in one of those that the paragraph has named before it. `…` stands for any letters."""
    wrong: list[str] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\||- )", text):
        near: list[Path] = []
        for path in _PATH.findall(_SPAN.sub("", paragraph)):
            wrong += [] if _files(path) else [path]
        for span in _SPAN.findall(paragraph):
            if re.fullmatch(r"test_[\w*]+\.py", span):
                found = [file for place in near[-1:] for file in place.parent.glob(span)]
                near += found
                wrong += [] if found else [span]
            elif (match := _NAMED.fullmatch(span)) is not None and any(match.groups()):
                path, name = match["path"], match["name"]
                if path is not None:
                    near += _files(path)
                    wrong += [] if _files(path) else [span]
                if name is not None and not _has(_files(path) if path else near, name):
                    wrong.append(span)
    return wrong


def _files(path: str) -> list[Path]:
    return sorted(ROOT.glob(path.rstrip("/")))


def _has(files: list[Path], name: str) -> bool:
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    return any(fnmatch(function, name.replace("…", "*")) for function in _FUNCTION.findall(text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    assert dangling(document.read_text(encoding="utf-8")) == []


HERE = "tests/unit/test_documents_name_tests.py"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"`{HERE}`, `tests/unit/`, `tests/unit/test_times*.py`, and {HERE}.", []),
        ("| `tests/unit/test_gone.py` |", ["tests/unit/test_gone.py"]),
        ("see tests/unit/test_gone.py.", ["tests/unit/test_gone.py"]),
        ("`tests/nowhere/`", ["tests/nowhere/"]),
        ("`tests/unit/test_gone*.py`", ["tests/unit/test_gone*.py"]),
        (f"`{HERE}`, `test_topics_file.py`", []),
        (f"`{HERE}`, `test_delivery.py`", ["test_delivery.py"]),
        ("`test_topics_file.py`", ["test_topics_file.py"]),
        (f"`{HERE}::test_every_test_that_a_document_names_is_there`", []),
        (f"`{HERE}::test_that_was_renamed`", [f"{HERE}::test_that_was_renamed"]),
        (f"`{HERE}`:\n`test_every_test_that_a_document_names_is_there`", []),
        (f"`{HERE}`: `test_that_was_renamed`", ["test_that_was_renamed"]),
        (f"`{HERE}` (`…a_document_names…`)", []),
        (f"`{HERE}` (`…a_document_forgot…`)", ["…a_document_forgot…"]),
        (f"`{HERE}`\n\n`test_every_test_that_a_document_names_is_there`",
         ["test_every_test_that_a_document_names_is_there"]),
        ("`…_PASSWORD`, `make check test`, `dlq drop ID… --because x`", []),
    ],
)  # fmt: skip
def test_what_is_not_there_is_found(text: str, wanted: list[str]) -> None:
    assert dangling(text) == wanted


def test_the_documents_are_those_that_promise() -> None:
    named = {path for document in DOCUMENTS for path in _PATH.findall(document.read_text(encoding="utf-8"))}
    assert len(DOCUMENTS) > 40
    assert len(named) > 80
