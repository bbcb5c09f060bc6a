"""Extraction: the JSON Schema of an answer, in the strict subset that structured output accepts."""

from __future__ import annotations

from typing import Any

from schemas import Category, MemoryType


def answer_schema() -> dict[str, Any]:
    """JSON Schema of `{"memories": [item, …]}`.

    Strict mode wants every property required and no additional ones, so "may be absent" is written as null
    (https://platform.openai.com/docs/guides/structured-outputs).
    """
    properties: dict[str, Any] = {
        "turn": {"type": "integer"},
        "speaker": {"type": "string"},
        "type": {"type": "string", "enum": [kind.value for kind in MemoryType]},
        "category": {"type": "string", "enum": [kind.value for kind in Category]},
        "attribute": {"type": "string"},
        "subject": {"type": "string"},
        "value": {"type": "string"},
        "text": {"type": "string"},
        "quote": {"type": "string"},
        "confidence": {"type": "number"},
        "operation": {"type": "string", "enum": ["assert", "end"]},
        "time": {"type": ["string", "null"]},
    }
    item = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {
        "type": "object",
        "properties": {"memories": {"type": "array", "items": item}},
        "required": ["memories"],
        "additionalProperties": False,
    }
