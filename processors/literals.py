"""Which of many literal words stand in a text, found in one look instead of by a search for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise


class Literals:
    """An index of words by their first two characters: only words whose beginning occurs in a text are looked for.

    `owners` holds the words of each owner, a rule for example; an owner is known by its number in this order.
    """

    def __init__(self, owners: Sequence[Iterable[str]]) -> None:
        numbers: dict[str, list[int]] = {}
        for number, words in enumerate(owners):
            for word in words:
                numbers.setdefault(word, []).append(number)
        self._words: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for word, known in numbers.items():
            self._words.setdefault(word[:2], []).append((word, tuple(known)))

    def owners_in(self, text: str) -> set[int]:
        """The numbers of the owners one of whose words stands in the text, as it is written."""
        found: set[int] = set()
        for start in self._words.keys() & _beginnings(text):
            for word, numbers in self._words[start]:
                if word in text:
                    found.update(numbers)
        return found


@lru_cache(maxsize=16)
def _beginnings(text: str) -> frozenset[str]:
    """Pairs and single characters, since a Chinese word may be one. Several indexes are asked about the same text."""
    return frozenset((*map("".join, pairwise(text)), *text))
