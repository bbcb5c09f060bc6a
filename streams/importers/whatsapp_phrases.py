"""The flow, importers: recognises what WhatsApp itself writes into a chat (`whatsapp_phrases.yaml`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from processors.documents import parse

_MIMES = {"image": "image/*", "video": "video/*", "audio": "audio/*", "sticker": "image/webp", "GIF": "image/gif"}
_MARKS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_NOTICE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class _Phrases:
    omitted: dict[str, str]
    deleted: frozenset[str]
    edited: re.Pattern[str]
    tag: re.Pattern[str]
    note: re.Pattern[str]
    encryption: re.Pattern[str]
    encryption_begins: re.Pattern[str]
    events: re.Pattern[str]
    calls: re.Pattern[str]


@lru_cache(maxsize=1)
def _phrases() -> _Phrases:
    data: dict[str, Any] = parse(
        files("streams.importers").joinpath("whatsapp_phrases.yaml").read_text(encoding="utf-8")
    )

    def any_of(key: str, *, literal: bool = False) -> str:
        return "|".join(re.escape(phrase) if literal else phrase for phrase in data[key])

    return _Phrases(
        omitted={phrase.casefold(): kind for kind, phrases in data["omitted"].items() for phrase in phrases},
        deleted=frozenset(phrase.casefold() for phrase in data["deleted"]),
        edited=re.compile(rf"\s*[<＜](?:{any_of('edited', literal=True)})[.。]?[>＞]\s*$", re.IGNORECASE),
        tag=re.compile(rf"<(?:{any_of('attached_tag')})\s?[:：]\s?(?P<name>[^<>\n]+)>", re.IGNORECASE),
        note=re.compile(rf"(?P<name>[^\n]+\.\w{{2,5}}) [(（](?:{any_of('attached_note')})[)）]", re.IGNORECASE),
        encryption=re.compile(any_of("encryption"), re.IGNORECASE),
        encryption_begins=re.compile(any_of("encryption_begins")),
        events=re.compile(any_of("events")),
        calls=re.compile(any_of("calls")),
    )


def without_marks(text: str) -> str:
    """Text without direction marks, which WhatsApp puts around names, numbers and its own sentences."""
    return text if text.isascii() else _MARKS.sub("", text)


def omitted_media(line: str) -> tuple[str, str] | None:
    """(name, mime) if the line is the place of a file that was not exported."""
    kind = _phrases().omitted.get(line.strip().strip("<>＜＞ .").casefold())
    return None if kind is None else (kind, _MIMES.get(kind, ""))


def attached_file(text: str) -> tuple[str, str] | None:
    """(file name, text without it) if a file was exported along with the message."""
    phrases = _phrases()
    match = phrases.tag.search(text) or phrases.note.match(text)
    if match is None:
        return None
    return match["name"].strip(), (text[: match.start()] + text[match.end() :]).strip()


def is_deleted(text: str) -> bool:
    """Whether all that is left is the note that the message was deleted."""
    plain = text.strip().rstrip(".。").casefold()
    return plain in _phrases().deleted or plain.startswith("this message was deleted by admin")


def strip_edited(text: str) -> tuple[str, bool]:
    """The text without the mark of an edited message, and whether there was one."""
    shorter = _phrases().edited.sub("", text)
    return shorter, shorter != text


def is_event(sentence: str) -> bool:
    """Whether a sentence is one of WhatsApp's own about the chat (group, members, encryption)."""
    phrases = _phrases()
    return phrases.encryption.search(sentence) is not None or phrases.events.search(sentence) is not None


def notice_kind(text: str) -> str | None:
    """`encryption` or `call` for texts under a name that WhatsApp wrote itself.

    People talk about encryption too; the notice is short and begins with "Messages" and the like.
    """
    phrases = _phrases()
    if phrases.calls.match(text):
        return "call"
    if len(text) > _NOTICE_LENGTH or phrases.encryption_begins.match(text) is None:
        return None
    return "encryption" if phrases.encryption.search(text) else None
