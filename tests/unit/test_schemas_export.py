"""Exported contracts: valid JSON Schema that the stored examples satisfy, an AsyncAPI that resolves, and a check for age."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from typer.testing import CliRunner

import schemas
from streams import contracts
from streams.cli import app
from streams.topics import declared

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "tests" / "data" / "contracts").glob("*.json"))
}
DOCUMENTS = contracts.documents()
ASYNC: dict[str, Any] = yaml.safe_load(DOCUMENTS["asyncapi.yaml"])


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DOCUMENTS[f"{name}.schema.json"])
    return found


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name), format_checker=Draft202012Validator.FORMAT_CHECKER)


def test_there_is_a_schema_for_every_message() -> None:
    assert set(DOCUMENTS) == {f"{name}.schema.json" for name in EXAMPLES} | {"asyncapi.yaml", "ExportLine.schema.json"}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_schema_is_valid_and_resolves_within_itself(name: str) -> None:
    document = schema(name)
    Draft202012Validator.check_schema(document)
    assert document["title"] == name
    resolver = Registry().with_resource("", Resource.from_contents(document)).resolver()
    for reference in _references(document):
        assert resolver.lookup(reference).contents


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("kind", ["complete", "oldest", "newer_fields"])
def test_the_stored_examples_satisfy_the_schema(name: str, kind: str) -> None:
    validator(name).validate(EXAMPLES[name][kind])


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_memriver_writes_satisfies_the_schema(name: str) -> None:
    contract: type[schemas.Contract] = getattr(schemas, name)
    validator(name).validate(json.loads(contract.from_dict(EXAMPLES[name]["complete"]).to_bytes()))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_memriver_refuses_for_a_missing_field_the_schema_refuses_too(name: str) -> None:
    contract: type[schemas.Contract] = getattr(schemas, name)
    for field, info in contract.model_fields.items():
        data = {key: value for key, value in EXAMPLES[name]["complete"].items() if key != field}
        assert validator(name).is_valid(data) is not info.is_required()


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("Turn", "role", "narrator"),
        ("Turn", "user_id", ""),
        ("Turn", "user_id", "a\nb"),
        ("Turn", "text", "x" * 100_001),
        ("Turn", "revision", -1),
        ("Turn", "sent_at", 5),
        ("Candidate", "confidence", 1.5),
        ("Candidate", "candidate_id", "a b"),
        ("Candidate", "attribute", "a" * 65),
        ("Memory", "version", 0),
        ("Command", "command_id", "x" * 37),
        ("Command", "kind", "explode"),
    ],
)
def test_what_memriver_refuses_the_schema_refuses_too(name: str, field: str, value: object) -> None:
    data = EXAMPLES[name]["complete"] | {field: value}
    assert not validator(name).is_valid(data)
    if (field, value) != ("sent_at", 5):  # a number is taken as seconds since 1970, which the contract does not promise
        with pytest.raises(ValueError, match=field):
            getattr(schemas, name).from_dict(data)


def test_patterns_are_such_that_every_language_reads_them() -> None:
    for name in EXAMPLES:
        for pattern in re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', DOCUMENTS[f"{name}.schema.json"].decode()):
            assert pattern.startswith("^")
            assert pattern.endswith("$")
            re.compile(json.loads(f'"{pattern}"'))


def test_the_asyncapi_document_names_every_topic_that_is_declared_but_the_sealed_log() -> None:
    assert ASYNC["asyncapi"] == "3.0.0"
    assert {channel["address"] for channel in ASYNC["channels"].values()} == {
        spec.name for spec in declared() if spec.name != "turns.sealed"
    }


def test_every_reference_of_the_asyncapi_document_resolves() -> None:
    references = list(_references(ASYNC))
    assert len(references) >= 2 * len(ASYNC["channels"])
    for reference in references:
        file, _, pointer = reference.partition("#")
        target: Any = ASYNC if not file else json.loads(DOCUMENTS[file.removeprefix("./")])
        for part in filter(None, pointer.split("/")):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        assert target


def test_each_operation_is_on_a_channel_and_says_who_acts() -> None:
    assert set(ASYNC["operations"]) == set(ASYNC["channels"])
    received = {name for name, operation in ASYNC["operations"].items() if operation["action"] == "receive"}
    assert received >= {"turns", "feedback", "commands"}
    assert {operation["action"] for operation in ASYNC["operations"].values()} == {"receive", "send"}


def test_equal_contracts_give_equal_bytes() -> None:
    assert contracts.documents() == DOCUMENTS


def test_an_export_is_written_once_and_then_up_to_date(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "contracts"
    assert sorted(contracts.export(folder)) == sorted(DOCUMENTS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == DOCUMENTS
    assert contracts.export(folder) == []


def test_a_look_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "contracts"
    assert sorted(contracts.export(folder, write=False)) == sorted(DOCUMENTS)
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_stale_file_is_found_and_mended(tmp_path: Path, damage: str) -> None:
    contracts.export(tmp_path)
    if damage == "changed":
        name = "Turn.schema.json"
        (tmp_path / name).write_text("{}", encoding="utf-8")
    else:
        name = "asyncapi.yaml"
        (tmp_path / name).unlink()
    assert contracts.export(tmp_path, write=False) == [name]
    assert contracts.export(tmp_path) == [name]
    assert contracts.export(tmp_path, write=False) == []
    assert {path.name for path in tmp_path.iterdir()} == set(DOCUMENTS)


def test_the_command_writes_and_its_check_notices_age(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["schemas", "export", str(tmp_path)]).exit_code == 0
    assert run(app, ["schemas", "export", str(tmp_path), "--check"]).exit_code == 0
    (tmp_path / "Turn.schema.json").write_text("{}", encoding="utf-8")
    stale = run(app, ["schemas", "export", str(tmp_path), "--check"])
    assert stale.exit_code != 0
    assert "Turn.schema.json" in f"{stale.output}{stale.exception}"
    assert (tmp_path / "Turn.schema.json").read_text(encoding="utf-8") == "{}"


def test_the_files_in_the_repository_are_up_to_date() -> None:
    assert contracts.export(ROOT / "ops" / "contracts", write=False) == []


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []
