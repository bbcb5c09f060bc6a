"""Extraction: one claim of a reply, from whatever JSON it is to settled types, or to a reason (FIELD_REPORTS 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import regex
from pydantic import ValidationError

from processors.extraction.outcome import RawItem, Rejected
from schemas import Category, MemoryType

_NUMBER = regex.compile(r"\d{1,6}")
_CONTROL = regex.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PERCENT = regex.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*")
MAX_RAW_CHARS = 2_000


def read_item(entry: Any) -> RawItem | Rejected:
    """The claim with safe coercions ("[2]" and 2.0 are turn 2, 30 is the value "30"), or its first fault, `field:code`.

    A wrong `type`, `category` or `time` is dropped, since each has a sound default; any other wrong field rejects the
    claim.
    """
    if not isinstance(entry, Mapping):
        return Rejected("not_an_object", _bounded(entry))
    fields = {name: convert(entry[name]) for name, convert in _CONVERT.items() if entry.get(name) is not None}
    try:
        item = RawItem.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_context=False, include_url=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else "item"
        return Rejected(f"{name}:{'missing' if fault['type'] == 'missing' else 'wrong_type'}", _bounded(entry))
    for name in ("value", "quote"):
        if not getattr(item, name).strip():
            return Rejected(f"{name}:missing", _bounded(entry))
    return item


def _turn(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    if isinstance(value, str):
        numbers = _NUMBER.findall(value)
        return int(numbers[0]) if len(numbers) == 1 else None
    if isinstance(value, list) and len(value) == 1:
        return _turn(value[0])
    return value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value.is_integer() and abs(value) < 1e15 else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list) and len(value) == 1:
        return _text(value[0])
    return _clean(value) if isinstance(value, str) else value


def _clean(value: str) -> str:
    r"""Without lone surrogates (a half emoji, written as "\ud83d") and control characters: no store could hold them."""
    whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _CONTROL.sub(" ", whole).strip()


def _confidence(value: Any) -> Any:
    """A number in [0, 1]; a percentage is divided, a little outside is clamped."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        if match := _PERCENT.fullmatch(value):
            return min(float(match[1]) / 100, 1.0)
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, (int, float)):
        # NaN compares false with everything, so it fails validation instead of slipping through a clamp.
        return min(max(float(value), 0.0), 1.0) if math.isfinite(value) else "nan"
    return value


def _operation(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def _type(value: Any) -> Any:
    name = value.strip().casefold() if isinstance(value, str) else ""
    return name if name in {kind.value for kind in MemoryType} else None


def _category(value: Any) -> Any:
    name = value.strip().casefold() if isinstance(value, str) else ""
    return name if name in {kind.value for kind in Category} else None


def _time(value: Any) -> Any:
    return _clean(value) or None if isinstance(value, str) else None


def _optional(value: Any) -> Any:
    return _clean(value) if isinstance(value, str) else None


def _subject(value: Any) -> Any:
    return (_clean(value) or "user") if isinstance(value, str) else value


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "turn": _turn,
    "value": _text,
    "quote": _text,
    "text": _text,
    "attribute": _text,
    "subject": _subject,
    "speaker": _optional,
    "type": _type,
    "category": _category,
    "confidence": _confidence,
    "operation": _operation,
    "time": _time,
}


def _bounded(entry: Any) -> Any:
    """The entry as short text: evidence of what was refused, not a second copy of a megabyte."""
    return _clean(entry[:MAX_RAW_CHARS]) if isinstance(entry, str) else repr(entry)[:MAX_RAW_CHARS]
