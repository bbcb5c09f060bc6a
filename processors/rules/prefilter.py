"""Rules, prefilter: which rules can match a clause at all, by their literal keywords, without trying each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from processors.rules.model import Rule


class Prefilter:
    """An index of keywords by their first two characters: only words whose beginning occurs in a clause are looked for."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        numbers: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for word in rule.keywords:
                numbers.setdefault(word, []).append(number)
        self._words: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for word, known in numbers.items():
            self._words.setdefault(word[:2], []).append((word, tuple(known)))

    def possible(self, piece: str) -> list[Rule]:
        """The rules one of whose keywords stands in the folded `piece`, in their own order."""
        found: set[int] = set()
        for start in self._words.keys() & _beginnings(piece):
            for word, numbers in self._words[start]:
                if word in piece:
                    found.update(numbers)
        return [self.rules[number] for number in sorted(found)]


@lru_cache(maxsize=16)
def _beginnings(piece: str) -> frozenset[str]:
    """Pairs and single characters, since a Chinese keyword may be one. Each kind of rule asks for the same clause."""
    return frozenset((*map("".join, pairwise(piece)), *piece))
