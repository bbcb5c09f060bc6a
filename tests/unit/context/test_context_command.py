"""Unit tests, `memriver context`: what an operator sees is what an agent would be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processors.exceptions import FatalError, PoisonError
from schemas import digest
from sinks.truth import Truth, make_engine, memories, turns
from sinks.truth.migrate import upgrade
from streams.cli import app, recalling
from tests.doubles.records import memory, turn, turn_row


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database with one conversation and two people's memories."""
    url = f"sqlite:///{tmp_path / 'truth.db'}"
    upgrade(url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMRIVER_DATABASE_URL", url)
    truth = Truth(make_engine(url))
    held = [
        memory("ann", attribute="allergy", text="对花生过敏", timezone="Asia/Shanghai"),
        memory("bob", owner="bob", text="lives in York"),
    ]
    said = turn(text="我的电话是13800138000，就用方案二", timezone="Asia/Shanghai")
    truth.run(lambda c: memories.save(c, [(item, digest(item.id), digest(item.id)) for item in held]))
    truth.run(lambda c: turns.insert_turns(c, [turn_row(said)]))
    truth.close()


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["context", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("deployment")
def test_the_text_is_printed_with_session_memories_and_the_question_last() -> None:
    text = run("--owner", "ann", "--tenant", "acme", "--conversation", "c1", "推荐一家餐厅")
    assert text.startswith("<memories>\n")
    assert text.endswith("用户的问题：\n推荐一家餐厅\n")
    assert "过敏：“对花生过敏”" in text
    assert "138****8000" in text
    assert "13800138000" not in text
    assert "York" not in text


@pytest.mark.usefixtures("deployment")
def test_json_has_the_citations_and_stays_within_the_budget(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ("--owner", "ann", "--tenant", "acme", "--conversation", "c1", "--budget", "200", "--json")
    CliRunner().invoke(app, ["context", *arguments, "推荐一家餐厅"], catch_exceptions=False)
    view = json.loads(capfdbinary.readouterr().out or run(*arguments, "推荐一家餐厅"))
    assert view["tokens"] <= 200
    assert [item["id"] for item in view["citations"] if item["kind"] == "memory"] == [memory("ann").id]
    assert view["found_by"] == "recall"
    assert view["surfaced"] == [{"id": memory("ann").id, "why": "scene:food"}]


@pytest.mark.usefixtures("deployment")
def test_where_another_process_owns_the_vectors_keywords_answer(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def owned(_settings: object, _truth: object) -> None:
        raise FatalError("another process owns the data directory")

    monkeypatch.setattr(recalling, "open_collections", owned)
    arguments = ("context", "--owner", "ann", "--tenant", "acme", "--json", "花生")
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    view = json.loads(capfdbinary.readouterr().out or run(*arguments[1:]))
    assert view["found_by"] == "keywords"
    assert [item["id"] for item in view["citations"]] == [memory("ann").id]


@pytest.mark.usefixtures("deployment")
def test_nobody_is_never_everybody() -> None:
    for arguments in (["context", "q"], ["context", "--owner", " ", "q"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code != 0
        assert "York" not in result.output
    with pytest.raises(PoisonError, match="IANA"):
        CliRunner().invoke(app, ["context", "--owner", "ann", "--timezone", "Mars", "q"], catch_exceptions=False)
