"""The flow, importers: WhatsApp chats as exported text, or the zip that WhatsApp packs it in."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from streams.importers.building import Ordinals, attachment, bad, build, person, service
from streams.importers.records import ImportOptions, Record, UnreadableFile
from streams.importers.source import Source, open_archive
from streams.importers.textlog import Entry, entries
from streams.importers.whatsapp_header import HEADER, Order, OrderVote, local_time
from streams.importers.whatsapp_phrases import (
    attached_file,
    is_deleted,
    is_event,
    notice_kind,
    omitted_media,
    strip_edited,
    without_marks,
)

_SAID = re.compile(r"(?P<name>[^:：\n]{1,120}?)\s?[:：]\s?(?P<text>.*)", re.DOTALL)
_EXPORT_NAME = re.compile(
    r"^(?:WhatsApp Chat (?:with|-) |WhatsApp-Chat mit |Chat de WhatsApp con |Discussion WhatsApp avec "
    r"|Conversa do WhatsApp com |Chat WhatsApp con |WhatsApp-chat met |Чат WhatsApp с (?:контактом )?"
    r"|与|與|WhatsApp 與)(?P<name>.+?)(?:的 ?WhatsApp (?:聊天|對話).*)?$",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Chat:
    conversation_id: str
    order: Order
    group: bool
    ordinals: Ordinals = field(default_factory=Ordinals)


def read_whatsapp(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Turns of one chat. Two passes: the order of day and month, and whether it is a group, show only at the end.

    Times are local (`timezone`). The log has no ids: a turn's id is a digest of its time, name and text, so that a
    later export of the same chat gives the same ids.

    Raises:
        UnreadableFile: not UTF-8, a zip without a chat, or no message line in it.
    """
    with ExitStack() as stack:
        if zipfile.is_zipfile(source.path):
            archive = stack.enter_context(open_archive(source.path))
            source = Source(source.path, source.encoding, source.progress, archive, chat_member(archive, source.name))
        try:
            yield from _read(source, options)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            yield bad(source, None, "truncated", "this member of the zip is damaged")


def chat_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """The one text of an exported chat.

    Raises:
        UnreadableFile: there is none.
    """
    texts = [info for info in archive.infolist() if info.filename.lower().endswith(".txt")]
    chats = [info for info in texts if info.filename.rsplit("/", 1)[-1].lower().endswith("chat.txt")] or texts[:1]
    if not chats:
        raise UnreadableFile("format", f"{name} holds no WhatsApp chat (.txt)")
    return chats[0]


def _read(source: Source, options: ImportOptions) -> Iterator[Record]:
    source.require_utf8()
    vote = OrderVote()
    people: set[str] = set()
    created = seen = False
    for entry in entries(source, HEADER, report=False):
        if entry.match is None:
            continue
        seen = True
        vote.add(entry.match)
        name, text = _speaker(entry.match["rest"])
        if name is None:
            created = created or " group " in text
        elif len(people) < 3 and notice_kind(without_marks(text).strip()) is None:
            people.add(name)
    if not seen:
        raise UnreadableFile("format", f"{source.name} has no line like 31/12/20, 23:55 - Name: text")
    title = _EXPORT_NAME.sub(lambda match: match["name"], source.title)
    chat = _Chat(options.conversation_id or title, vote.winner(options.date_order), created or len(people) > 2)
    for entry in entries(source, HEADER):
        yield _turn(source, entry, chat, options)


def _speaker(rest: str) -> tuple[str | None, str]:
    """(name, text), or (None, sentence) of a line that nobody said."""
    said = _SAID.match(rest)
    if said is None or is_event(without_marks(said["name"])):
        return None, rest
    name = without_marks(said["name"]).replace("\u202f", " ").replace("\xa0", " ").removeprefix("~").strip()
    return (name, said["text"]) if name else (None, rest)


def _turn(source: Source, entry: Entry, chat: _Chat, options: ImportOptions) -> Record:
    number = entry.number
    if entry.problem is not None:
        return bad(source, number, *entry.problem, entry.raw)
    if entry.match is None:
        return bad(source, number, "no_header", "text before the first message", entry.raw)
    local = local_time(entry.match, chat.order)
    if local is None:
        return bad(source, number, "bad_sent_at", f"no date of the calendar when read as {chat.order}", entry.raw)
    name, first = _speaker(entry.match["rest"])
    if name is None:
        return service(source, number, "event")
    text = without_marks("\n".join([first, *entry.more])).strip()
    if (kind := notice_kind(text)) is not None:
        return service(source, number, kind)
    fields = person(options, name, name)
    fields |= _content(text)
    if not fields["text"] and not fields["attachments"] and "deleted" not in fields:
        return service(source, number, "empty")
    fields |= {
        "tenant": options.tenant,
        "conversation_id": chat.conversation_id,
        "turn_id": chat.ordinals.turn_id(local.isoformat(), name, text),
        "sent_at": local.replace(tzinfo=options.zone),
        "timezone": options.timezone,
        "gateway": "whatsapp",
        "group": chat.group,
    }
    return build(source, number, fields, options, entry.raw)


def _content(text: str) -> dict[str, Any]:
    text, edited = strip_edited(text)
    content: dict[str, Any] = {"text": text, "attachments": []}
    if edited:
        content["revision"] = 1
    if is_deleted(text):
        return {"text": "", "attachments": [], "deleted": True, "revision": 1}
    if (attached := attached_file(text)) is not None:
        content["attachments"] = [attachment(attached[0])]
        content["text"] = attached[1]
        return content
    first, _, caption = text.partition("\n")
    if (omitted := omitted_media(first)) is not None:
        content["attachments"] = [attachment(omitted[0], mime=omitted[1])]
        content["text"] = caption.strip()
    return content
