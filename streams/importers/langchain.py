"""The flow, importers: LangChain messages, from `messages_to_dict`, `dumpd`, or as plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from streams.importers.jsonstream import Document, documents
from streams.importers.records import BadRecord, ImportOptions, Record, UnreadableFile
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

_LISTS = ("messages", "history", "chat_history")


def read_langchain(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Loose messages are one conversation named by the options or the file; a list of messages, or an object with
    `messages`, is a conversation of its own.

    Source: https://reference.langchain.com/python/langchain_core/messages
    """
    stream = documents(source)
    first = next(stream, None)
    if first is None:
        return
    if isinstance(first, BadRecord) or _is_conversation(first.value):
        yield from _conversations(source, chain([first], stream), options)
        return
    if _plain(first.value) is None:
        raise UnreadableFile("format", f"{source.name} holds no LangChain messages")
    pending: list[BadRecord] = []
    conversation = Conversation(options.conversation_id or source.title)
    said = _loose(chain([first], stream), pending, options)
    for record in conversation_turns(source, "langchain", conversation, said, options):
        yield from pending
        pending.clear()
        yield record
    yield from pending


def _loose(stream: Iterator[Document | BadRecord], pending: list[BadRecord], options: ImportOptions) -> Iterator[Said]:
    for document in stream:
        if isinstance(document, BadRecord):
            pending.append(document)
        else:
            yield _said(document.number, document.value, options)


def _conversations(source: Source, stream: Iterator[Document | BadRecord], options: ImportOptions) -> Iterator[Record]:
    for document in stream:
        if isinstance(document, BadRecord):
            yield document
            continue
        number, record, raw = document
        if not _is_conversation(record):
            yield malformed(source, number, raw)
            continue
        about: dict[str, Any] = record if isinstance(record, dict) else {}
        messages = record if isinstance(record, list) else next(record[key] for key in _LISTS if key in record)
        given = next(
            (about[key] for key in ("conversation_id", "session_id", "thread_id", "id") if about.get(key)), None
        )
        conversation = Conversation(
            conversation_id(source, number, given, messages[:1], options),
            text_of(about.get("user_id")),
            message_time(about, options),
        )
        said = (_said(number, message, options) for message in messages)
        yield from conversation_turns(source, "langchain", conversation, said, options)


def _is_conversation(value: Any) -> bool:
    if isinstance(value, dict):
        return any(isinstance(value.get(key), list) for key in _LISTS)
    return isinstance(value, list)


def _plain(message: Any) -> tuple[str, dict[str, Any]] | None:
    """(LangChain's type word, the message's own fields) of any of the serialised shapes."""
    if not isinstance(message, dict):
        return None
    if message.get("type") == "constructor" and isinstance(message.get("kwargs"), dict):
        path = message.get("id")
        named = str(path[-1]) if isinstance(path, list) and path else ""
        fields = message["kwargs"]
        return str(fields.get("type") or named.removesuffix("Chunk").removesuffix("Message").lower()), fields
    if isinstance(message.get("data"), dict):
        return str(message.get("type", "")), message["data"]
    if "content" in message and ("type" in message or "role" in message):
        return str(message.get("type") or message.get("role")), message
    return None


def _said(number: int, message: Any, options: ImportOptions) -> Said:
    plain = _plain(message)
    if plain is None:
        return Said(number, "unknown", "", message)
    kind, fields = plain
    role = kind.removesuffix("MessageChunk").lower()
    if role in ("chat", "constructor", "message"):
        role = str(fields.get("role", ""))
    text, files = content_parts(fields.get("content"))
    details = [fields.get("additional_kwargs"), fields.get("response_metadata"), fields]
    moments = (message_time(detail, options) for detail in details if isinstance(detail, dict))
    calls = fields.get("tool_calls")
    return Said(
        number,
        role,
        text,
        message,
        files,
        text_of(fields.get("name")),
        text_of(fields.get("id")),
        next((moment for moment in moments if moment is not None), None),
        text_of(fields.get("tool_call_id")),
        [
            {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, dict)
        ],
    )
