"""The flow, importers: Facebook Messenger (and Instagram) downloads, JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streams.importers.building import Ordinals, attachment, bad, build, dicts, from_epoch, person, service
from streams.importers.jsonstream import BrokenJson, export, walk
from streams.importers.records import BadRecord, ImportOptions, Record
from streams.importers.source import Source

_ELEMENTS = frozenset({"messages.item", "participants.item"})
_MEDIA = ("photos", "videos", "audio_files", "files", "gifs", "media")
_SERVICE_TYPES = {"Subscribe", "Unsubscribe", "Call"}
_REACTION = re.compile(r"Reacted .{1,20} to your message\s*")


@dataclass(frozen=True, slots=True)
class _Thread:
    conversation_id: str
    group: bool


def read_messenger(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Turns of one thread, in the file's order (newest first). Two passes: the thread's name stands after its messages.

    Facebook writes each UTF-8 byte as one character of its own; texts and names are repaired. Both layouts are read:
    the download of the site (`sender_name`, `timestamp_ms`), and that of end-to-end encrypted chats (`senderName`,
    `timestamp`).

    Raises:
        UnreadableFile: no list of messages in it.
    """
    thread = _thread(source, options)
    ordinals = Ordinals()
    number = 0
    for found in export(source, _ELEMENTS, frozenset({"messages"})):
        if isinstance(found, BadRecord):
            yield found
        elif found.kind == "element" and found.prefix == "messages.item":
            number += 1
            yield _message(source, number, found.value, thread, ordinals, options)


def repaired(text: str) -> str:
    """The text whose UTF-8 bytes were written as Latin-1 characters; unchanged if it is not such a text."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def _thread(source: Source, options: ImportOptions) -> _Thread:
    about: dict[str, Any] = {}
    declared = 0
    senders: set[str] = set()
    with source.open(report=False) as stream:
        try:
            for prefix, kind, value in walk(stream, _ELEMENTS):
                if kind == "scalar" and "." not in prefix:
                    about[prefix] = value
                elif prefix == "participants.item":
                    declared += 1
                elif prefix == "messages.item" and isinstance(value, dict) and len(senders) < 3:
                    senders.add(str(value.get("sender_name") or value.get("senderName")))
        except BrokenJson:
            # The main pass meets the same break and reports it.
            pass
    names = (about.get(key) for key in ("thread_path", "threadName", "title"))
    name = next((repaired(name) for name in names if isinstance(name, str) and name), source.title)
    group = about.get("thread_type") == "RegularGroup" or (declared or len(senders)) > 2
    return _Thread(options.conversation_id or name, group)


def _message(
    source: Source, number: int, raw: Any, thread: _Thread, ordinals: Ordinals, options: ImportOptions
) -> Record:
    if not isinstance(raw, dict):
        return bad(source, number, "not_an_object", "a message is a JSON object", raw)
    text = repaired(str(raw.get("content") or raw.get("text") or ""))
    if str(raw.get("type")) in _SERVICE_TYPES or "call_duration" in raw:
        return service(source, number, "call" if "call_duration" in raw else str(raw["type"]).lower())
    if _REACTION.fullmatch(text):
        return service(source, number, "reaction")
    name = raw.get("sender_name") or raw.get("senderName")
    if not isinstance(name, str) or not name:
        return bad(source, number, "missing_user_id", "the message names no sender", raw)
    stamp = raw.get("timestamp_ms") or raw.get("timestamp")
    if stamp is None:
        return bad(source, number, "missing_sent_at", "the message has no timestamp", raw)
    try:
        sent_at = from_epoch(stamp)
    except (ValueError, TypeError):
        return bad(source, number, "bad_sent_at", "timestamp_ms is not a time", raw)
    name = repaired(name)
    files = _files(raw)
    unsent = bool(raw.get("is_unsent") or raw.get("isUnsent"))
    if not text and not files and not unsent:
        return service(source, number, "empty")
    fields = person(options, name, name)
    fields |= {
        "tenant": options.tenant,
        "conversation_id": thread.conversation_id,
        "turn_id": ordinals.turn_id(str(stamp), name, text, *(file["url"] for file in files)),
        "text": "" if unsent else text,
        "sent_at": sent_at,
        "timezone": options.timezone,
        "gateway": "messenger",
        "group": thread.group,
        "attachments": [] if unsent else files,
    }
    if unsent:
        fields |= {"deleted": True, "revision": 1}
    return build(source, number, fields, options, raw)


def _files(raw: dict[str, Any]) -> list[dict[str, str]]:
    files = []
    for key in _MEDIA:
        for file in dicts(raw.get(key)):
            if isinstance(file.get("uri"), str):
                # A voice message is an .mp4 too, which by its ending alone would be a film.
                mime = "audio/mp4" if key == "audio_files" and file["uri"].endswith(".mp4") else ""
                files.append(attachment(file["uri"].rsplit("/", 1)[-1], file["uri"], mime))
    sticker = raw.get("sticker")
    if isinstance(sticker, dict) and isinstance(sticker.get("uri"), str):
        files.append(attachment("sticker", sticker["uri"], "image/png"))
    share = raw.get("share")
    if isinstance(share, dict) and isinstance(share.get("link"), str):
        files.append(attachment("link", share["link"]))
    return files
