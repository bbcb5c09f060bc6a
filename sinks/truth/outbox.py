"""Truth, inbox and outbox: messages that came and messages that must go, in the same transaction as the effects."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, Select, bindparam, delete, func, or_, select, text

from schemas import Memory
from sinks.truth.sql import KEYS, by_keys, chunks, insert_rows
from sinks.truth.tables import inbox, outbox
from sinks.truth.together import Question, Questions, prepared

# The table is nearly empty, so for `id IN (…)` MySQL and MariaDB prefer to scan it, and a scan waits for the locks of rows
# that other stages have just written and not committed. Joined in this order, each id is one look-up by key.
_DELETE_BY_KEY = text(
    "DELETE o FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS v STRAIGHT_JOIN outbox AS o ON o.id = v.id"
)
_lock = threading.Lock()
_last = 0


def _next_id() -> int:
    """Strictly growing in this process and, clocks being roughly right, after what an earlier process gave out.

    Chosen here and not by the database, so that the rows of a group can be deleted by id without reading them back; two
    processes that hit the same nanosecond collide on the primary key and the transaction runs again.
    """
    global _last
    with _lock:
        _last = max(_last + 1, time.time_ns())
        return _last


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish; `partition_key` chooses the partition.

    `payload` None is a tombstone, and `version`, which goes into the message's header of that name, what it ends. `memory`
    is what the payload, an event, says; None when nobody has it at hand.
    """

    topic: str
    key: str
    partition_key: str
    payload: bytes | None
    source_partition: int = 0
    id: int = 0
    version: int | None = None
    memory: Memory | None = field(default=None, compare=False, repr=False)


def put(connection: Connection, stage: str, messages: Sequence[Outgoing], now: datetime) -> list[Outgoing]:
    """Write the messages in order; returns them with their ids."""
    rows = [
        Outgoing(m.topic, m.key, m.partition_key, m.payload, m.source_partition, _next_id(), m.version, m.memory)
        for m in messages
    ]
    insert_rows(
        connection,
        outbox,
        [
            {
                "id": row.id,
                "stage": stage,
                "source_partition": row.source_partition,
                "topic": row.topic,
                "message_key": row.key,
                "partition_key": row.partition_key,
                "payload": row.payload,
                "version": row.version,
                "created_at": now,
            }
            for row in rows
        ],
    )
    return rows


def leftover(
    connection: Connection,
    stage: str,
    limit: int,
    *,
    partitions: Iterable[int] | None = None,
    before: datetime | None = None,
    ahead: datetime | None = None,
) -> list[Outgoing]:
    """What an earlier owner of these partitions committed and did not publish, oldest first.

    With `before`, only what was committed before it, or, by a clock that was set back since, after `ahead`.
    """
    query = select(outbox).where(outbox.c.stage == stage).order_by(outbox.c.id).limit(limit)
    if partitions is not None:
        query = query.where(outbox.c.source_partition.in_(list(partitions)))
    if before is not None:
        old = outbox.c.created_at < before
        query = query.where(old if ahead is None else or_(old, outbox.c.created_at > ahead))
    return [_outgoing(row) for row in connection.execute(query)]


def _outgoing(row: Any) -> Outgoing:
    return Outgoing(
        row.topic, row.message_key, row.partition_key, row.payload, row.source_partition, row.id, row.version
    )


_FOR_KEYS = select(outbox).where(outbox.c.partition_key.in_(KEYS)).order_by(outbox.c.id)
_WAITING_FOR = _FOR_KEYS.where(outbox.c.stage == bindparam("stage"))
_UNSENT = _FOR_KEYS.where(outbox.c.topic == bindparam("topic"))


def _for_keys(query: Select[Any], partition_keys: Iterable[str], **named: str) -> Questions:
    for question in by_keys(query, partition_keys):
        yield Question(question.select, {**named, **(question.values or {})})


def _answered(connection: Connection, questions: Questions) -> list[Outgoing]:
    return [_outgoing(row) for question in questions for row in connection.execute(*question)]


def waiting_for(stage: str, partition_keys: Iterable[str]) -> Questions:
    """What `take_over` asks; see `together.foresee`."""
    return _for_keys(_WAITING_FOR, partition_keys, stage=stage)


def take_over(connection: Connection, stage: str, partition_keys: Iterable[str]) -> list[Outgoing]:
    """What another process has committed for these keys and not yet sent, or sent and not yet deleted, in its order.

    It is the caller's now, who puts it before its own messages; the caller holds a lock without which nobody commits for
    these keys. The other one may still send it: then it goes out twice.
    """
    rows = _answered(connection, waiting_for(stage, partition_keys))
    done(connection, [row.id for row in rows])
    return rows


def unsent(connection: Connection, topic: str, partition_keys: Iterable[str]) -> list[Outgoing]:
    """What is committed for this topic under these keys and not deleted yet, oldest first; some of it may be sent."""
    return _answered(connection, _for_keys(_UNSENT, partition_keys, topic=topic))


def done(connection: Connection, ids: Iterable[int]) -> None:
    """They are published: the rows go."""
    by_key = connection.dialect.name in ("mysql", "mariadb")
    for chunk in chunks(ids):
        if by_key:
            prepared(connection, _DELETE_BY_KEY, {"ids": orjson.dumps(chunk).decode()})
        else:
            connection.execute(delete(outbox).where(outbox.c.id.in_(chunk)))


def oldest(connection: Connection) -> datetime | None:
    """When the oldest unpublished message was committed."""
    return connection.execute(select(func.min(outbox.c.created_at))).scalar()


def size(connection: Connection) -> int:
    """Messages committed and not yet published."""
    return int(connection.execute(select(func.count()).select_from(outbox)).scalar() or 0)


def seen(connection: Connection, stage: str, message_ids: Iterable[str]) -> set[str]:
    """Which of these messages this stage has already processed."""
    found: set[str] = set()
    for chunk in chunks(message_ids):
        query = select(inbox.c.message_id).where(inbox.c.stage == stage, inbox.c.message_id.in_(chunk))
        found |= set(connection.execute(query).scalars())
    return found


def receive(connection: Connection, stage: str, message_ids: Iterable[str], now: datetime) -> None:
    """Write the inbox rows; a message that another worker processed meanwhile raises a conflict."""
    insert_rows(connection, inbox, [{"stage": stage, "message_id": item, "processed_at": now} for item in message_ids])


def forget_older_than(connection: Connection, before: datetime) -> int:
    """Drop inbox rows that no broker can redeliver any more; returns how many."""
    return int(connection.execute(delete(inbox).where(inbox.c.processed_at < before)).rowcount)
