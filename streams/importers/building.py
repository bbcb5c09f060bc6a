"""The flow, importers: from loose fields to a checked turn, or to a bad record that says why not."""

from __future__ import annotations

import math
import mimetypes
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson
from pydantic import ValidationError

from schemas import Turn, digest
from streams.importers.records import RAW_LIMIT, BadRecord, ImportOptions, Record, ServiceMessage
from streams.importers.source import Source

FUTURE = timedelta(days=1)
"""A clock may be wrong and a zone may be missing, which is at most a day; nothing later is a message's time."""

_REMEMBERED = 16_384
_MAX_URL = 8192
_REASONS = {
    ("role", "enum"): "unknown_role",
    ("text", "string_too_long"): "text_too_long",
    ("schema_version", "value_error"): "unknown_schema_version",
}


def bad(source: Source, number: int | None, reason: str, detail: str, raw: object = b"") -> BadRecord:
    """A bad record; `raw` may be the bytes, the text or the decoded object."""
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "backslashreplace")
    elif not isinstance(raw, bytes):
        try:
            raw = orjson.dumps(raw, default=str)
        except TypeError:
            raw = repr(raw).encode("utf-8", "backslashreplace")
    return BadRecord(number, source.where(number), reason, detail, raw[:RAW_LIMIT])


def service(source: Source, number: int | None, kind: str) -> ServiceMessage:
    """A service message of this source."""
    return ServiceMessage(source.where(number), kind)


def build(source: Source, number: int | None, fields: dict[str, Any], options: ImportOptions, raw: object) -> Record:
    """Validate the fields of one turn. No value of a field appears in the detail of a bad record."""
    try:
        turn = Turn.from_dict(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = str(first["loc"][0]) if first["loc"] else ""
        return bad(
            source, number, _reason(where, first["type"], first["msg"]), f"{where}: {first['msg']}".lstrip(": "), raw
        )
    except ValueError as error:
        reason = "unknown_schema_version" if "schema_version" in str(error) else "not_an_object"
        return bad(source, number, reason, str(error), raw)
    except OverflowError:
        return bad(source, number, "bad_sent_at", "sent_at is no time a calendar has", raw)
    if options.now is not None and turn.sent_at > options.now + FUTURE:
        return bad(source, number, "future_sent_at", "sent_at is more than a day ahead", raw)
    return turn


def _reason(field: str, kind: str, message: str) -> str:
    if not field:
        return "empty_turn"
    if "lone surrogate" in message or kind == "string_unicode":
        return "lone_surrogate"
    if kind == "missing":
        return f"missing_{field}"
    return _REASONS.get((field, kind), f"bad_{field}")


def person(options: ImportOptions, user_id: str, name: str | None) -> dict[str, Any]:
    """Fields of somebody who speaks for themselves."""
    fields: dict[str, Any] = {"role": "user", "user_id": user_id, "speaker_name": name or None}
    if options.me is not None and options.me in (user_id, name):
        fields["me"] = True
        if options.user_id is not None:
            fields["user_id"] = options.user_id
    return fields


def bot(options: ImportOptions, agent_id: str, name: str | None, served: str | None) -> dict[str, Any]:
    """Fields of a bot. Whom it serves is said by the options, else the person it talks with, else nobody but itself."""
    return {
        "role": "assistant",
        "agent_id": agent_id,
        "speaker_name": name or None,
        "user_id": options.user_id or served or agent_id,
    }


def attachment(name: str = "", url: str = "", mime: str = "") -> dict[str, str]:
    """A pointer to a file. The bytes of a data: URL are dropped, and so is a URL too long to be one."""
    if url.startswith("data:"):
        mime = mime or url[5:].split(";", 1)[0].split(",", 1)[0]
        url = ""
    if len(url) > _MAX_URL:
        url = ""
    return {"name": name[:1024], "url": url, "mime": (mime or guess_mime(name or url))[:255]}


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def guess_mime(name: str) -> str:
    """By the name's ending; empty if unknown."""
    return _types().guess_type(name.split("?", 1)[0])[0] or ""


@lru_cache(maxsize=1)
def _types() -> mimetypes.MimeTypes:
    # The library's own table, not the system's: the same file must give the same turns on every machine.
    return mimetypes.MimeTypes()


def from_epoch(value: Any) -> datetime:
    """UTC from seconds, milliseconds or microseconds since 1970, told apart by size.

    Raises:
        ValueError: not a number, or no time a calendar has.
    """
    try:
        number = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError("not a number") from error
    if not math.isfinite(number):
        raise ValueError("not a number")
    while abs(number) > 1e11:
        number /= 1000
    try:
        return datetime.fromtimestamp(number, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError("no time a calendar has") from error


def from_iso(value: str, options: ImportOptions) -> datetime:
    """UTC from ISO 8601; a naive time is meant in the options' zone.

    Raises:
        ValueError: not ISO 8601.
    """
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=options.zone)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("no time a calendar has") from error


class Ordinals:
    """Turn ids for logs without ids: a digest of what was said, and which of several equal ones it is.

    Only the latest 16,384 distinct digests are remembered, so memory stays constant; equal messages of one minute or
    millisecond are near each other in a log.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def turn_id(self, *parts: str) -> str:
        """The same for the same place in the same log, whatever the file is called."""
        key = digest(*parts)
        count = self._seen.pop(key, 0) + 1
        self._seen[key] = count
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return key if count == 1 else f"{key}-{count}"
