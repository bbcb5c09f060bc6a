"""The flow, importers: logs of model conversations (roles, no times, often no ids), common to three formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas import digest
from streams.importers.building import attachment, bad, build, from_epoch, from_iso, service
from streams.importers.records import ImportOptions, Record
from streams.importers.source import Source

ROLES = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "gpt", "bot", "model", "chatgpt", "bing", "bard", "claude"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "function_response", "tool_response"), "tool"),
}
"""The words for a role in the wild; anything else is an unknown role."""

_TIMES = ("sent_at", "created_at", "create_time", "timestamp", "created", "date")


@dataclass(frozen=True, slots=True)
class Said:
    """One message, still in its format's words. `number` is the line or the record it came from."""

    number: int
    role: str
    text: str
    raw: object
    attachments: list[dict[str, str]] = field(default_factory=list)
    name: str | None = None
    message_id: str | None = None
    sent_at: datetime | None = None
    call_id: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the messages of one conversation share. `sent_at` None means: the file's own time."""

    conversation_id: str
    user_id: str | None = None
    sent_at: datetime | None = None
    agent_id: str | None = None


def conversation_turns(
    source: Source, gateway: str, conversation: Conversation, said: Iterable[Said], options: ImportOptions
) -> Iterator[Record]:
    """Turns in order. Messages without a time of their own follow each other by a millisecond from the conversation's
    time; where that is only the file's modification time, the turn carries `sent_at_guessed`."""
    start = conversation.sent_at or options.sent_at
    guessed = start is None
    start = start or datetime.fromtimestamp(source.path.stat().st_mtime, UTC)
    user_id = options.user_id or conversation.user_id or f"anonymous-{conversation.conversation_id}"[:255]
    tools: dict[str, str] = {}
    for index, message in enumerate(said):
        tools.update(
            (str(call["id"]), str(call["name"])) for call in message.calls if call.get("id") and call.get("name")
        )
        if message.calls and not message.text and not message.attachments:
            yield service(source, message.number, "tool_call")
            continue
        role = ROLES.get(message.role.strip().lower(), message.role)
        fields: dict[str, Any] = {
            "tenant": options.tenant,
            "conversation_id": conversation.conversation_id,
            "turn_id": message.message_id or f"{index}-{digest(role, message.text)[:12]}",
            "user_id": user_id,
            "role": role,
            "text": message.text,
            "sent_at": message.sent_at or start + timedelta(milliseconds=index),
            "timezone": options.timezone,
            "gateway": gateway,
            "attachments": message.attachments,
        }
        if guessed and message.sent_at is None:
            fields["sent_at_guessed"] = True
        if role == "tool":
            fields["tool_name"] = message.name or tools.get(message.call_id or "")
        elif role == "assistant":
            fields["agent_id"] = message.name or conversation.agent_id
        else:
            fields["speaker_name"] = message.name
        if message.calls:
            fields["tool_calls"] = message.calls
        yield build(source, message.number, fields, options, message.raw)


def conversation_id(source: Source, number: int, given: object, first: object, options: ImportOptions) -> str:
    """The log's own id, else one by place and first message: the same file gives the same, another file another."""
    if isinstance(given, str | int) and not isinstance(given, bool) and str(given):
        return str(given)
    return f"{(options.conversation_id or source.title)[:200]}-{number}-{digest(str(first))[:8]}"


def content_parts(content: object) -> tuple[str, list[dict[str, str]]]:
    """Text and attachments of a string, of None, or of a list of typed parts (OpenAI, Anthropic, LangChain)."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    files: list[dict[str, str]] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            _part(part, texts, files)
    return "\n".join(text for text in texts if text), files


def _part(part: dict[str, Any], texts: list[str], files: list[dict[str, str]]) -> None:
    kind = str(part.get("type", "text"))
    for key in ("text", "refusal"):
        # Thinking is not said to anybody; the other kinds hold their words under these two keys.
        if isinstance(part.get(key), str) and kind not in ("thinking", "reasoning"):
            texts.append(part[key])
            return
    if kind in ("text", "tool_use", "tool_call", "thinking", "reasoning"):
        return
    if kind == "tool_result":
        text, inner = content_parts(part.get("content"))
        texts.append(text)
        files.extend(inner)
        return
    inner_part = next((part[key] for key in ("image_url", "file", "source", "input_audio") if key in part), part)
    if isinstance(inner_part, str):
        files.append(attachment(url=inner_part))
    elif isinstance(inner_part, dict):
        name = str(inner_part.get("filename") or inner_part.get("file_id") or kind)
        mime = str(inner_part.get("media_type") or inner_part.get("mime_type") or "")
        files.append(attachment(name, str(inner_part.get("url") or ""), mime))


def message_time(record: dict[str, Any], options: ImportOptions) -> datetime | None:
    """The first readable time among the usual keys; these formats promise none."""
    for key in _TIMES:
        value = record.get(key)
        try:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return from_epoch(value)
            if isinstance(value, str) and value:
                return from_iso(value, options)
        except ValueError:
            continue
    return None


def text_of(value: object) -> str | None:
    """A non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def malformed(source: Source, number: int, raw: object) -> Record:
    """A record that has none of the shapes of its format."""
    return bad(source, number, "unknown_shape", "no messages of this format in the record", raw)
