"""Contracts: a message that could not be processed, kept with its reason and its bytes."""

from __future__ import annotations

import base64

from schemas.base import Contract, UtcDatetime


class DeadLetter(Contract):
    """`raw` is base64 of the original bytes; `where` is topic:partition:offset, or file:line for an importer.

    `reason` is a short code, `detail` a sentence without personal content. `original_bytes` is how long the message was when
    `raw` holds only its beginning; None: `raw` is all of it.
    """

    dead_letter_id: str
    stage: str
    reason: str
    detail: str
    where: str
    topic: str
    key: str | None = None
    attempts: int = 1
    raw: str
    original_bytes: int | None = None
    failed_at: UtcDatetime

    @property
    def raw_bytes(self) -> bytes:
        """The original message."""
        return base64.b64decode(self.raw)
