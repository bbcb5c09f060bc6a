"""Rules, prefilter: which rules can match a clause at all, by their literal keywords, without trying each."""

from __future__ import annotations

from collections.abc import Sequence

from processors.literals import Literals
from processors.rules.model import Rule


class Prefilter:
    """Rules and an index of their keywords."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._keywords = Literals([rule.keywords for rule in self.rules])

    def possible(self, piece: str) -> list[Rule]:
        """The rules one of whose keywords stands in the folded `piece`, in their own order."""
        return [self.rules[number] for number in sorted(self._keywords.owners_in(piece))]
