"""Rules, the book: finds in one turn what a person said of themselves or ordered, without a model (SPEC W3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from processors.rules.loading import RuleSet, compiled, packaged_rules
from processors.rules.model import RuleHit
from processors.rules.passage import Passage
from processors.rules.reading import Reading
from processors.times import Resolver, resolve
from schemas import Role, Turn


class RuleBook:
    """The compiled rules of all languages. Immutable after loading, so threads may share it."""

    def __init__(self, rules: RuleSet, resolver: Resolver) -> None:
        self._rules = rules
        self._resolver = resolver

    @classmethod
    def load(cls, resolver: Resolver = resolve) -> Self:
        """The packaged rules.

        Raises:
            FatalError: a rule is malformed.
        """
        return cls(packaged_rules(), resolver)

    @classmethod
    def of(cls, texts: Mapping[str, str], resolver: Resolver = resolve) -> Self:
        """Rules that are not the packaged ones: the text of a file for each language.

        Raises:
            FatalError: a rule is malformed.
        """
        return cls(compiled(texts), resolver)

    @property
    def version(self) -> str:
        """Digest of the rule files; a memory's writer is "rules:" and this."""
        return self._rules.version

    def match(self, turn: Turn) -> tuple[RuleHit, ...]:
        """What the speaker of `turn` states, orders or takes back, in reading order; nothing unless a user speaks.

        Only the first 4,000 characters of the turn's own words are read. Never raises for any text.
        """
        if turn.role is not Role.USER or turn.deleted or not turn.text:
            return ()
        return Reading(Passage(self._rules, turn, self._resolver)).hits()
