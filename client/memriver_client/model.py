"""Client, model: a memory and its event as plain data classes, read tolerantly so that a newer service does not break us."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

ACTIVE = "active"
DELETED = "deleted"

NEWEST_SCHEMA = 1
"""The newest `schema_version` of an event that this client understands."""


def parse_time(value: str) -> datetime:
    """RFC 3339 → aware UTC.

    Raises:
        ValueError: not a timestamp, or one without an offset.
    """
    # Python 3.10's fromisoformat knows neither a trailing Z nor other than 3 or 6 digits of a second.
    text = value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value
    head, point, tail = text.partition(".")
    if point:
        digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
        text = f"{head}.{digits[:6]:0<6}{tail[len(digits) :]}"
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("a timestamp needs an offset")
    return instant.astimezone(timezone.utc)


def optional_time(value: str | None) -> datetime | None:
    """`parse_time`, None stays None."""
    return None if value is None else parse_time(value)


@dataclass(frozen=True)
class Interval:
    """A time during which the value held; `end` None: it still does."""

    start: datetime
    end: datetime | None = None


@dataclass(frozen=True)
class Evidence:
    """A quote and the turn it stands in."""

    turn_id: str
    quote: str = field(repr=False)


@dataclass(frozen=True)
class Memory:
    """The whole state of a memory at one version. `version` starts at 1, grows with each change and never falls.

    What a person said (`value`, `text`) stays out of `repr`, which ends up in logs. `raw` is everything the service
    sent, also what this client does not know yet. Over HTTP `tenant`, `cardinality` and `intervals` stay empty: the key
    decides about the tenant, and `valid_from` and `valid_to` are the latest interval.
    """

    id: str
    version: int
    tenant: str
    owner_kind: str
    owner: str
    namespace: str
    status: str
    type: str = ""
    category: str = ""
    subject: str = field(default="", repr=False)
    attribute: str = ""
    value: str = field(default="", repr=False)
    cardinality: str = ""
    text: str = field(default="", repr=False)
    language: str = ""
    confidence: float = 0.0
    sensitivity: str = "normal"
    source_kind: str = ""
    explicit: bool = False
    intervals: tuple[Interval, ...] = field(default=(), repr=False)
    valid_from: datetime | None = field(default=None, repr=False)
    valid_to: datetime | None = field(default=None, repr=False)
    first_stated_at: datetime | None = field(default=None, repr=False)
    last_stated_at: datetime | None = field(default=None, repr=False)
    expires_at: datetime | None = field(default=None, repr=False)
    superseded_by: str | None = field(default=None, repr=False)
    evidence: tuple[Evidence, ...] = field(default=(), repr=False)
    agent_id: str | None = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_dict(cls, data: Any) -> Memory:
        """Read a memory as events carry it.

        Raises:
            ValueError: not an object, or a field that decides about isolation or order is missing or of a wrong type.
        """
        # No default: a memory that does not say whose it is must not end up with someone.
        memory = cls._read(data, required(_object(data), "tenant"))
        latest = memory.intervals[-1] if memory.intervals else None
        end = latest.end if latest else None
        return replace(memory, valid_from=latest.start if latest else None, valid_to=end or memory.expires_at)

    @classmethod
    def from_view(cls, data: Any, tenant: str = "") -> Memory:
        """Read a memory as the API shows it, to a key of that tenant; see `from_dict` for errors."""
        return cls._read(data, tenant)

    @classmethod
    def _read(cls, data: Any, tenant: str) -> Memory:
        data = _object(data)
        version = data.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError("a memory needs a version of at least 1")
        try:
            return cls(
                id=required(data, "id"),
                version=version,
                tenant=tenant,
                owner_kind=required(data, "owner_kind"),
                owner=required(data, "owner"),
                namespace=required(data, "namespace"),
                status=required(data, "status"),
                source_kind=str(data.get("source_kind") or data.get("source") or ""),
                intervals=tuple(
                    Interval(parse_time(item["start"]), optional_time(item.get("end")))
                    for item in data.get("intervals") or ()
                ),
                valid_from=optional_time(data.get("valid_from")),
                valid_to=optional_time(data.get("valid_to")),
                first_stated_at=optional_time(data.get("first_stated_at")),
                last_stated_at=optional_time(data.get("last_stated_at")),
                expires_at=optional_time(data.get("expires_at")),
                superseded_by=data.get("superseded_by"),
                evidence=tuple(Evidence(str(e["turn_id"]), str(e["quote"])) for e in data.get("evidence") or ()),
                agent_id=data.get("agent_id"),
                confidence=float(data.get("confidence") or 0.0),
                explicit=bool(data.get("explicit")),
                sensitivity=str(data.get("sensitivity") or "normal"),
                raw=dict(data),
                **{name: str(data.get(name) or "") for name in _TEXTS},
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a field of a memory has a wrong type ({type(error).__name__})") from None

    @property
    def deleted(self) -> bool:
        """Whether this version says that the memory is gone."""
        return self.status == DELETED

    def usable(self, now: datetime) -> bool:
        """Whether an agent may act on it: active, and not past its expiry even if the event of that is still under way."""
        return self.status == ACTIVE and (self.expires_at is None or self.expires_at > now)

    def content_digest(self) -> str:
        """32 hex characters over what the memory says; equal versions must have equal digests.

        Taken from the parsed fields that both events and the API carry, so that "…Z" and "…+00:00" are equal, a memory read
        over HTTP can meet its event, and a field added by a newer service is not a conflict.
        """
        times = [str(time) for time in (self.valid_from, self.valid_to, self.expires_at)]
        said = [getattr(self, name) for name in _CONTENT] + times
        return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


_TEXTS = ("type", "category", "subject", "attribute", "value", "cardinality", "text", "language")
_CONTENT = (
    *("owner_kind", "owner", "namespace", "type", "category", "subject", "attribute", "value", "text", "language"),
    *("status", "sensitivity", "source_kind", "confidence", "superseded_by"),
)


@dataclass(frozen=True)
class MemoryUpdated:
    """One event of the `memory_updated` topic. (`memory.id`, `memory.version`) identifies it.

    `owner_seq` counts the events of one owner without gaps. `replaces` names memories that this change retired.
    """

    event_id: str
    change: str
    memory: Memory
    owner_seq: int
    occurred_at: datetime
    cause: str = ""
    cause_turn_ids: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: Any) -> MemoryUpdated:
        """Read one decoded event.

        Raises:
            ValueError: not an event, or of a `schema_version` newer than this client.
        """
        data = _object(data)
        schema = data.get("schema_version", 1)
        if not isinstance(schema, int) or schema > NEWEST_SCHEMA:
            raise ValueError("the event's schema_version is newer than this client: upgrade memriver-client")
        sequence = data.get("owner_seq")
        if not isinstance(sequence, int) or isinstance(sequence, bool):
            raise ValueError("an event needs owner_seq")
        return cls(
            event_id=required(data, "event_id"),
            change=required(data, "change"),
            memory=Memory.from_dict(data.get("memory")),
            owner_seq=sequence,
            occurred_at=parse_time(required(data, "occurred_at")),
            cause=str(data.get("cause") or ""),
            cause_turn_ids=tuple(data.get("cause_turn_ids") or ()),
            replaces=tuple(data.get("replaces") or ()),
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> MemoryUpdated:
        """Read one record's value; see `from_dict` for errors."""
        try:
            data = json.loads(raw)
        except RecursionError:
            raise ValueError("the event is nested too deeply") from None
        return cls.from_dict(data)


def required(data: Mapping[str, Any], name: str) -> str:
    """A field that must be a non-empty string; else ValueError, naming the field and never its content."""
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a non-empty string")
    return value


def _object(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"must be a JSON object, not {type(data).__name__}")
    return data
