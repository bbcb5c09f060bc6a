"""Patterns that are compiled when they are first tried: all of them can be, and trying is all it takes."""

from __future__ import annotations

import re

import pytest
import regex

from processors.exceptions import FatalError
from processors.rules import RuleBook
from processors.rules.bilingual import engine
from processors.rules.late import LatePattern, early
from processors.rules.loading import compiled, packaged_rules, packaged_texts
from tests.doubles.compiling import compiled_from_now_on
from tests.doubles.records import turn


def test_every_packaged_pattern_compiles() -> None:
    loaded = packaged_rules()
    kinds = (loaded.claims, loaded.orders, loaded.retracts, loaded.forgets, loaded.suppressions)
    rules = [rule for kind in kinds for rule in kind.rules]
    patterns = [pattern for rule in rules for pattern in (*rule.patterns, rule.reject) if pattern is not None]
    assert len(patterns) > 300
    for pattern in patterns:
        pattern.search("")


def test_a_pattern_is_compiled_once_and_not_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled_from_now_on(monkeypatch)
    pattern = LatePattern(r"(?P<value>\w+) please")
    assert pattern.lacks("tea, thanks")
    assert made == []
    for word in ("tea", "coffee"):
        match = pattern.fullmatch(f"{word} please")
        assert match is not None
        assert match["value"] == word
    assert pattern.search("no", timeout=1.0) is None
    assert made == [pattern]
    with pytest.raises(AttributeError):
        pattern.pattern  # noqa: B018 - asking is the point


def test_rules_that_somebody_brings_are_compiled_when_they_are_loaded() -> None:
    texts = packaged_texts()
    changed = {language: f"{text}\n# changed\n" for language, text in texts.items()}
    [first, *_] = compiled(changed).claims.rules
    assert "fullmatch" in vars(first.patterns[0])
    with pytest.raises(regex.error):
        early("(")


def test_a_macro_without_an_end_is_refused_and_one_within_others_is_not_left_as_it_is_written() -> None:
    texts = packaged_texts()
    deep = 'macros:\n  M1: "<<M2>>"\n  M2: "<<M3>>"\n  M3: "<<M4>>"\n  M4: "<<M5>>"\n  M5: "a"\n'
    row = "- id: deep\n  attribute: name\n  keywords: [a]\n  patterns: [<<M1>>]\n"
    nested = texts | {"zh": texts["zh"].replace("macros:\n", deep, 1).replace("rules:\n", f"rules:\n{row}", 1)}
    [first, *_] = compiled(nested).claims.rules
    assert first.patterns[0].fullmatch("a")
    endless = texts | {"zh": nested["zh"].replace('M5: "a"', 'M5: "<<M1>>"')}
    with pytest.raises(FatalError):
        compiled(endless)


def test_what_keeps_its_first_choice_is_not_left_to_the_standard_library() -> None:
    """Its engine matched the p of "please" with such patterns before 3.11.5, which Debian 12 has not."""
    for source in (r"(?:please\s++)?+x", r"(?>please|p)x", r"a{2}+b"):
        assert isinstance(engine(source), regex.Pattern)
    assert isinstance(engine(r"please\s+x"), re.Pattern)
    assert RuleBook.load().match(turn(1, text="Please stop using emojis"))
