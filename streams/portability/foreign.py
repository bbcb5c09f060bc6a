"""Portability, other systems: mem0's and Zep's exports, record by record, as claims that pass the policy gate like any others.

A claim made here is nobody's own word in this deployment: it was extracted by another system's model, and is judged as a
model's would be. A record that cannot be read is reported, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import orjson
from pydantic import ValidationError

from processors.exceptions import PoisonError
from processors.policy import Decision, PolicyGate
from schemas import Candidate
from sinks.truth.outbox import Outgoing
from streams.portability import graphiti, mem0
from streams.portability.record import BadField, Origin, owner_of
from streams.portability.screening import Screen
from streams.portability.sending import Report, Target, claim_message

Format = Literal["mem0", "zep", "graphiti"]
_READERS = {"mem0": mem0, "zep": graphiti, "graphiti": graphiti}


@dataclass(frozen=True, slots=True)
class _Found:
    where: str
    record: dict[str, Any] | None
    detail: str = ""


def foreign_messages(
    path: Path,
    format: Format,
    tenant: str,
    target: Target | None,
    gate: PolicyGate,
    *,
    timezone: str,
    now: datetime,
    by: str,
) -> tuple[Report, list[Outgoing]]:
    """The messages that the file comes to, and a report; nothing is sent.

    `target` takes everything as one owner's. `timezone` is the zone of times without an offset, and of the speakers.

    Raises:
        PoisonError: no file of this format, an unknown zone, or several people in it and one owner to take them.
    """
    reader, report, messages = _READERS[format], Report(), list[Outgoing]()
    zone = _zone(timezone)
    screen = Screen(gate, vouched=False)
    nodes, found = _records(path, reader.LISTS)
    if target is not None:
        people = {owner.id for item in found if item.record is not None and (owner := owner_of(item.record))}
        if len(people) > 1:
            raise PoisonError("several_owners", f"the file is about {len(people)} owners and cannot become one's")
    seen: set[str] = set()
    for item in found:
        try:
            if item.record is None:
                raise BadField("not_json", item.detail)
            owner = target.owner if target is not None else owner_of(item.record)
            if owner is None:
                raise BadField("no_owner", "nobody is named; say whose it is with --as-owner")
            modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            origin = Origin(format, tenant, owner, zone, timezone, now, modified, by, screen.masked)
            claims = reader.claims(item.record, origin, nodes)
        except BadField as error:
            report.bad_records.append({"where": item.where, "reason": error.reason, "detail": error.detail})
            continue
        except ValidationError as error:
            fields = sorted({".".join(str(part) for part in row["loc"]) for row in error.errors(include_input=False)})
            detail = f"wrong or too long: {', '.join(fields)[:200]}"
            report.bad_records.append({"where": item.where, "reason": "invalid_field", "detail": detail})
            continue
        _add(claims, screen, report, messages, seen)
    return report, messages


def _add(claims: list[Candidate], screen: Screen, report: Report, messages: list[Outgoing], seen: set[str]) -> None:
    """All claims of a record or none: an ending without its beginning would say nothing."""
    judged = [screen.claim(claim) for claim in claims]
    refused = next((claim for claim in judged if claim.decision == Decision.REFUSE.value), None)
    if refused is not None:
        report.left_out[refused.decision_reasons[0] if refused.decision_reasons else "policy"] += 1
        return
    fresh = [claim for claim in judged if claim.candidate_id not in seen]
    if not fresh:
        report.left_out["twice_in_file"] += 1
        return
    seen.update(claim.candidate_id for claim in fresh)
    report.claims += len(fresh)
    report.memories += 1
    messages += [claim_message(claim, report) for claim in fresh]


def _records(path: Path, lists: tuple[str, ...]) -> tuple[dict[str, dict[str, Any]], list[_Found]]:
    """Nodes by uuid, and the records: of a list, of an object that holds one, or of a file of lines."""
    raw = path.read_bytes()
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}, list(_lines(path.name, raw))
    nodes: dict[str, dict[str, Any]] = {}
    if isinstance(whole, dict):
        for node in whole.get("nodes") or []:
            if isinstance(node, dict) and isinstance(node.get("uuid"), str):
                nodes[node["uuid"]] = node
        named = next((whole[name] for name in lists if isinstance(whole.get(name), list)), None)
        # A file of one line is one record.
        whole = named if named is not None else [whole]
    if not isinstance(whole, list):
        raise PoisonError("not_an_export", "no list of records in the file")
    return nodes, [_one(f"{path.name}[{number}]", value) for number, value in enumerate(whole)]


def _lines(name: str, raw: bytes) -> Iterator[_Found]:
    rows = raw.splitlines()
    if not any(row.lstrip().startswith(b"{") for row in rows[:1]):
        raise PoisonError("not_an_export", "neither JSON nor lines of JSON")
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            yield _one(f"{name}:{number}", orjson.loads(row))
        except orjson.JSONDecodeError:
            yield _Found(f"{name}:{number}", None, "no JSON in this line")


def _one(where: str, value: Any) -> _Found:
    return _Found(where, value) if isinstance(value, dict) else _Found(where, None, "a record is an object")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise PoisonError("invalid_option", "--timezone takes an IANA name such as Asia/Shanghai") from error
