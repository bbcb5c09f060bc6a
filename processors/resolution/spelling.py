"""Resolution, spelling: when two short values name one thing, and which of many values a new one names.

Values (a city, a food, a name) are compared as text: vectors of single nouns lie close together whatever they mean, and
"Leeds" must not become "Berlin".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import regex

from processors.slots import value_key

_PLACE = regex.compile(r"[市省区县镇]")
_THOUSANDS = regex.compile(r",\d")


def same_value(one: str, other: str) -> bool:
    """Whether two short values name the same thing, one of them more exactly: 上海 and 上海市, "Berlin" and "Berlin, Germany"."""
    return _same(value_key(one), value_key(other))


def _same(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (long.startswith(short) and short in _shorter(long))


def _shorter(key: str) -> Iterator[str]:
    """What names the same thing less exactly: "berlin" for "berlin, germany", 上海 for 上海市; not 12 for 12,000."""
    for place, sign in enumerate(key):
        stem = key[:place].rstrip()
        last = place == len(key) - 1
        if len(stem) < 2 or not (sign in ",(" or (last and _PLACE.match(sign))):
            continue
        if not (stem[-1].isdigit() and _THOUSANDS.match(key, place)):
            yield stem


class Spellings:
    """The values of a slot by what they may be called, so that a new one is not compared with each of them.

    What a name no longer stands for stays listed: whoever asks compares what it is told, which is short.
    """

    def __init__(self) -> None:
        self._whole: defaultdict[str, set[str]] = defaultdict(set)
        self._shorter: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, name: str, value: str) -> None:
        """`name` stands for `value`, whatever it stood for before."""
        key = value_key(value)
        self._whole[key].add(name)
        for stem in _shorter(key):
            self._shorter[stem].add(name)

    def like(self, value: str) -> set[str]:
        """Names whose value is, or once was, the same as this one."""
        key = value_key(value)
        found = self._whole.get(key, set()) | self._shorter.get(key, set())
        for stem in _shorter(key):
            found |= self._whole.get(stem, set())
        return found
