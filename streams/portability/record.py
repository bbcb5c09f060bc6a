"""Portability, records of other systems: times with their zone, owners, and the claim that a record becomes. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from processors.access import OwnerRef
from processors.exceptions import PoisonError
from processors.language import detect
from processors.slots import namespace_of, slot_for
from schemas import Candidate, Category, Channel, Evidence, OwnerKind, Provenance, SourceKind, digest, new_id
from schemas.turn import MAX_TEXT

CONFIDENCE = 0.8
"""Of what another system's model extracted: below a person's own word here, above a guess."""
MAX_EVIDENCE = 5
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class BadField(PoisonError):
    """This record cannot be read; the text says which field and holds no value."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a record does not say itself. `modified` stands in for times that are missing; `mask` hides secrets in JSON."""

    format: str
    tenant: str
    owner: OwnerRef
    zone: ZoneInfo
    timezone: str
    now: datetime
    modified: datetime
    by: str
    mask: Callable[[Any], Any]

    @property
    def owner_key(self) -> str:
        """Digest of the owner."""
        return digest(self.tenant, self.owner.kind, self.owner.id)


@dataclass(frozen=True, slots=True)
class Said:
    """What a record says, in words that every system has."""

    id: str
    text: str
    attribute: str
    value: str
    event_time: datetime
    stated_at: datetime
    sources: tuple[str, ...]
    conversation_id: str = ""
    valid_to: datetime | None = None
    category: Category | None = None
    source: SourceKind = SourceKind.USER_STATEMENT
    agent_id: str | None = None


def owner_of(record: Mapping[str, Any]) -> OwnerRef | None:
    """Whose it is: `user_id`, else the graph or group, else the agent alone."""
    for name, kind in (("user_id", OwnerKind.USER), ("group_id", OwnerKind.USER), ("agent_id", OwnerKind.AGENT)):
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return OwnerRef(kind, value)
    return None


def words(record: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that has text.

    Raises:
        BadField: none has, or it is longer than a turn may be.
    """
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            if len(value) > MAX_TEXT:
                raise BadField("too_long", f"{name} has more than {MAX_TEXT} characters")
            return value.strip()
    raise BadField("missing_field", f"no {' or '.join(names)}")


def instant(record: Mapping[str, Any], name: str, zone: ZoneInfo, *, through: bool = False) -> datetime | None:
    """A time in ISO 8601 as UTC; one without an offset is in `zone`. A bare day is its beginning there, or `through` its end.

    Raises:
        BadField: it is there and cannot be read.
    """
    value = record.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadField("invalid_time", f"{name} is no ISO 8601 time")
    try:
        if _DAY.fullmatch(value):
            day = datetime.fromisoformat(value).date() + timedelta(days=int(through))
            return datetime.combine(day, time(), zone).astimezone(UTC)
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo is not None else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadField("invalid_time", f"{name} is no ISO 8601 time") from error


def claim_from(said: Said, origin: Origin, rest: Mapping[str, Any]) -> Candidate:
    """The claim, unjudged. `rest` is what has no field of its own here: it stays with the claim as `imported`, masked."""
    slot, owner = slot_for(said.attribute), origin.owner
    root = f"{origin.format}:{said.id}"
    provenance = Provenance(source=said.source, turn_id=root, method=origin.by, confidence=CONFIDENCE)
    return Candidate.model_validate(
        {
            "candidate_id": new_id("import", origin.owner_key, root, said.text, said.stated_at.isoformat()),
            "tenant": origin.tenant,
            "owner_kind": owner.kind,
            "owner": owner.id,
            "namespace": namespace_of(owner.kind, owner.id, slot.namespace),
            "conversation_id": said.conversation_id,
            "source_turn_ids": said.sources or (root,),
            "turn_key": digest("import", origin.owner_key, root),
            "agent_id": said.agent_id,
            "channel": Channel.MODEL,
            "writer": origin.by,
            "type": slot.type,
            "category": said.category or slot.category,
            "attribute": slot.attribute,
            "value": said.value,
            "cardinality": slot.cardinality,
            "text": said.text,
            "language": detect(said.text),
            "evidence": tuple(
                Evidence(turn_id=name, turn_key=digest("import", origin.owner_key, name), quote=said.text)
                for name in (said.sources or (root,))[:MAX_EVIDENCE]
            ),
            "source_kind": said.source,
            "event_time": said.event_time,
            "stated_at": said.stated_at,
            "timezone": origin.timezone,
            "valid_to": said.valid_to,
            "ttl_days": slot.ttl_days if said.valid_to is None else None,
            "confidence": CONFIDENCE,
            "sensitivity": slot.sensitivity,
            "provenance": {"value": provenance, "text": provenance},
            "imported": {"format": origin.format, "id": said.id} | origin.mask(dict(rest)),
        }
    )
