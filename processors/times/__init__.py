"""Times: what "上周" or "until Friday" means, from the turn's own time and its speaker's zone (SPEC W12)."""

from processors.times.guessed import Resolver, Span, times_of
from processors.times.reading import TimeSpan, resolve

__all__ = ["Resolver", "Span", "TimeSpan", "resolve", "times_of"]
