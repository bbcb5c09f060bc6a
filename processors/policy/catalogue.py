"""Policy, data room: reads the reviewed YAML rules and compiles them; knows their form, not their meaning.

A rule has a `pattern`, the words (`words`, Latin, lower case) or fragments (`parts`) one of which must be present
before the pattern is tried at all (and one of `also`, where given), and examples: `matches` must match, `spares` must
not. The examples are the tests. Inside a pattern a space stands for a short run of separators, `~3` for up to three
words in between, and `<name>` for a named piece of the file's `define` section. `unless` is matched against what
stands directly before the hit and cancels it (a negation, a subject that is not the assistant).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import regex

from processors.documents import parse_texts
from processors.literals import Literals

_GAP = regex.compile(r"~(\d)")
_NAME = regex.compile(r"<([a-z_]+)>")
_SEPARATOR = r"[^\w\n]{1,4}"
_BEFORE = 48
"""Characters before a hit that `unless` may look at: a clause, not a page."""


_WORD = regex.compile(r"[a-zà-öø-ÿ']+")
_KEPT = 64
"""Texts about which an answer is kept: several rooms ask about the same few of one candidate."""


@dataclass(frozen=True, slots=True)
class PatternRule:
    """One compiled rule; `kind` is the short code that becomes a reason."""

    id: str
    kind: str
    words: frozenset[str]
    also: frozenset[str]
    parts: tuple[str, ...]
    pattern: regex.Pattern[str]
    unless: regex.Pattern[str] | None
    matches: tuple[str, ...]
    spares: tuple[str, ...]

    def hits(self, text: str) -> bool:
        """Whether the pattern occurs in lower-case, NFKC text and is not cancelled by what stands before it."""
        for match in self.pattern.finditer(text):
            if self.unless is None or not self.unless.search(text[max(0, match.start() - _BEFORE) : match.start()]):
                return True
        return False


class Catalogue:
    """Rules in file order, and in one look those of them whose patterns are worth trying on a text."""

    def __init__(self, rules: Iterable[PatternRule]) -> None:
        self.rules = tuple(rules)
        self._parts = Literals([rule.parts for rule in self.rules])
        self._words: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for word in rule.words:
                self._words.setdefault(word, []).append(number)
        self._known = lru_cache(maxsize=_KEPT)(self._possible)

    def possible(self, plain: str) -> tuple[PatternRule, ...]:
        """The rules one of whose words or fragments (and one of whose `also`) stands in a text in normal form."""
        return self._known(plain)

    def _possible(self, plain: str) -> tuple[PatternRule, ...]:
        words = words_of(plain)
        numbers = self._parts.owners_in(plain)
        for word in self._words.keys() & words:
            numbers.update(self._words[word])
        found = (self.rules[number] for number in sorted(numbers))
        return tuple(rule for rule in found if not rule.also or not rule.also.isdisjoint(words))


@lru_cache(maxsize=_KEPT)
def words_of(plain: str) -> frozenset[str]:
    """The Latin words of a text in normal form."""
    return frozenset(_WORD.findall(plain))


def read_yaml(name: str) -> Any:
    """The parsed file of this package. Every scalar is text: YAML 1.1 would read the words yes, no, on and off as booleans."""
    return parse_texts(read_text(name))


def read_text(name: str) -> str:
    """The file of this package as it stands; the policy version is a digest of it."""
    return files("processors.policy").joinpath(name).read_text(encoding="utf-8")


def expand(pattern: str, define: dict[str, str]) -> str:
    """A pattern of the file as a regular expression."""
    while _NAME.search(pattern):
        pattern = _NAME.sub(lambda found: f"(?:{define[found[1]]})", pattern)
    pattern = _GAP.sub(lambda found: rf"(?:[^\w.!?;\n]{{1,4}}[\w'-]+){{0,{found[1]}}}", pattern)
    return pattern.replace(" ", _SEPARATOR)


def load_rules(name: str) -> Catalogue:
    """The rules of a YAML file with `define` and `rules` sections, in file order.

    Raises:
        KeyError: a rule lacks a field or names an undefined piece.
    """
    data = read_yaml(name)
    define: dict[str, str] = data.get("define", {})
    return Catalogue(_rule(row, define) for row in data["rules"])


def _rule(row: dict[str, Any], define: dict[str, str]) -> PatternRule:
    # With ASCII word boundaries a Latin word is a word also between Chinese characters, which stand without spaces.
    flags = regex.UNICODE if row.get("unicode") == "true" else regex.ASCII
    return PatternRule(
        id=row["id"],
        kind=row["kind"],
        words=_words(row.get("words", ()), define),
        also=_words(row.get("also", ()), define),
        parts=tuple(row.get("parts", ())),
        pattern=regex.compile(expand(row["pattern"], define), flags),
        unless=regex.compile(expand(row["unless"], define), flags) if "unless" in row else None,
        matches=tuple(row.get("matches", ())),
        spares=tuple(row.get("spares", ())),
    )


def _words(entries: Iterable[str], define: dict[str, str]) -> frozenset[str]:
    return frozenset(
        word.strip() for entry in entries for word in regex.split(r"[|,]", define.get(entry.strip("<>"), entry))
    )


@lru_cache(maxsize=8)
def rules_of(name: str) -> Catalogue:
    """`load_rules`, once per process: the files are part of the release and do not change under it."""
    return load_rules(name)
