"""The flow, importers: Discord channels as DiscordChatExporter writes them (JSON)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.importers.building import attachment, bad, bot, build, dicts, from_iso, person, service
from streams.importers.jsonstream import export
from streams.importers.records import BadRecord, ImportOptions, Record
from streams.importers.source import Source

_SPOKEN = {"Default", "Reply"}


def read_discord(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Turns of one channel. A server's channel is a group; so is everything else that is not a direct chat of two.

    Source: https://github.com/Tyrrrz/DiscordChatExporter

    Raises:
        UnreadableFile: no list of messages in it.
    """
    channel: dict[str, Any] = {}
    number = 0
    last_person: str | None = None
    for found in export(source, frozenset({"messages.item"}), frozenset({"messages"})):
        if isinstance(found, BadRecord):
            yield found
        elif found.kind == "scalar" and found.prefix.startswith("channel."):
            channel[found.prefix.removeprefix("channel.")] = found.value
        elif found.kind == "element":
            number += 1
            record = _message(source, number, found.value, channel, last_person, options)
            if not isinstance(record, BadRecord) and getattr(record, "role", None) == "user":
                last_person = getattr(record, "user_id", None)
            yield record


def _message(
    source: Source, number: int, raw: Any, channel: dict[str, Any], last_person: str | None, options: ImportOptions
) -> Record:
    if not isinstance(raw, dict):
        return bad(source, number, "not_an_object", "a message is a JSON object", raw)
    if str(raw.get("type", "Default")) not in _SPOKEN:
        return service(source, number, str(raw["type"]))
    author = raw.get("author")
    if not isinstance(author, dict) or not (author.get("id") or author.get("name")):
        return bad(source, number, "missing_user_id", "the message has no author", raw)
    if not isinstance(raw.get("timestamp"), str):
        return bad(source, number, "missing_sent_at", "the message has no timestamp", raw)
    try:
        sent_at = from_iso(raw["timestamp"], options)
        edited_at = from_iso(raw["timestampEdited"], options) if raw.get("timestampEdited") else None
    except (ValueError, TypeError):
        return bad(source, number, "bad_sent_at", "timestamp is not ISO 8601", raw)
    content = _content(raw)
    if not content["text"] and not content["attachments"]:
        return service(source, number, "empty")
    group = channel.get("type") != "DirectTextChat"
    author_id = str(author.get("id") or author["name"])
    name = str(author.get("nickname") or author.get("name") or "")
    if author.get("isBot"):
        fields = bot(options, author_id, name, None if group else last_person)
    else:
        fields = person(options, author_id, name)
    fields |= content
    fields |= {
        "tenant": options.tenant,
        "conversation_id": options.conversation_id or str(channel.get("id") or source.title),
        "turn_id": str(raw.get("id") or ""),
        "sent_at": sent_at,
        "timezone": options.timezone,
        "gateway": "discord",
        "group": group,
    }
    reference = raw.get("reference")
    # A reference into another channel is a cross-post, not an answer.
    if (
        isinstance(reference, dict)
        and reference.get("messageId")
        and str(reference.get("channelId") or channel.get("id")) == str(channel.get("id"))
    ):
        fields["reply_to"] = str(reference["messageId"])
    if edited_at is not None:
        fields |= {"edited_at": edited_at, "revision": 1}
    return build(source, number, fields, options, raw)


def _content(raw: dict[str, Any]) -> dict[str, Any]:
    text = str(raw.get("content") or "")
    content: dict[str, Any] = {}
    passed_on = raw.get("forwardedMessage")
    files = list(_files(raw))
    if isinstance(passed_on, dict):
        content["forwarded"] = True
        text = text or str(passed_on.get("content") or "")
        files += _files(passed_on)
    embeds = dicts(raw.get("embeds"))
    if not text:
        # Under a person's words an embed is a link's preview, somebody else's text; alone it is what a bot says.
        parts = (str(embed.get(key) or "") for embed in embeds for key in ("title", "description"))
        text = "\n".join(part for part in parts if part)
    files += [attachment(str(embed.get("title") or ""), str(embed["url"])) for embed in embeds if embed.get("url")]
    return {**content, "text": text, "attachments": files}


def _files(raw: dict[str, Any]) -> Iterator[dict[str, str]]:
    for file in dicts(raw.get("attachments")):
        yield attachment(str(file.get("fileName") or ""), str(file.get("url") or ""))
    for sticker in dicts(raw.get("stickers")):
        yield attachment(str(sticker.get("name") or "sticker"), str(sticker.get("sourceUrl") or ""))
