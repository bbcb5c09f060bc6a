"""Rules: every example in the rule files is a test of the rule it stands under."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import pytest
import yaml

from processors.rules import HitKind, RuleHit
from processors.rules.loading import LANGUAGES
from tests.doubles.heard import SHANGHAI, heard

ENOUGH_RULES = 25
ENOUGH_EXAMPLES = 10


@lru_cache(maxsize=1)
def rule_rows() -> tuple[tuple[str, dict[str, Any]], ...]:
    rows: list[tuple[str, dict[str, Any]]] = []
    for language in LANGUAGES:
        document = yaml.safe_load(files("processors.rules").joinpath(f"{language}.yaml").read_text(encoding="utf-8"))
        rows += [(language, row) for row in document["rules"]]
    return tuple(rows)


def positives() -> list[Any]:
    return [
        pytest.param(language, row, example, id=f"{language}.{row['id']}: {example['text']}")
        for language, row in rule_rows()
        for example in row["examples"]["positive"]
    ]


def negatives() -> list[Any]:
    return [
        pytest.param(language, row, text, id=f"{language}.{row['id']}: {text}")
        for language, row in rule_rows()
        for text in row["examples"]["negative"]
    ]


def hits_of(language: str, text: str) -> tuple[RuleHit, ...]:
    zone = "Asia/Shanghai" if language == "zh" else "Europe/London"
    return heard(text, **SHANGHAI | {"timezone": zone})


def shown(hits: tuple[RuleHit, ...]) -> list[tuple[str, str, str, str]]:
    return [(hit.rule_id, str(hit.operation), hit.attribute, hit.value) for hit in hits]


@pytest.mark.parametrize(("language", "row", "example"), positives())
def test_a_positive_example_gives_the_hit_it_names(language: str, row: dict[str, Any], example: dict[str, Any]) -> None:
    hits = hits_of(language, example["text"])
    kind = row.get("kind", "claim")
    own = f"{language}.{row['id']}"
    if kind == "suppress":
        assert shown(hits) == []
        return
    if kind == "retract":
        assert any(hit.rule_id == own and hit.kind is HitKind.RETRACT_PREVIOUS for hit in hits), shown(hits)
        return
    operation = "clear" if kind == "forget" else example.get("operation", row.get("operation", "assert"))
    wanted = [
        hit
        for hit in hits
        # What is ordered may be a statement that another rule reads.
        if (hit.rule_id == own or (kind == "order" and hit.explicit))
        and str(hit.operation) == operation
        and hit.attribute == example["attribute"]
        and hit.value == str(example["value"])
    ]
    assert wanted, shown(hits)
    assert all(hit.quote in example["text"] for hit in hits)


@pytest.mark.parametrize(("language", "row", "text"), negatives())
def test_a_negative_example_gives_no_hit_of_that_rule(language: str, row: dict[str, Any], text: str) -> None:
    hits = hits_of(language, text)
    if row.get("kind") == "suppress":
        # Nothing was told to be left out, so what the sentence states is found.
        assert hits
        return
    own = f"{language}.{row['id']}"
    ordered = row.get("kind") == "order"
    assert [hit for hit in hits if hit.rule_id == own or (ordered and hit.explicit)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_enough_rules_and_each_rule_enough_examples(language: str) -> None:
    rows = [row for of, row in rule_rows() if of == language]
    assert len(rows) >= ENOUGH_RULES
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert len(row["examples"]["positive"]) >= ENOUGH_EXAMPLES, row["id"]
        assert len(row["examples"]["negative"]) >= ENOUGH_EXAMPLES, row["id"]
        assert row["description"], row["id"]
