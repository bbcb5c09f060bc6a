"""Rules, late: the packaged rules' patterns are compiled when they are first tried.

All of them together are seconds of work, and a process that judges a few turns tries a few; which of them can match at all is
known before (`prefilter`). That each compiles is what the tests of the packaged files are for. Rules that somebody brings
are compiled when they are loaded, so that a broken one is refused then.
"""

from __future__ import annotations

from typing import Any, Protocol

import regex


class Pattern(Protocol):
    """What rules use of `regex.Pattern`."""

    def fullmatch(self, string: str, *, timeout: float | None = None) -> regex.Match[str] | None: ...
    def match(self, string: str, *, timeout: float | None = None) -> regex.Match[str] | None: ...
    def search(self, string: str, *, timeout: float | None = None) -> regex.Match[str] | None: ...


def early(source: str) -> Pattern:
    """Compiled now.

    Raises:
        regex.error: it is no pattern.
    """
    made: Any = regex.compile(source, regex.V1)
    return made  # type: ignore[no-any-return]


class LatePattern:
    """Compiled when one of its methods is first asked for; from then on it costs nothing beside the pattern itself."""

    fullmatch: Any
    match: Any
    search: Any

    def __init__(self, source: str) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name not in ("fullmatch", "match", "search"):
            raise AttributeError(name)
        made = early(self._source)
        self.fullmatch, self.match, self.search = made.fullmatch, made.match, made.search
        return getattr(made, name)
