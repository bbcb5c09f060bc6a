"""Views: memories, versions, reviews and turns as they leave the house; nothing that is not meant for the reader."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from recall.writing import Ordered
from schemas import Memory, MemoryUpdated, Status, Turn
from sinks.truth.reviews import Review


def memory_view(memory: Memory) -> dict[str, Any]:
    """A memory with its evidence; without the internal keys."""
    return {
        "id": memory.id,
        "version": memory.version,
        "status": memory.status.value,
        "owner_kind": memory.owner_kind.value,
        "owner": memory.owner,
        "namespace": memory.namespace,
        "type": memory.type.value,
        "category": memory.category.value,
        "subject": memory.subject,
        "attribute": memory.attribute,
        "value": memory.value,
        "text": memory.text,
        "language": memory.language,
        "confidence": memory.confidence,
        "sensitivity": memory.sensitivity.value,
        "source": memory.source_kind.value,
        "valid_from": memory.valid_from,
        "valid_to": memory.valid_to or memory.expires_at,
        "first_stated_at": memory.first_stated_at,
        "last_stated_at": memory.last_stated_at,
        "expires_at": memory.expires_at,
        "superseded_by": memory.superseded_by,
        "evidence": [{"turn_id": item.turn_id, "quote": item.quote} for item in memory.evidence],
        "evidence_count": memory.evidence_count,
        "writer": memory.audit.writer,
    }


def version_view(row: Mapping[str, Any], *, deleted: bool) -> dict[str, Any]:
    """One version. What was deleted shows that it was there and when, and nothing of what it said."""
    memory: Memory = row["memory"]
    view: dict[str, Any] = {
        "version": row["version"],
        "change": row["change"],
        "status": memory.status.value,
        "cause": row["cause"],
        "writer": memory.audit.writer,
        "recorded_at": row["recorded_at"],
    }
    if not deleted:
        view |= {"value": memory.value, "text": memory.text, "valid_from": memory.valid_from}
        view["valid_to"] = memory.valid_to
    return view


def review_view(review: Review, held: Mapping[str, Memory]) -> dict[str, Any]:
    """One question, with the memories it is about; of a deleted one nothing is shown."""
    view: dict[str, Any] = {
        "id": review.review_id,
        "kind": review.kind,
        "owner_kind": review.owner_kind,
        "owner": review.owner,
        "detail": review.detail,
        "status": review.status,
        "opened_at": review.opened_at,
        "decided_by": review.decided_by,
        "decided_at": review.decided_at,
        "memory": None,
        "other": None,
        "held_command": None,
    }
    for name, memory_id in (("memory", review.memory_id), ("other", review.other_memory_id)):
        memory = held.get(memory_id) if memory_id is not None else None
        if memory is not None and memory.status is not Status.DELETED:
            view[name] = memory_view(memory)
    about = held.get(review.memory_id) if review.memory_id is not None else None
    if about is not None and about.status is Status.DELETED:
        # What was to be said of it may say what it said.
        return view | {"detail": "the memory was deleted"}
    if review.body is not None:
        command = orjson.loads(review.body)
        view["held_command"] = {
            name: command.get(name) for name in ("kind", "issued_by", "issued_at", "expected_version")
        }
        view["held_command"]["text"] = command.get("payload", {}).get("text")
        view["held_command"]["value"] = command.get("payload", {}).get("value")
    return view


def turn_view(turn: Turn) -> dict[str, Any]:
    """A turn of a session."""
    return {
        "turn_id": turn.turn_id,
        "user_id": turn.user_id,
        "role": turn.role.value,
        "text": turn.text,
        "sent_at": turn.sent_at,
        "timezone": turn.timezone,
    }


def event_view(event: MemoryUpdated) -> dict[str, Any]:
    """A change, for the feed."""
    return {
        "event_id": event.event_id,
        "change": event.change.value,
        "owner_seq": event.owner_seq,
        "occurred_at": event.occurred_at,
        "replaces": list(event.replaces),
        "memory": memory_view(event.memory),
    }


def accepted_view(orders: list[Ordered]) -> dict[str, Any]:
    """What was sent to the resolver, and where its fate can be looked up."""
    return {
        "status": "accepted",
        "commands": [
            {
                "command_id": item.command.command_id,
                "kind": item.command.kind.value,
                "memory_id": item.command.memory_id,
                "expected_version": item.command.expected_version,
                "decision": item.decision,
                "reasons": list(item.reasons),
                "see": f"/v1/commands/{item.command.command_id}",
            }
            for item in orders
        ],
    }


def cursor_of(end: tuple[datetime, str] | None) -> str | None:
    """Where the next page starts, as an opaque word. It is a place, not a permission: every page is authorised anew."""
    if end is None:
        return None
    return base64.urlsafe_b64encode(orjson.dumps([end[0].isoformat(), end[1]])).decode().rstrip("=")


def cursor_from(word: str | None) -> tuple[datetime, str] | None:
    """Raises ValueError for anything that `cursor_of` did not make."""
    if word is None:
        return None
    try:
        at, name = orjson.loads(base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True))
        moment = datetime.fromisoformat(at)
    except (ValueError, TypeError, binascii.Error) as error:
        raise ValueError("cursor is not one that was given out here") from error
    if moment.tzinfo is None or not isinstance(name, str) or len(name) > 36:
        raise ValueError("cursor is not one that was given out here")
    return moment, name
