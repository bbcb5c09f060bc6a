"""Portability, mem0: what `get_all` and the platform's export job give (docs.mem0.ai/cookbooks/essentials/exporting-memories).

A record is `id`, `memory` (a sentence), `user_id`, `agent_id`, `run_id`, `metadata`, `hash`, `categories`, `created_at`,
`updated_at`, `expiration_date`; the open-source store adds `role` and `actor_id`. Times carry an offset, usually Pacific.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas import Candidate, Category, SourceKind
from streams.portability.record import BadField, Origin, Said, claim_from, instant, words

LISTS = ("results", "memories")
"""Under which names an object holds the records."""

# mem0's default categories that mean a slot by themselves. One that says only what the sentence is about (travel, food,
# technology) does not: "prefers trains" and "hates trains" are both travel, so the sentence stays a note.
_SLOTS = {"family": "family", "hobbies": "hobby", "milestones": "event"}
_KINDS = {"user_preferences": Category.PREFERENCE}
_USED = ("id", "memory", "user_id", "agent_id", "run_id", "created_at", "updated_at", "expiration_date")
_NEVER = ("score", "embedding", "vector")


def claims(record: Mapping[str, Any], origin: Origin, _nodes: Mapping[str, Mapping[str, Any]]) -> list[Candidate]:
    """The claim of one record.

    Raises:
        BadField: no id, no text, or a time that cannot be read.
    """
    text = words(record, "memory", "text")
    created = instant(record, "created_at", origin.zone)
    updated = instant(record, "updated_at", origin.zone)
    categories = record.get("categories") or []
    if not isinstance(categories, list) or not all(isinstance(item, str) for item in categories):
        raise BadField("invalid_field", "categories is a list of names")
    slots = {_SLOTS[name] for name in categories if name in _SLOTS}
    kinds = {_KINDS[name] for name in categories if name in _KINDS}
    attribute = slots.pop() if len(slots) == 1 and len(categories) == 1 else "note"
    rest = {name: value for name, value in record.items() if name not in (*_USED, *_NEVER) and value is not None}
    times = {name: at.isoformat() for name, at in (("created_at", created), ("updated_at", updated)) if at}
    run = record.get("run_id")
    agent = record.get("agent_id")
    said = Said(
        id=words(record, "id"),
        text=text,
        attribute=attribute,
        value=text,
        event_time=created or updated or origin.modified,
        # The sentence is the one that was last written.
        stated_at=updated or created or origin.modified,
        sources=(),
        conversation_id=run if isinstance(run, str) else "",
        valid_to=instant(record, "expiration_date", origin.zone, through=True),
        category=kinds.pop() if len(kinds) == 1 and attribute == "note" else None,
        source=SourceKind.ASSISTANT if record.get("role") == "assistant" else SourceKind.USER_STATEMENT,
        agent_id=agent if isinstance(agent, str) else None,
    )
    return [claim_from(said, origin, rest | times)]
