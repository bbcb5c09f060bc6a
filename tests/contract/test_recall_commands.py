"""Contract: recall, explain and eval on the command line — JSON for programs, words for people, one line for mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from processors.access import Denied
from processors.exceptions import PoisonError
from schemas import ChangeKind, Evidence, Outcome
from sinks.embedders import make_embedder
from sinks.truth import Truth, make_engine, memories, turns
from sinks.truth.migrate import upgrade
from sinks.vectors import open_vectors
from sinks.vectors.collection import OneCollection
from streams.cli import app
from streams.projection import VectorProjection
from tests.doubles.records import at, change, memory, turn, turn_row


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What `memriver process --data` leaves, with one memory from one turn."""
    url = f"sqlite:///{tmp_path / 'memriver.db'}"
    upgrade(url)
    said = turn(1, text="I live in Leeds.")
    proof = (Evidence(turn_id=said.turn_id, turn_key=said.turn_key, quote="I live in Leeds"),)
    held = memory("home", text="I live in Leeds", evidence=proof)
    truth = Truth(make_engine(url))

    truth.run(lambda connection: turns.insert_turns(connection, [turn_row(said, pending=False)]))
    truth.run(lambda connection: turns.mark(connection, [said.turn_key], Outcome.REMEMBERED))
    truth.run(lambda connection: memories.save(connection, [(held, "slot", "cell")]))
    truth.run(lambda connection: memories.append_versions(connection, [change(held, ChangeKind.CREATED)], at(2)))
    truth.close()
    embedder = make_embedder("hashing")
    store = open_vectors(
        f"edge:{tmp_path / 'vectors'}", prefix="memories", model=embedder.model, dimension=embedder.dimension
    )
    store.ensure()
    VectorProjection(OneCollection(store, embedder)).write([held])
    store.close()
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_recall_prints_what_was_found_with_its_scores(directory: Path) -> None:
    done = run(
        *("recall", "Where do I live?", "--owner", "ann", "--tenant", "acme"),
        *("--data", str(directory), "--json", "--explain"),
    )
    assert done.exit_code == 0, done.output
    (item,) = json.loads(done.stdout)["items"]
    assert item["memory"]["text"] == "I live in Leeds"
    assert {"similarity", "recency", "access", "confidence", "relevance"} <= set(item["parts"])


def test_recall_says_honestly_that_it_knows_nothing(directory: Path) -> None:
    done = run("recall", "What is the capital of Peru?", "--owner", "ann", "--tenant", "acme", "--data", str(directory))
    assert done.exit_code == 0
    assert "I have no record of that" in done.output


def test_another_owner_is_another_memory(directory: Path) -> None:
    done = run("recall", "Where do I live?", "--owner", "bob", "--tenant", "acme", "--data", str(directory), "--json")
    assert json.loads(done.stdout)["empty_reason"] == "nothing_stored"


def test_explain_leads_to_the_turn_the_writer_and_the_versions(directory: Path) -> None:
    done = run("explain", memory("home").id, "--data", str(directory), "--json")
    view = json.loads(done.stdout)
    assert [said["text"] for said in view["turns"]] == ["I live in Leeds."]
    assert view["writer"]["writer"] == "rules:1" and view["writer"]["policy_version"] == "1"
    assert [row["change"] for row in view["versions"]] == ["created"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("recall", " ", "--owner", "ann"), PoisonError),
        (("recall", "Where?", "--owner", ""), Denied),
        (("recall", "Where?", "--owner", "ann", "--limit", "99"), PoisonError),
        (("explain", "00000000-0000-0000-0000-000000000000"), PoisonError),
        (("eval", "locomo", "nowhere.json", "--embedder", "hashing"), PoisonError),
        (("eval", "locomo", "nowhere.json", "--conversations", "first"), PoisonError),
        (("eval", "updates", "nowhere"), PoisonError),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_an_expected_error(directory: Path, arguments: tuple[str, ...], error: type[Exception]) -> None:
    data = () if arguments[0] == "eval" else ("--data", str(directory))
    done = run(*arguments, *data)
    assert isinstance(done.exception, error)
