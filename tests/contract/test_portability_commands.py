"""The commands `export` and `import-memories`: files and their schema, refusals before any broker is asked, a dry run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from processors.exceptions import PoisonError, TransientError
from sinks.truth import Truth, make_engine
from streams.cli import app
from streams.portability.writing import SCHEMA_FILE
from tests.doubles.records import claim
from tests.doubles.traveller import KEY, Traveller

Run = Callable[..., Result]
DATA = Path(__file__).parents[1] / "data" / "portability"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sqlite_url: str) -> Run:
    """`run(*arguments)`: the command line on a database in which Ann has lived, with a broker that is away."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("MEMRIVER_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    given = {"HASH_KEY": KEY, "DATABASE_URL": sqlite_url, "KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    for name, value in given.items():
        monkeypatch.setenv(f"MEMRIVER_{name}", value)
    here = Traveller(Truth(make_engine(sqlite_url)))
    here.hear(claim(1), claim(2, value="Berlin", text="lives in Berlin"))
    here.truth.close()

    def command(*arguments: str, input: bytes | None = None) -> Result:
        done = CliRunner().invoke(app, arguments, input=input)
        if done.exception is not None:
            raise done.exception
        return done

    return command


def test_an_export_is_a_file_for_its_reader_alone_with_the_schema_beside_it(run: Run, tmp_path: Path) -> None:
    run("export", "--owner", "ann", "--tenant", "acme", "--out", "ann.jsonl")
    path = tmp_path / "ann.jsonl"
    assert path.stat().st_mode & 0o077 == 0
    kinds = [json.loads(line)["kind"] for line in path.read_bytes().splitlines()]
    assert (kinds[0], kinds[-1], kinds.count("memory"), kinds.count("claim")) == ("header", "trailer", 2, 2)
    assert json.loads((tmp_path / SCHEMA_FILE).read_bytes())["title"] == "ExportLine"
    assert sorted(item.name for item in tmp_path.iterdir() if item.suffix != ".db") == sorted(
        ["ann.jsonl", SCHEMA_FILE]
    )


def test_nobody_s_export_is_no_file(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PoisonError, match="never heard"):
        run("export", "--owner", "eve", "--out", "eve.jsonl")
    assert not list(tmp_path.glob("*eve*"))


def test_a_dry_run_looks_at_everything_and_asks_no_broker(run: Run) -> None:
    run("export", "--owner", "ann", "--tenant", "acme", "--out", "ann.jsonl")
    told = json.loads(run("import-memories", "ann.jsonl", "--tenant", "acme", "--dry-run", "--json").stdout)
    assert (told["memories"], told["versions"], told["claims"], told["vouched"]) == (2, 3, 2, True)
    with pytest.raises(TransientError, match="no broker"):
        run("import-memories", "ann.jsonl", "--tenant", "acme")


def test_standard_output_goes_into_standard_input(run: Run) -> None:
    raw = run("export", "--owner", "ann", "--tenant", "acme").stdout_bytes
    told = json.loads(run("import-memories", "-", "--tenant", "acme", "--dry-run", "--json", input=raw).stdout)
    assert told["memories"] == 2


def test_a_damaged_file_and_a_wrong_key_are_refused_before_any_broker_is_asked(run: Run, tmp_path: Path) -> None:
    run("export", "--owner", "ann", "--tenant", "acme", "--out", "ann.jsonl")
    (tmp_path / "key").write_text("the key of some other place")
    with pytest.raises(PoisonError, match="wrong_key"):
        run("import-memories", "ann.jsonl", "--tenant", "acme", "--origin-key-file", "key")
    with pytest.raises(PoisonError, match="foreign_tenant"):
        run("import-memories", "ann.jsonl")
    with pytest.raises(PoisonError, match="is no file"):
        run("import-memories", "nothing.jsonl")
    path = tmp_path / "ann.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Berlin", b"Bergen"))
    with pytest.raises(PoisonError, match=r"damaged_export: line \d+"):
        run("import-memories", "ann.jsonl", "--tenant", "acme")


def test_another_system_s_broken_records_are_listed(run: Run) -> None:
    told = json.loads(run("import-memories", str(DATA / "mem0.json"), "--format", "mem0", "--dry-run", "--json").stdout)
    assert len(told["bad_records"]) == 3
    assert told["left_out"] == {"secret": 1}
    plain = run("import-memories", str(DATA / "mem0.json"), "--format", "mem0", "--dry-run").stdout
    assert "mem0.json[5]: missing_field" in plain
