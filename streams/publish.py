"""Publishing a log: turns to the `turns` topic, broken records to the dead letters, never more in flight than is safe."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
from aiokafka.errors import KafkaError

from processors.exceptions import PoisonError, TransientError
from schemas import DeadLetter, Turn, new_id
from streams.importers import BadRecord, Record, ServiceMessage
from streams.producer import EventProducer

_WINDOW = 2_000
"""Messages whose acknowledgement is still out; enough to keep the producer's batches full."""


@dataclass(slots=True)
class Published:
    """What became of a log."""

    turns: int = 0
    bytes: int = 0
    service_messages: int = 0
    bad: list[DeadLetter] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """For people and programs."""
        return {
            "turns": self.turns,
            "service_messages": self.service_messages,
            "bad_records": [
                {"where": letter.where, "reason": letter.reason, "detail": letter.detail} for letter in self.bad
            ],
        }


async def publish_log(
    producer: EventProducer,
    records: Iterable[Record],
    *,
    now: datetime,
    room: Callable[[int, int], Awaitable[None]] | None = None,
) -> Published:
    """Publish every record in order.

    `room(messages, bytes)` is awaited before each further chunk with what was published so far; the embedded broker,
    which drops what does not fit, is kept from overflowing by it.

    Raises:
        TransientError: the broker is away. What was published stays published; publishing again changes nothing.
    """
    done = Published()
    flying: list[asyncio.Future[Any]] = []
    iterator = iter(records)
    while True:
        # Parsing is plain CPU work on the caller's loop; a chunk at a time lets the producer's sender run in between.
        record = next(iterator, None)
        if record is None:
            break
        if isinstance(record, ServiceMessage):
            done.service_messages += 1
            continue
        letter = _letter(record, now) if isinstance(record, BadRecord) else None
        if isinstance(record, Turn):
            payload = record.to_bytes()
            try:
                flying.append(await producer.send("turns", record.conversation_key, payload))
                done.turns += 1
                done.bytes += len(payload)
            except PoisonError as error:
                letter = _too_large(record, error, now)
        if letter is not None:
            done.bad.append(letter)
            flying.append(await producer.send("deadletters", letter.dead_letter_id, letter.to_bytes()))
        if len(flying) >= _WINDOW:
            await _settle(flying)
            if room is not None:
                await room(done.turns, done.bytes)
    await _settle(flying)
    return done


async def _settle(flying: list[asyncio.Future[Any]]) -> None:
    try:
        await asyncio.gather(*flying)
    except KafkaError as error:
        raise TransientError(f"broker away or refusing ({type(error).__name__})") from error
    flying.clear()


def _letter(record: BadRecord, now: datetime) -> DeadLetter:
    return DeadLetter(
        dead_letter_id=new_id("dead", "import", record.where, hashlib.sha256(record.raw).hexdigest()),
        stage="import",
        reason=record.reason,
        detail=record.detail,
        where=record.where,
        topic="turns",
        raw=base64.b64encode(record.raw).decode(),
        failed_at=now,
    )


def _too_large(turn: Turn, error: PoisonError, now: datetime) -> DeadLetter:
    head = orjson.dumps({"conversation_id": turn.conversation_id, "turn_id": turn.turn_id, "text": turn.text[:1000]})
    bad = BadRecord(None, f"turn {turn.turn_key}", error.reason, error.detail, head)
    return _letter(bad, now)
