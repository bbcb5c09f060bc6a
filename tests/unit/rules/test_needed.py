"""Words that a pattern needs: read from the pattern, and never a condition that one of its matches does not fulfil."""

from __future__ import annotations

import pytest

from processors.rules.fold import fold
from processors.rules.loading import packaged_rules
from processors.rules.needed import lacking, needed
from tests.unit.rules.test_rule_examples import rule_rows


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        (r"ab+c", [{"ab"}, {"c"}]),
        (r"(?:我|俺)是(?P<value>x{2,3})", [{"我", "俺"}, {"是"}, {"x"}]),
        (r"a?b{0,2}(?:c)*+d", [{"d"}]),
        (r"ab{,2}", [{"a"}]),
        (r"[是为]c", [{"是", "为"}, {"c"}]),
        (r"[a-z]c[^d][\p{Han}e]", [{"c"}]),
        (r"[[a-z]--[b]]q", [{"q"}]),
        (r"[]a]x", [{"]", "a"}, {"x"}]),
        (r"(?<=ab)c(?!d)(?=e)(?<!f)", [{"c"}]),
        (r"^\$5\d\.$", [{"$5"}, {"."}]),
        (r"(a)(?:bc|d|e?)", [{"a"}]),
        (r"a(?>bc|[de]f)", [{"a"}, {"bc", "f"}]),
    ],
)
def test_what_every_match_holds_is_read_from_the_pattern(source: str, needs: list[set[str]]) -> None:
    assert [set(words) for words in needed(source)] == needs


@pytest.mark.parametrize(
    "source", [r"a|", r"(?i)abc", r"a{b", r"a(?|b)", r"x\u0041", r"(?P=name)a", "(a", "a)", "[a", "a\\", ""]
)
def test_what_is_not_understood_gives_no_condition(source: str) -> None:
    assert needed(source) == ()
    assert not lacking(source)("")


def test_every_match_in_the_examples_of_a_packaged_rule_fulfils_the_conditions_of_its_pattern() -> None:
    loaded = packaged_rules()
    kinds = (loaded.claims, loaded.orders, loaded.retracts, loaded.forgets, loaded.suppressions)
    rules = {rule.id: rule for kind in kinds for rule in kind.rules}
    matches = 0
    for language, row in rule_rows():
        texts = [fold(example["text"]) for example in row["examples"]["positive"]] + [
            fold(text) for text in row["examples"]["negative"]
        ]
        for pattern in rules[f"{language}.{row['id']}"].patterns:
            for text in texts:
                if (match := pattern.search(text)) is not None:
                    matches += 1
                    assert not pattern.lacks(match[0]), (row["id"], match[0])
    assert matches > len(rules)
