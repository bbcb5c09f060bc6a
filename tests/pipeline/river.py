"""Pipeline tests: a log through the whole embedded river, and everything that it left, read back from the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from pydantic import SecretStr

from schemas import Memory, MemoryUpdated, Status, Turn
from sinks.truth import batches, deadletters, memories, outbox, turns
from sinks.vectors import StoredPoint
from streams.cli.embedded import Embedded
from streams.importers import read_log
from streams.importers.records import ImportOptions
from streams.publish import publish_log
from streams.settings import Settings, StageName

STAGES: tuple[StageName, ...] = ("ingest", "extract", "resolve", "bury")
START = datetime(2026, 3, 2, 1, tzinfo=UTC)
Then = Callable[[Embedded], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left behind."""

    memories: list[Memory]
    versions: set[str]
    events: list[MemoryUpdated]
    turns: list[dict[str, Any]]
    letters: list[dict[str, Any]]
    reviews: list[dict[str, Any]]
    batches: dict[str, int]
    points: dict[str, StoredPoint]
    unpublished: int
    extra: dict[str, Any] = field(default_factory=dict)

    def of(self, owner: str, status: Status | None = None) -> list[Memory]:
        """One person's memories."""
        return [item for item in self.memories if item.owner == owner and status in (None, item.status)]

    def active(self, owner: str) -> dict[str, set[str]]:
        """What holds for a person, by attribute."""
        found: dict[str, set[str]] = {}
        for item in self.of(owner, Status.ACTIVE):
            found.setdefault(item.attribute, set()).add(item.value)
        return found

    def outcome(self, turn_id: str) -> tuple[str, str | None]:
        """What became of a turn, and why."""
        [row] = [row for row in self.turns if row["turn_id"] == turn_id]
        return str(row["outcome"]), row["reason"]

    def current(self) -> dict[str, tuple[Any, ...]]:
        """The part of truth that must not depend on the order of arrival: what holds, at which version."""
        return {
            item.id: (
                item.version,
                item.value,
                item.text,
                item.valid_from,
                item.evidence_count,
                item.confidence,
                item.expires_at,
            )
            for item in self.memories
            if item.status is Status.ACTIVE
        }

    def past(self) -> set[tuple[str, str, str, Status]]:
        """What no longer holds, or never should."""
        return {
            (item.owner, item.attribute, item.value, item.status)
            for item in self.memories
            if item.status is not Status.ACTIVE
        }


def settings(**changed: Any) -> Settings:
    """Settings that look at no file."""
    return Settings(_env_file=None, **{"hash_key": SecretStr("a key for tests only"), "model_base_url": "", **changed})


def said(number: int, text: str, **fields: Any) -> dict[str, Any]:
    """One line of a gateway: ann's turn in minute `number`."""
    given = {
        "tenant": "acme",
        "conversation_id": "c1",
        "turn_id": f"t{number}",
        "user_id": "ann",
        "role": "user",
        "text": text,
        "sent_at": (START + timedelta(minutes=number)).isoformat(),
        "timezone": "Asia/Shanghai",
    }
    return given | fields


def write_log(path: Path, lines: Iterable[dict[str, Any] | Turn | bytes]) -> Path:
    """A native log of these lines; bytes are written as they are."""
    raw: list[bytes] = []
    for line in lines:
        raw.append(
            line if isinstance(line, bytes) else line.to_bytes() if isinstance(line, Turn) else orjson.dumps(line)
        )
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return path


def process(
    directory: Path,
    *logs: Path,
    given: Settings | None = None,
    stages: Sequence[StageName] = STAGES,
    then: Then | None = None,
    tenant: str = "acme",
) -> Left:
    """Run logs through an embedded river, then whatever `then` does, and look at what is left."""
    return asyncio.run(_process(directory, logs, given or settings(), stages, then, tenant))


async def _process(
    directory: Path, logs: Sequence[Path], given: Settings, stages: Sequence[StageName], then: Then | None, tenant: str
) -> Left:
    embedded = Embedded(given, directory, stages)
    try:
        await embedded.start()
        for path in logs:
            await publish(embedded, path, tenant=tenant)
            await embedded.drained()
        if then is not None:
            await then(embedded)
        await heard(embedded)
        return await asyncio.to_thread(_left, embedded)
    finally:
        await embedded.stop()


async def publish(embedded: Embedded, path: Path, *, tenant: str = "acme") -> None:
    """Onto the embedded broker, as `memriver import` does."""
    options = ImportOptions(tenant=tenant, now=datetime.now(UTC))
    records = read_log(path, None, options)
    await publish_log(embedded.runtime.producer, records, now=datetime.now(UTC), room=embedded.room)


async def heard(embedded: Embedded) -> None:
    """Every published `memory_updated`, tombstones too, has come back to a consumer."""
    async with asyncio.timeout(60):
        while True:
            if embedded.heard >= embedded.runtime.producer.sent["memory_updated"]:
                return
            await asyncio.sleep(0.02)


def _left(embedded: Embedded) -> Left:
    with embedded.runtime.truth.reading() as connection:
        return Left(
            memories=memories.listing(connection),
            versions=memories.version_ids(connection),
            events=list(embedded.events),
            turns=turns.outcomes(connection),
            letters=deadletters.listing(connection, limit=10_000),
            reviews=memories.reviews_open(connection),
            batches=batches.count_by_status(connection),
            points={point.id: point for point in embedded.runtime.vectors.scroll()},
            unpublished=outbox.size(connection),
        )
