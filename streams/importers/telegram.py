"""The flow, importers: Telegram Desktop exports (one chat, or the whole account)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streams.importers.building import (
    Ordinals,
    attachment,
    bad,
    bot,
    build,
    dicts,
    from_epoch,
    from_iso,
    person,
    service,
)
from streams.importers.jsonstream import BrokenJson, export, walk
from streams.importers.records import BadRecord, ImportOptions, Record
from streams.importers.source import Source

_LISTS = ("messages", "chats.list.item.messages", "left_chats.list.item.messages")
_ELEMENTS = frozenset(f"{prefix}.item" for prefix in _LISTS)
_PAIR_CHATS = {"personal_chat", "bot_chat", "saved_messages"}
_HOMES = {prefix.removesuffix("messages").removesuffix(".") for prefix in _LISTS}


@dataclass(slots=True)
class _Chat:
    conversation_id: str
    chat_id: str
    kind: str
    group: bool
    last_person: str | None = None
    ordinals: Ordinals = field(default_factory=Ordinals)


def read_telegram(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Turns of every chat in the file.

    Source: https://core.telegram.org/import-export

    Raises:
        UnreadableFile: no list of messages in it.
    """
    header: dict[str, Any] = {}
    chat: _Chat | None = None
    chats = 0
    crowds: dict[int, bool] | None = None
    number = 0
    for found in export(source, _ELEMENTS, frozenset((*_LISTS, "chats.list"))):
        if isinstance(found, BadRecord):
            yield found
        elif found.kind == "scalar" and found.prefix.rpartition(".")[0] in _HOMES:
            if chat is not None:
                header, chat = {}, None
            header[found.prefix.rpartition(".")[2]] = found.value
        elif found.kind == "array" and found.prefix in _LISTS:
            if "type" not in header and crowds is None:
                crowds = _crowds(source)
            chat = _chat(header, source, options, (crowds or {}).get(chats, True))
            chats += 1
        elif found.kind == "element" and chat is not None:
            number += 1
            yield _message(source, number, found.value, chat, options)


def _chat(header: dict[str, Any], source: Source, options: ImportOptions, crowd: bool) -> _Chat:
    chat_id = next((str(header[key]) for key in ("id", "name") if header.get(key)), source.title)
    kind = str(header.get("type") or "")
    return _Chat(options.conversation_id or chat_id, chat_id, kind, kind not in _PAIR_CHATS if kind else crowd)


def _crowds(source: Source) -> dict[int, bool]:
    """For exports that do not say what kind of chat it is: whether more than two people write in the n-th one."""
    speakers: dict[int, set[str]] = {}
    with source.open(report=False) as stream:
        try:
            for found in walk(stream, _ELEMENTS):
                if found.kind == "array" and found.prefix in _LISTS:
                    speakers[len(speakers)] = set()
                elif found.kind == "element" and isinstance(found.value, dict) and speakers:
                    people = speakers[len(speakers) - 1]
                    if len(people) < 3 and found.value.get("type") == "message":
                        people.add(str(found.value.get("from_id") or found.value.get("from")))
        except BrokenJson:
            # The main pass meets the same break and reports it.
            pass
    return {index: len(people) > 2 for index, people in speakers.items()}


def _message(source: Source, number: int, raw: Any, chat: _Chat, options: ImportOptions) -> Record:
    if not isinstance(raw, dict):
        return bad(source, number, "not_an_object", "a message is a JSON object", raw)
    if raw.get("type", "message") != "message":
        return service(source, number, str(raw.get("action") or raw.get("type")))
    name = raw.get("from") if isinstance(raw.get("from"), str) else None
    speaker = raw.get("from_id") or name
    if not speaker:
        return bad(source, number, "missing_user_id", "the message names nobody", raw)
    try:
        sent_at = _moment(raw, "date", options)
        edited_at = _moment(raw, "edited", options)
    except ValueError:
        return bad(source, number, "bad_sent_at", "date is not a time", raw)
    if sent_at is None:
        return bad(source, number, "missing_sent_at", "the message has no date", raw)
    text = _text(raw)
    files = _files(raw)
    if not text and not files:
        return service(source, number, "empty")
    if chat.kind == "bot_chat" and str(speaker) in (chat.chat_id, f"user{chat.chat_id}"):
        fields = bot(options, str(speaker), name, chat.last_person)
    else:
        fields = person(options, str(speaker), name)
        chat.last_person = fields["user_id"]
    if raw.get("forwarded_from") or "forwarded_from_id" in raw or "forwarded_from" in raw:
        fields["forwarded"] = True
    message_id = raw.get("id")
    fields |= {
        "tenant": options.tenant,
        "conversation_id": chat.conversation_id,
        "turn_id": str(message_id)
        if message_id is not None
        else chat.ordinals.turn_id(sent_at.isoformat(), str(speaker), text),
        "text": text,
        "sent_at": sent_at,
        "timezone": options.timezone,
        "gateway": "telegram",
        "group": chat.group,
        "attachments": files,
    }
    # A reply into another chat names a message that this conversation does not have.
    if raw.get("reply_to_message_id") is not None and raw.get("reply_to_peer_id") is None:
        fields["reply_to"] = str(raw["reply_to_message_id"])
    if edited_at is not None:
        fields |= {"edited_at": edited_at, "revision": 1}
    return build(source, number, fields, options, raw)


def _moment(raw: dict[str, Any], key: str, options: ImportOptions) -> datetime | None:
    exact = raw.get(f"{key}_unixtime")
    if exact:
        return from_epoch(exact)
    local = raw.get(key)
    # Old exports write the epoch's beginning for "never edited".
    if not isinstance(local, str) or local.startswith("1970-01-01"):
        return None
    return from_iso(local, options)


def _text(raw: dict[str, Any]) -> str:
    text = raw.get("text")
    parts = text if isinstance(text, list) else [text]
    said = "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part or "") for part in parts)
    poll = raw.get("poll")
    if not said and isinstance(poll, dict):
        answers = [str(answer.get("text", "")) for answer in dicts(poll.get("answers"))]
        said = "\n".join([str(poll.get("question", "")), *(f"- {answer}" for answer in answers)])
    return said


def _files(raw: dict[str, Any]) -> list[dict[str, str]]:
    files = []
    for key in ("photo", "file"):
        path = raw.get(key)
        if not isinstance(path, str):
            continue
        # "(File not included. Change data exporting settings to download.)" stands where a path would.
        included = not path.startswith("(")
        name = str(raw.get("file_name") or "") or (path.rsplit("/", 1)[-1] if included else "")
        kind = str(raw.get("media_type") or key)
        mime = str(raw.get("mime_type") or ("image/jpeg" if key == "photo" else ""))
        files.append(attachment(name or kind, path if included else "", mime))
    place = raw.get("location_information")
    if isinstance(place, dict):
        name = str(raw.get("place_name") or "location")
        files.append(attachment(name, f"geo:{place.get('latitude')},{place.get('longitude')}"))
    if isinstance(raw.get("contact_information"), dict):
        files.append(attachment("contact", mime="text/vcard"))
    return files
