"""Rules, prefilter: which rules can match a clause at all, by their literal keywords, without trying each."""

from __future__ import annotations

from collections.abc import Sequence

from processors.rules.model import Rule


class Prefilter:
    """An index of keywords by their first two characters, so that a clause is walked once and not once per keyword."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._short: dict[str, list[int]] = {}
        self._long: dict[str, list[tuple[str, int]]] = {}
        for number, rule in enumerate(self.rules):
            for word in rule.keywords:
                if len(word) == 1:
                    self._short.setdefault(word, []).append(number)
                else:
                    self._long.setdefault(word[:2], []).append((word, number))

    def possible(self, piece: str) -> list[Rule]:
        """The rules one of whose keywords stands in the folded `piece`, in their own order."""
        found: set[int] = set()
        for at, char in enumerate(piece):
            if char in self._short:
                found.update(self._short[char])
            for word, number in self._long.get(piece[at : at + 2], ()):
                if number not in found and piece.startswith(word, at):
                    found.add(number)
        return [self.rules[number] for number in sorted(found)]
