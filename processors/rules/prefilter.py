"""Rules, prefilter: which rules can match a clause at all, by their literal keywords, without trying each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from processors.literals import Literals
from processors.rules.model import Rule

_KEPT = 16
"""Clauses about which an answer is kept: each kind of rule is asked about the same one."""


class Prefilter:
    """The rules of one kind, of which an index of the keywords of all kinds says which can match."""

    def __init__(self, kind: str, rules: Sequence[Rule], index: KeywordIndex) -> None:
        self.rules = tuple(rules)
        self._kind = kind
        self._index = index

    def possible(self, piece: str) -> Sequence[Rule]:
        """The rules one of whose keywords stands in the folded `piece`, in their own order."""
        return self._index.possible(piece).get(self._kind, ())


class KeywordIndex:
    """The keywords of the rules of every kind, for which a clause is looked through once."""

    def __init__(self, rules: Mapping[str, Sequence[Rule]]) -> None:
        self._rules = [rule for kind in rules.values() for rule in kind]
        self._keywords = Literals([rule.keywords for rule in self._rules])
        self.possible = lru_cache(maxsize=_KEPT)(self._possible)

    def _possible(self, piece: str) -> Mapping[str, Sequence[Rule]]:
        found: dict[str, list[Rule]] = {}
        for number in sorted(self._keywords.owners_in(piece)):
            rule = self._rules[number]
            found.setdefault(rule.kind, []).append(rule)
        return found
