"""The flow, importers: what a log is read with and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias
from zoneinfo import ZoneInfo

from processors.exceptions import PoisonError
from schemas import Turn

if TYPE_CHECKING:
    from streams.importers.source import Source

RAW_LIMIT = 64 * 1024
"""Bytes of a bad record that are kept: enough to see what it was, small enough for a dead letter."""

DateOrder = Literal["auto", "dmy", "mdy", "ymd"]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to read a log.

    `timezone` (IANA) is the zone of formats that carry naive local times, and the speaker's own zone where the log
    names none. `user_id` is who is served, for formats with roles but no user id; without it each conversation gets an
    anonymous person of its own. `me` (an id or a display name) marks one person, who gets `user_id` as id if given.
    `mapping` (turn field -> column or dotted path) makes CSV and JSONL generic. `sent_at` is when the talk took place,
    for formats without times; without it the file's modification time, marked
    as guessed. `now` switches on the check for future times.

    Raises:
        ValueError: an unknown zone, or a `now` or `sent_at` without an offset.
    """

    tenant: str = "default"
    timezone: str = "UTC"
    user_id: str | None = None
    date_order: DateOrder = "auto"
    mapping: dict[str, str] | None = None
    conversation_id: str | None = None
    me: str | None = None
    encoding: str | None = None
    sent_at: datetime | None = None
    now: datetime | None = None
    zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            zone = ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("timezone must be an IANA name such as Asia/Shanghai") from error
        object.__setattr__(self, "zone", zone)
        for moment in (self.sent_at, self.now):
            if moment is not None and moment.tzinfo is None:
                raise ValueError("sent_at and now need an offset")


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that is no turn. `line` is 1-based, or the record's index where a format has no lines."""

    line: int | None
    where: str
    reason: str
    detail: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class ServiceMessage:
    """Something the platform wrote and nobody said: a join, a call, a renamed group. Counted, never a turn."""

    where: str
    kind: str


Record: TypeAlias = Turn | BadRecord | ServiceMessage


class UnreadableFile(PoisonError):
    """The file as a whole cannot be read as its format: missing, wrong encoding, a broken zip, no JSON at all."""


class Importer(Protocol):
    """Reads one format, streaming."""

    def __call__(self, source: Source, options: ImportOptions, /) -> Iterator[Record]:
        """Every record of the source, in the file's order.

        Raises:
            UnreadableFile: this is not a file of the format.
        """
