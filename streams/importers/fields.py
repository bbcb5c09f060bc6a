"""The flow, importers: generic records (CSV rows, foreign JSON objects) to turn fields, by a mapping."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from streams.importers.building import Ordinals, from_epoch
from streams.importers.records import ImportOptions
from streams.importers.source import Source
from streams.importers.spoken import ROLES

_DATE = re.compile(
    r"(\d{1,4})[-/.年](\d{1,2})[-/.月](\d{1,4})日?[ T,]*"
    r"(?:(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?)?\s*([AaPp]\.?[Mm]\.?)?"
)
_NUMBER = re.compile(r"-?\d{9,19}(\.\d+)?")


class GenericFields:
    """Turns the records of one file into turn fields, with what a foreign log lacks filled in.

    Defaults: role user, the conversation of the options or the file's name, a turn id by content, the options' zone.
    """

    def __init__(self, source: Source, options: ImportOptions) -> None:
        self._options = options
        self._mapping = options.mapping or {}
        self._conversation = options.conversation_id or source.title
        self._ordinals = Ordinals()

    def fields(self, record: dict[str, Any]) -> dict[str, Any]:
        """Fields of one record.

        Raises:
            ValueError: a time that cannot be read; the message holds no value.
        """
        options = self._options
        consumed = set(self._mapping.values())
        fields = {name: value for name, value in record.items() if name not in consumed}
        for name, path in self._mapping.items():
            fields[name] = pick(record, path)
        fields = {name: value for name, value in fields.items() if value is not None}
        fields.setdefault("tenant", options.tenant)
        fields.setdefault("timezone", options.timezone)
        fields["conversation_id"] = str(fields.get("conversation_id", self._conversation))
        if options.user_id is not None:
            fields.setdefault("user_id", options.user_id)
        for name in ("user_id", "turn_id", "reply_to"):
            if isinstance(fields.get(name), int):
                fields[name] = str(fields[name])
        role = fields.get("role", "user")
        fields["role"] = ROLES.get(str(role).strip().lower(), role)
        if "sent_at" in fields:
            fields["sent_at"] = instant(fields["sent_at"], _zone(fields["timezone"], options), options.date_order)
        if "turn_id" not in fields:
            said = (str(fields.get(name, "")) for name in ("conversation_id", "user_id", "role", "sent_at", "text"))
            fields["turn_id"] = self._ordinals.turn_id(*said)
        return fields


def typed(cell: str, name: str) -> Any:
    """What a CSV cell means for a turn field; an empty one is absent."""
    if name == "text":
        return cell or None
    cell = cell.strip()
    if not cell:
        return None
    if name == "schema_version" and cell.isascii() and cell.isdigit():
        return int(cell)
    if name == "attachments":
        try:
            return orjson.loads(cell)
        except orjson.JSONDecodeError:
            return [{"url": cell}]
    return cell


def pick(record: dict[str, Any], path: str) -> Any:
    """The value at a dotted path (`author.id`, `parts.0.text`); a key that itself has dots wins. None if absent."""
    if path in record:
        return record[path]
    value: Any = record
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def instant(value: Any, zone: ZoneInfo, order: str) -> datetime:
    """UTC from epoch numbers (s, ms, µs), ISO 8601, or a plain local date and time in the given order.

    Raises:
        ValueError: unreadable, or day and month cannot be told apart.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("sent_at is neither a number nor text")
    text = str(value).strip()
    if not isinstance(value, str) or _NUMBER.fullmatch(text):
        return from_epoch(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = _plain(text, order)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("sent_at is no time a calendar has") from error


def _plain(text: str, order: str) -> datetime:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("sent_at is not a time that can be read")
    first, second, third = (int(part) for part in match.group(1, 2, 3))
    if len(match[1]) == 4 or order == "ymd":
        year, month, day = first, second, third
    elif order == "mdy" or (order == "auto" and second > 12):
        month, day, year = first, second, third
    elif order == "dmy" or first > 12 or first == second:
        day, month, year = first, second, third
    else:
        raise ValueError("sent_at is ambiguous: is it day or month first? (--date-order)")
    hour = int(match[4] or 0)
    if match[7] and hour <= 12:
        hour = hour % 12 + (12 if match[7][0] in "pP" else 0)
    try:
        return datetime(year + 2000 if year < 100 else year, month, day, hour, int(match[5] or 0), int(match[6] or 0))
    except ValueError as error:
        raise ValueError("sent_at is no date of the calendar") from error


def _zone(name: Any, options: ImportOptions) -> ZoneInfo:
    if name == options.timezone or not isinstance(name, str):
        return options.zone
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # The turn's own validator will refuse the zone and say so.
        return options.zone
