"""Portability, Zep and Graphiti: edges of a temporal graph (help.getzep.com, graphiti_core/edges.py: EntityEdge).

An edge is `uuid`, `name` (the relation), `fact` (a sentence), `source_node_uuid`, `target_node_uuid`, `episodes`, `group_id`
or `user_id`, `attributes`, and four times: `valid_at` to `invalid_at` is when it was so, `created_at` to `expired_at` when the
graph held it. What was so becomes an interval here; what the graph has given up is superseded, and stays as history.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from processors.slots import slot_for
from schemas import Candidate, Cardinality, Operation, new_id
from streams.portability.record import BadField, Origin, Said, claim_from, instant, words

LISTS = ("edges", "facts", "results")
"""Under which names an object holds the records."""

# Relations that mean a slot by themselves, when it is the person whose graph it is that has them.
_SLOTS = {
    "LIVES_IN": "residence",
    "RESIDES_IN": "residence",
    "LOCATED_IN": "residence",
    "FROM": "hometown",
    "IS_FROM": "hometown",
    "BORN_IN": "hometown",
    "WORKS_AT": "employer",
    "WORKS_FOR": "employer",
    "EMPLOYED_BY": "employer",
    "WORKS_AS": "occupation",
    "HAS_JOB": "occupation",
    "STUDIES_AT": "school",
    "ATTENDS": "school",
    "SPEAKS": "language",
    "LIKES": "likes",
    "LOVES": "likes",
    "ENJOYS": "likes",
    "PREFERS": "likes",
    "DISLIKES": "dislikes",
    "HATES": "dislikes",
    "ALLERGIC_TO": "allergy",
    "HAS_ALLERGY": "allergy",
    "HAS_PET": "pet",
    "OWNS_PET": "pet",
    "HAS_HOBBY": "hobby",
    "HAS_SKILL": "skill",
}
_SELF = frozenset({"user", "the user", "me", "用户", "我"})
_USED = ("uuid", "fact", "user_id", "group_id", "episodes", "valid_at", "invalid_at", "created_at", "expired_at")
_ENDS = ("invalid_at", "expired_at")
_NEVER = ("fact_embedding", "score", "relevance")


def claims(record: Mapping[str, Any], origin: Origin, nodes: Mapping[str, Mapping[str, Any]]) -> list[Candidate]:
    """The claim that an edge was so, and another one that it is so no more.

    Raises:
        BadField: no uuid, no fact, a time that cannot be read, or an end before its beginning.
    """
    fact = words(record, "fact")
    times = {
        name: instant(record, name, origin.zone, through=name in _ENDS)
        for name in ("valid_at", "invalid_at", "created_at", "expired_at")
    }
    created = times["created_at"] or times["valid_at"] or origin.modified
    begins = times["valid_at"] or created
    ends = times["invalid_at"] or times["expired_at"]
    if times["invalid_at"] is not None and times["invalid_at"] < begins:
        raise BadField("invalid_interval", "invalid_at lies before valid_at")
    attribute, value = _slot(record, nodes, fact, origin.owner.id)
    over = ends is not None and ends <= origin.now
    # Known to be over when it was learnt: in a slot of one value it must not unseat what holds, however it arrives.
    past = over and ends is not None and ends <= created and slot_for(attribute).cardinality is Cardinality.SINGLE
    episodes = record.get("episodes") or []
    if not isinstance(episodes, list):
        raise BadField("invalid_field", "episodes is a list")
    said = Said(
        id=words(record, "uuid"),
        text=fact,
        attribute=attribute,
        value=value,
        event_time=begins,
        stated_at=created,
        sources=tuple(f"{origin.format}:{item}" for item in episodes if isinstance(item, str)),
        valid_to=ends if past or (ends is not None and not over) else None,
    )
    held = {name: at.isoformat() for name, at in times.items() if at is not None}
    rest = {name: item for name, item in record.items() if name not in (*_USED, *_NEVER) and item is not None}
    first = claim_from(said, origin, rest | held)
    if not over or past or ends is None:
        return [first]
    return [first, _end(first, ends, times["expired_at"])]


def _end(first: Candidate, ends: datetime, expired: datetime | None) -> Candidate:
    """Said when the graph gave it up, or when it ended; after its beginning in any case."""
    said = max(expired or ends, ends, first.stated_at + timedelta(microseconds=1))
    return first.model_copy(
        update={
            "candidate_id": new_id(first.candidate_id, "end"),
            "operation": Operation.END,
            "event_time": ends,
            "stated_at": said,
            "position": 1,
        }
    )


def _slot(record: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], fact: str, owner: str) -> tuple[str, str]:
    """Attribute and value: the relation's slot and the target's name where both are clear, else a note of the fact."""
    relation = str(record.get("name") or "").strip().upper().replace(" ", "_").replace("-", "_")
    attribute, target = _SLOTS.get(relation), _name(record, nodes, "target")
    if attribute is None or target is None or not _is_self(record, nodes, owner):
        return "note", fact
    return attribute, target


def _is_self(record: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], owner: str) -> bool:
    node = nodes.get(str(record.get("source_node_uuid")), {})
    labels = node.get("labels") or []
    name = (_name(record, nodes, "source") or "").casefold()
    return name in _SELF or name == owner.casefold() or (isinstance(labels, list) and "User" in labels)


def _name(record: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], end: str) -> str | None:
    node = record.get(f"{end}_node") or nodes.get(str(record.get(f"{end}_node_uuid")), {})
    value = record.get(f"{end}_node_name") or (node.get("name") if isinstance(node, Mapping) else None)
    return value.strip() if isinstance(value, str) and value.strip() else None
