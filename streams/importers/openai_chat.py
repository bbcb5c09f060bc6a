"""The flow, importers: OpenAI chat conversations, one per line (also fine-tuning and batch files)."""

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

_IDS = ("conversation_id", "id", "custom_id", "thread_id")


def read_openai(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Conversations `{"messages": [{"role", "content", "tool_calls", "name"}, …]}`.

    A request that is logged together with its response (`body` or `request`, `response` or `choices`) ends with the
    answer.

    Source: https://platform.openai.com/docs/api-reference/chat
    """
    for document in documents(source):
        if isinstance(document, BadRecord):
            yield document
            continue
        number, record, raw = document
        messages = _messages(record)
        if messages is None:
            yield malformed(source, number, raw)
            continue
        metadata = record.get("metadata") if isinstance(record.get("metadata"), dict) else {}
        given = next((record[key] for key in _IDS if record.get(key)), metadata.get("conversation_id"))
        conversation = Conversation(
            conversation_id(source, number, given, messages[:1], options),
            text_of(record.get("user_id")) or text_of(record.get("user")) or text_of(metadata.get("user_id")),
            message_time(record, options),
            text_of(record.get("model")),
        )
        said = (_said(number, message, options) for message in messages)
        yield from conversation_turns(source, "openai", conversation, said, options)


def _messages(record: Any) -> list[Any] | None:
    if not isinstance(record, dict):
        return None
    asked = next((value for value in (record.get("body"), record.get("request")) if isinstance(value, dict)), record)
    messages = asked.get("messages")
    if not isinstance(messages, list):
        return None
    answered = next((value for value in (record.get("response"), record) if isinstance(value, dict)), record)
    answered = next((value for value in (answered.get("body"), answered) if isinstance(value, dict)), answered)
    choices = answered.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and "message" in choices[0]:
        return [*messages, choices[0]["message"]]
    return messages


def _said(number: int, message: Any, options: ImportOptions) -> Said:
    if not isinstance(message, dict):
        return Said(number, "unknown", "", message)
    text, files = content_parts(message.get("content"))
    return Said(
        number,
        str(message.get("role", "")),
        text or str(message.get("refusal") or ""),
        message,
        files,
        text_of(message.get("name")),
        text_of(message.get("id")),
        message_time(message, options),
        text_of(message.get("tool_call_id")),
        _calls(message),
    )


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    if isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    found = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            found.append({"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")})
    return found
