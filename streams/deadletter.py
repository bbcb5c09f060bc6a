"""From a message that cannot be processed to a dead letter: reason, place and the original bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from schemas import DeadLetter
from sinks.truth.deadletters import Redriven, letter_id
from sinks.truth.outbox import Outgoing
from streams.reasons import reason_of

MAX_RAW_BYTES = 4 * 1024 * 1024
"""The largest `max.message.bytes` of a topic that a stage reads: a cut message could never be repaired and replayed."""


HEADER = "memriver-dead-letter"
"""Kafka header of a message that was sent again: `ID:ATTEMPT`."""
_HEADER_VALUE = re.compile(rb"([!-9;-~]{1,36}):([1-9][0-9]{0,5})")


class Placed(Protocol):
    """Anything with bytes and a place in a log; `redriven` if it is a dead letter's second or later attempt."""

    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def place(self) -> str: ...
    @property
    def redriven(self) -> Redriven | None: ...


def header_of(item: Redriven) -> tuple[str, bytes]:
    """The header that a message carries when it is sent again."""
    return HEADER, f"{item.dead_letter_id}:{item.attempt}".encode()


def redriven(headers: Iterable[tuple[str, bytes]] | None) -> Redriven | None:
    """What the headers say; None for a message that comes for the first time, and for a header that is no such thing."""
    for name, value in headers or ():
        found = _HEADER_VALUE.fullmatch(value) if name == HEADER and value is not None else None
        if found is not None and int(found[2]) > 1:
            return Redriven(found[1].decode(), int(found[2]))
    return None


def redriven_of(messages: Iterable[Placed]) -> list[tuple[Redriven, bytes]]:
    """Those that were sent again, with their bytes, as `deadletters.resolve` takes them."""
    return [(item.redriven, item.value or b"") for item in messages if item.redriven is not None]


def dead_letter(stage: str, message: Placed, error: Exception, now: datetime) -> DeadLetter:
    """The letter. A redelivery makes the same one; a message that was redriven makes the one it came from, at its attempt."""
    reason, detail = reason_of(error)
    value = message.value or b""
    again = message.redriven
    return DeadLetter(
        dead_letter_id=again.dead_letter_id if again else letter_id(stage, message.place, value),
        stage=stage,
        reason=reason,
        detail=detail,
        where=message.place,
        topic=message.topic,
        key=message.key.decode("utf-8", "replace") if message.key else None,
        attempts=again.attempt if again else 1,
        raw=base64.b64encode(value[:MAX_RAW_BYTES]).decode(),
        original_bytes=len(value) if len(value) > MAX_RAW_BYTES else None,
        failed_at=now,
    )


def letters_out(letters: Sequence[DeadLetter]) -> list[Outgoing]:
    """The letters as messages, for those who read the topic."""
    return [Outgoing("deadletters", item.dead_letter_id, item.dead_letter_id, item.to_bytes()) for item in letters]
