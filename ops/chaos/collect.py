"""Chaos, gathering the evidence: truth, vectors, topics and a replica, read as any client would read them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from sqlalchemy import func, select

from ops.chaos.found import Batch, Found, Letter, MemoryRow, Record
from schemas import Turn
from sinks.sealing import DataKeys, open_frame, read_frame
from sinks.truth import Truth, access, outbox, tables
from sinks.vectors import VectorStore


def from_truth(found: Found, truth: Truth, *, turn_keys: Iterable[str], commands: Iterable[str]) -> None:
    """Everything that the database holds, and what the look-ups answer for these turns and commands."""
    with truth.reading() as connection:
        said: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
        for row in connection.execute(select(tables.turns)):
            found.outcomes[row.turn_key] = (row.outcome, row.reason)
            turn = Turn.from_bytes(row.body.encode())
            said[row.conversation_key].append((turn.sent_at, turn.turn_id, turn.text))
        found.sessions = {key: [(turn, text) for _at, turn, text in sorted(rows)] for key, rows in said.items()}
        for row in connection.execute(select(tables.conversations)):
            found.turn_counts[row.conversation_key] = row.turn_count
            found.pending[row.conversation_key] = row.pending_count
        for row in connection.execute(select(tables.memories)):
            found.memories[row.id] = MemoryRow(row.status, row.version, row.value, row.evidence_count)
        columns = (tables.memory_versions.c.memory_id, tables.memory_versions.c.version)
        for row in connection.execute(select(*columns)):
            found.versions.setdefault(row.memory_id, []).append(row.version)
        letter = tables.dead_letters.c
        for row in connection.execute(select(letter.dead_letter_id, letter.stage, letter.reason, letter.place)):
            found.letters.append(Letter(row.dead_letter_id, row.stage, row.reason, row.place))
        batch = tables.batches.c
        for row in connection.execute(select(batch.batch_id, batch.status, batch.turn_keys)):
            found.batches.append(Batch(row.batch_id, row.status, tuple(orjson.loads(row.turn_keys))))
        counted = select(tables.claims.c.turn_key, func.count()).group_by(tables.claims.c.turn_key)
        found.claims = Counter({key: int(number) for key, number in connection.execute(counted)})
        found.outbox = outbox.size(connection)
        for key in turn_keys:
            state = access.turn_state(connection, key)
            if state is not None:
                found.looked_up[key] = (state["outcome"], state["reason"])
        found.commands = {command: access.command_state(connection, command).state for command in commands}


def from_vectors(found: Found, store: VectorStore) -> None:
    """Every point and tombstone."""
    found.points = {point.id: (point.version, point.status) for point in store.scroll()}


def from_sealed(found: Found, raws: Iterable[bytes], truth: Truth, data_keys: DataKeys) -> None:
    """Every copy on the sealed log, opened with its owner's key: nobody is erased in a run, so each one has its own."""
    frames = [read_frame(raw) for raw in raws]
    with truth.reading() as connection:
        keys = data_keys.fetch(connection, {frame.key_id for frame in frames})
    for frame in frames:
        key = keys.get(frame.key_id)
        if key is None:
            raise RuntimeError(f"a turn is sealed with the key {frame.key_id}, which truth does not have")
        found.sealed.append(open_frame(frame, key.cipher))


def is_ours(raw: bytes) -> bool:
    """Whether a message on `commands` was produced by the load: ingest sends its retractions there too."""
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return True
    return not isinstance(data, dict) or data.get("issued_by") not in ("ingest", "expiry", "feedback")


def topic(bootstrap: str, name: str) -> list[Record]:
    """Every message of a topic, in the order of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{name}.verifier", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
        places = [TopicPartition(name, number, OFFSET_BEGINNING) for number in partitions]
        missing = sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
        consumer.assign(places)
        records: list[Record] = []
        while len(records) < missing:
            message = consumer.poll(30)
            if message is None or message.error() is not None:
                raise RuntimeError(f"{name} has {missing} messages, and only {len(records)} came")
            key = (message.key() or b"").decode(errors="replace")
            records.append(Record(message.partition() or 0, message.offset() or 0, key, message.value()))
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))
