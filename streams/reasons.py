"""Reasons: why a message could not be processed, in words that hold nothing of it."""

from __future__ import annotations

import orjson
from pydantic import ValidationError

from processors.exceptions import PoisonError


def reason_of(error: Exception) -> tuple[str, str]:
    """A short code and a sentence; field names and kinds of error only, never the offending value."""
    if isinstance(error, PoisonError):
        return error.reason, error.detail
    if isinstance(error, ValidationError):
        fields = [
            f"{'.'.join(str(part) for part in item['loc']) or 'record'}: {item['type']}" for item in error.errors()
        ]
        return "invalid_field", "; ".join(fields[:5])
    if isinstance(error, (orjson.JSONDecodeError, UnicodeDecodeError)):
        return "not_json", "the message is not valid UTF-8 JSON"
    text = str(error)
    if "schema_version" in text:
        return "schema_version", text
    return "unreadable", text[:200] if "must be" in text else type(error).__name__
