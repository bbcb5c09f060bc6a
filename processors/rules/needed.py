"""Rules, needed words: which literals every match of a pattern must hold, read from the pattern itself.

What does not hold them need not be tried, and looking for a few words costs a fraction of trying a pattern. Whatever is not
understood gives no condition, so that a rule may be written without a thought of this.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

Words = frozenset[str]
"""One of these has to be there."""

_MOST: Final = 64
"""Alternatives in one condition; more of them are hardly ever all missing."""

_COUNT: Final = re.compile(r"\{(\d*)(?:,\d*)?\}")
_GROUP: Final = re.compile(r"\((?:\?(?:[:>]|P?<[A-Za-z_]\w*>)|(?!\?))")
_LOOK: Final = re.compile(r"\(\?<?[=!]")
_CLASS: Final = re.compile(r"\\(?:[pP]\{[^{}]*\}|[bBdDwWsSAZG]|[1-9])")
_PLAIN: Final = re.compile(r"[^\W_]|[^\x00-\x7f]")
_SET_SIGNS: Final = frozenset("-&|~[")


class _UnknownError(Exception):
    """Syntax that this reader does not know."""


class _Atom(NamedTuple):
    """What one part of a sequence needs; `literal` when it is this one character."""

    needs: tuple[Words, ...] = ()
    literal: str = ""


def lacking(source: str) -> Callable[[str], bool]:
    """Says of a text that something is missing in it without which the pattern matches nowhere in it."""
    # What is rarest is asked for first.
    needs = sorted(needed(source), key=_commonness)
    searches = [re.compile("|".join(map(re.escape, sorted(words)))).search for words in needs]

    def lacks(text: str) -> bool:
        for search in searches:  # noqa: SIM110 - a generator would cost as much as the searches
            if search(text) is None:
                return True
        return False

    return lacks


def needed(source: str) -> tuple[Words, ...]:
    """Conditions that the text of every match fulfils, each of them: it holds one of these words."""
    try:
        reader = _Reader(source)
        needs = reader.alternatives()
        return needs if reader.at_end() else ()
    except (_UnknownError, IndexError):
        return ()


class _Reader:
    """Recursive descent over the part of the syntax of `regex` (version 1) that the rules are written in."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def at_end(self) -> bool:
        return self._at == len(self._source)

    def alternatives(self) -> tuple[Words, ...]:
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        if not all(branches):
            return ()
        either = frozenset[str]().union(*(min(needs, key=_commonness) for needs in branches))
        return (either,) if len(either) <= _MOST else ()

    def _sequence(self) -> tuple[Words, ...]:
        needs: list[Words] = []
        run = ""
        while not self.at_end() and self._source[self._at] not in "|)":
            atom = self._atom()
            least = self._least()
            if atom.literal and least != 0:
                run += atom.literal
            if run and (least is not None or not atom.literal):
                needs.append(frozenset({run}))
                run = ""
            if least != 0:
                needs += atom.needs
        if run:
            needs.append(frozenset({run}))
        return tuple(dict.fromkeys(needs))

    def _atom(self) -> _Atom:
        char = self._source[self._at]
        if char == "(":
            return self._group()
        if char == "[":
            words = self._set()
            return _Atom((words,) if words else ())
        if char == "\\":
            if (known := _CLASS.match(self._source, self._at)) is not None:
                self._at = known.end()
                return _Atom()
            char = self._source[self._at + 1]
            if _PLAIN.match(char):
                raise _UnknownError
            self._at += 2
            return _Atom(literal=char)
        if char in "*+?{":
            raise _UnknownError
        self._at += 1
        return _Atom() if char in ".^$" else _Atom(literal=char)

    def _group(self) -> _Atom:
        look = _LOOK.match(self._source, self._at)
        opening = look or _GROUP.match(self._source, self._at)
        if opening is None:
            raise _UnknownError
        self._at = opening.end()
        needs = self.alternatives()
        if not self._takes(")"):
            raise _UnknownError
        # What stands around a match is no part of it.
        return _Atom(() if look else needs)

    def _set(self) -> Words:
        """The characters of a plain set; none when it is anything else."""
        self._at += 1
        plain = not self._takes("^")
        chars: set[str] = set()
        first = True
        while (char := self._source[self._at]) != "]" or first:
            first = False
            if char == "[":
                self._set()
                plain = False
                continue
            if char == "\\":
                self._at += 1
                char = self._source[self._at]
                plain = plain and not _PLAIN.match(char)
            elif char in _SET_SIGNS:
                plain = False
            chars.add(char)
            self._at += 1
        self._at += 1
        return frozenset(chars) if plain and len(chars) <= _MOST else frozenset()

    def _least(self) -> int | None:
        """How often the atom before has to be there, as its quantifier says; None without one."""
        if self.at_end() or self._source[self._at] not in "*+?{":
            return None
        if (count := _COUNT.match(self._source, self._at)) is not None:
            self._at = count.end()
            least = int(count[1] or 0)
        else:
            least = {"*": 0, "+": 1, "?": 0}.get(self._source[self._at], -1)
            if least < 0:
                raise _UnknownError
            self._at += 1
        if not self._takes("?"):
            self._takes("+")
        return least

    def _takes(self, char: str) -> bool:
        if not self._source.startswith(char, self._at):
            return False
        self._at += 1
        return True


def _commonness(words: Words) -> tuple[int, int]:
    """Fewer and longer words are the better condition."""
    return -min(map(len, words)), len(words)
