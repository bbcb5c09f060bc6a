"""From a message that cannot be processed to a dead letter: reason, place and the original bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import orjson
from pydantic import ValidationError

from processors.exceptions import PoisonError
from schemas import DeadLetter, new_id
from sinks.truth.outbox import Outgoing

MAX_RAW_BYTES = 4 * 1024 * 1024
"""The largest `max.message.bytes` of a topic that a stage reads: a cut message could never be repaired and replayed."""


class Placed(Protocol):
    """Anything with bytes and a place in a log."""

    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def place(self) -> str: ...


def reason_of(error: Exception) -> tuple[str, str]:
    """A short code and a sentence; field names and kinds of error only, never the offending value."""
    if isinstance(error, PoisonError):
        return error.reason, error.detail
    if isinstance(error, ValidationError):
        fields = [
            f"{'.'.join(str(part) for part in item['loc']) or 'record'}: {item['type']}" for item in error.errors()
        ]
        return "invalid_field", "; ".join(fields[:5])
    if isinstance(error, (orjson.JSONDecodeError, UnicodeDecodeError)):
        return "not_json", "the message is not valid UTF-8 JSON"
    text = str(error)
    if "schema_version" in text:
        return "schema_version", text
    return "unreadable", text[:200] if "must be" in text else type(error).__name__


def dead_letter(stage: str, message: Placed, error: Exception, now: datetime) -> DeadLetter:
    """The letter; its id is a digest of stage, place and bytes, so a redelivery makes the same one.

    The bytes are part of it because a place is not for ever: a topic that is made anew counts from 0 again.
    """
    reason, detail = reason_of(error)
    value = message.value or b""
    raw = value[:MAX_RAW_BYTES]
    return DeadLetter(
        dead_letter_id=new_id("dead", stage, message.place, hashlib.blake2b(value, digest_size=16).hexdigest()),
        stage=stage,
        reason=reason,
        detail=detail,
        where=message.place,
        topic=message.topic,
        key=message.key.decode("utf-8", "replace") if message.key else None,
        raw=base64.b64encode(raw).decode(),
        failed_at=now,
    )


def letters_out(letters: Sequence[DeadLetter]) -> list[Outgoing]:
    """The letters as messages, for those who read the topic."""
    return [Outgoing("deadletters", item.dead_letter_id, item.dead_letter_id, item.to_bytes()) for item in letters]
