"""Rules, late: the packaged rules' patterns are compiled when they are first tried.

All of them together are seconds of work, and a process that judges a few turns tries a few; which of them can match at all is
known before (`prefilter`, `needed`). That each compiles is what the tests of the packaged files are for. Rules that somebody
brings are compiled when they are loaded, so that a broken one is refused then.
"""

from __future__ import annotations

from typing import Any, Protocol

import regex

from processors.rules.needed import lacking


class Pattern(Protocol):
    """What rules use of `regex.Pattern`, and whether it is worth trying: `lacks` says that a text cannot hold a match."""

    def lacks(self, string: str, /) -> bool: ...
    def fullmatch(self, string: str, *, timeout: float | None = None) -> regex.Match[str] | None: ...
    def match(self, string: str, *, timeout: float | None = None) -> regex.Match[str] | None: ...
    def search(self, string: str, *, timeout: float | None = None) -> regex.Match[str] | None: ...


def early(source: str) -> Pattern:
    """Compiled now.

    Raises:
        regex.error: it is no pattern.
    """
    made = LatePattern(source)
    made.compile()
    return made


class LatePattern:
    """Read when `lacks` is first asked for and compiled when one of the others is; from then on that costs nothing."""

    lacks: Any
    fullmatch: Any
    match: Any
    search: Any

    def __init__(self, source: str) -> None:
        self._source = source

    def compile(self) -> None:
        """What the first trial does.

        Raises:
            regex.error: it is no pattern.
        """
        made = regex.compile(self._source, regex.V1)
        self.fullmatch, self.match, self.search = made.fullmatch, made.match, made.search

    def __getattr__(self, name: str) -> Any:
        if name == "lacks":
            self.lacks = lacking(self._source)
        elif name in ("fullmatch", "match", "search"):
            self.compile()
        else:
            raise AttributeError(name)
        return vars(self)[name]
