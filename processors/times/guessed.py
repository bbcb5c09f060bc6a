"""Times, guessed: of a turn whose time nobody knows only those dates are read that name their year themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from schemas import Turn


class Span(Protocol):
    """A time that a text names: aware instants, and `quote` at `offset` in the text."""

    @property
    def start(self) -> datetime: ...
    @property
    def end(self) -> datetime | None: ...
    @property
    def quote(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def kind(self) -> str: ...


Resolver = Callable[[str, datetime, str, str], Sequence[Span]]
"""`processors.times.resolve(text, sent_at, timezone, language)`."""
S = TypeVar("S", bound=Span)

# Another year, month, day and weekday: what means the same from there does not depend on when it was said.
_AWAY: Final = timedelta(days=3 * 365 + 47)


def times_of(
    turn: Turn, text: str, language: str, resolver: Callable[[str, datetime, str, str], Sequence[S]]
) -> Sequence[S]:
    """The times that these words of the turn name; "last month" names none when `sent_at` is a guess."""
    spans = resolver(text, turn.sent_at, turn.timezone, language)
    if not turn.sent_at_guessed or not spans:
        return spans
    away = turn.sent_at + (_AWAY if turn.sent_at.year < 5_000 else -_AWAY)
    fixed = {(span.offset, span.start, span.end) for span in resolver(text, away, turn.timezone, language)}
    return [span for span in spans if (span.offset, span.start, span.end) in fixed]
