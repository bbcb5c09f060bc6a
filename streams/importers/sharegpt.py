"""The flow, importers: ShareGPT conversations, as a JSON array or as JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.importers.jsonstream import documents
from streams.importers.records import BadRecord, ImportOptions, Record
from streams.importers.source import Source
from streams.importers.spoken import (
    Conversation,
    Said,
    content_parts,
    conversation_id,
    conversation_turns,
    malformed,
    message_time,
    text_of,
)

_CALLS = {"function_call", "tool_call"}


def read_sharegpt(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Conversations `{"id", "conversations": [{"from", "value"}, …]}`; some sets say `role` and `content` instead.

    Source: https://github.com/lm-sys/FastChat (data format)
    """
    for document in documents(source):
        if isinstance(document, BadRecord):
            yield document
            continue
        number, record, raw = document
        messages = None
        if isinstance(record, dict):
            messages = next((record[key] for key in ("conversations", "conversation", "items") if key in record), None)
        if not isinstance(record, dict) or not isinstance(messages, list):
            yield malformed(source, number, raw)
            continue
        if text_of(record.get("system")):
            messages = [{"from": "system", "value": record["system"]}, *messages]
        conversation = Conversation(
            conversation_id(source, number, record.get("id"), messages[:1], options),
            text_of(record.get("user_id")),
            message_time(record, options),
            text_of(record.get("model")),
        )
        said = (_said(number, message, options) for message in messages)
        yield from conversation_turns(source, "sharegpt", conversation, said, options)


def _said(number: int, message: Any, options: ImportOptions) -> Said:
    if not isinstance(message, dict):
        return Said(number, "unknown", "", message)
    role = str(message.get("from") or message.get("role") or "")
    text, files = content_parts(message.get("value", message.get("content")))
    if role.lower() in _CALLS:
        return Said(number, "assistant", "", message, calls=[{"id": None, "name": None, "arguments": text}])
    return Said(
        number,
        role,
        text,
        message,
        files,
        text_of(message.get("name")),
        text_of(message.get("id")),
        message_time(message, options),
    )
