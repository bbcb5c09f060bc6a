"""The flow, importers: Slack workspace exports (zip)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from streams.importers.building import attachment, bad, bot, build, dicts, person, service
from streams.importers.jsonstream import array_elements
from streams.importers.records import BadRecord, ImportOptions, Record, UnreadableFile
from streams.importers.slack_text import attachments_text, blocks_text, plain_text
from streams.importers.source import Source, open_archive

_DAY = re.compile(r"(?P<root>(?:[^/]+/)?)(?P<channel>[^/]+)/(?P<day>\d{4}-\d{2}-\d{2})\.json")
_CHANNEL_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")
_SPOKEN = {"", "bot_message", "me_message", "file_share", "file_comment", "thread_broadcast", "reply_broadcast"}
_NAMES = ("display_name", "real_name")


@dataclass(frozen=True, slots=True)
class _Channel:
    channel_id: str
    group: bool


@dataclass(slots=True)
class _Workspace:
    names: dict[str, str] = field(default_factory=dict)
    zones: dict[str, str] = field(default_factory=dict)
    bots: set[str] = field(default_factory=set)
    channels: dict[str, _Channel] = field(default_factory=dict)


@dataclass(slots=True)
class _Day:
    """What one day's file of one channel has told so far: revisions of edited turns, and who wrote what."""

    revisions: dict[str, int] = field(default_factory=dict)
    authors: dict[str, str] = field(default_factory=dict)


def read_slack(source: Source, options: ImportOptions) -> Iterator[Record]:
    """Every channel, day by day. A broken day costs only itself.

    Source: https://slack.com/help/articles/220556107 (how to read Slack data exports)

    Raises:
        UnreadableFile: not a zip, or without a single day of messages.
    """
    with open_archive(source.path) as archive:
        days = sorted(
            (match["channel"], match["day"], info)
            for info in archive.infolist()
            if (match := _DAY.fullmatch(info.filename)) is not None
        )
        if not days:
            raise UnreadableFile("format", f"{source.name} holds no Slack messages (folder/2024-01-31.json)")
        workspace = _Workspace()
        yield from _directory(source, archive, workspace)
        done = 0
        for channel, _, info in days:
            member = Source(source.path, source.encoding, source.progress, archive, info, done)
            yield from _day(member, channel, workspace, options)
            done += info.compress_size


def _directory(source: Source, archive: zipfile.ZipFile, workspace: _Workspace) -> Iterator[BadRecord]:
    for info in archive.infolist():
        name = info.filename.rsplit("/", 1)[-1]
        if info.filename.count("/") > 1 or name not in (*_CHANNEL_LISTS, "users.json"):
            continue
        member = Source(source.path, source.encoding, None, archive, info)
        for document in array_elements(member):
            if isinstance(document, BadRecord):
                yield document
            elif not isinstance(document.value, dict):
                yield bad(member, document.number, "not_an_object", "an entry is a JSON object", document.value)
            elif name == "users.json":
                _user(workspace, document.value)
            else:
                _channel(workspace, document.value, name)


def _user(workspace: _Workspace, user: dict[str, Any]) -> None:
    user_id = str(user.get("id", ""))
    profile = user.get("profile")
    profile = profile if isinstance(profile, dict) else {}
    names = [*(profile.get(key) for key in _NAMES), user.get("real_name"), user.get("name")]
    workspace.names[user_id] = next((name for name in names if isinstance(name, str) and name), user_id)
    zone = user.get("tz")
    if isinstance(zone, str) and _is_zone(zone):
        workspace.zones[user_id] = zone
    if user.get("is_bot"):
        workspace.bots.add(user_id)


def _channel(workspace: _Workspace, channel: dict[str, Any], listed_in: str) -> None:
    channel_id = str(channel.get("id", ""))
    members = channel.get("members")
    group = len(members) > 2 if isinstance(members, list) and members else listed_in != "dms.json"
    entry = _Channel(channel_id, group)
    workspace.channels[channel_id] = entry
    if isinstance(channel.get("name"), str):
        workspace.channels[channel["name"]] = entry


def _day(source: Source, folder: str, workspace: _Workspace, options: ImportOptions) -> Iterator[Record]:
    channel = workspace.channels.get(folder, _Channel(folder, not folder.startswith("D")))
    day = _Day()
    for document in array_elements(source):
        if isinstance(document, BadRecord):
            yield document
        else:
            yield _message(source, document.number, document.value, channel, workspace, day, options)


def _message(
    source: Source,
    number: int,
    raw: Any,
    channel: _Channel,
    workspace: _Workspace,
    day: _Day,
    options: ImportOptions,
) -> Record:
    if not isinstance(raw, dict):
        return bad(source, number, "not_an_object", "a message is a JSON object", raw)
    message: dict[str, Any] = raw
    subtype = str(message.get("subtype") or "")
    fields: dict[str, Any] = {}
    if subtype == "message_changed" and isinstance(message.get("message"), dict):
        event, message = message, {"thread_ts": message.get("thread_ts"), **message["message"]}
        message.setdefault("edited", {"ts": event.get("ts")})
        subtype = str(message.get("subtype") or "")
    if subtype == "message_deleted":
        earlier = message.get("previous_message")
        message = {"ts": message.get("deleted_ts"), **(earlier if isinstance(earlier, dict) else {})}
        message.setdefault("user", day.authors.get(str(message.get("ts"))))
        fields["deleted"] = True
    elif subtype == "tombstone":
        fields["deleted"] = True
    elif message.get("type", "message") != "message" or subtype not in _SPOKEN:
        return service(source, number, str(subtype or message.get("type")))
    ts = str(message.get("ts") or "")
    try:
        fields["sent_at"] = _moment(ts)
        if isinstance(message.get("edited"), dict) and message["edited"].get("ts"):
            fields["edited_at"] = _moment(str(message["edited"]["ts"]))
    except ValueError:
        return bad(source, number, "bad_sent_at", "ts is not a Slack time", raw)
    speaker = _speaker(message, workspace, options)
    if speaker is None:
        return bad(source, number, "missing_user_id", "the message names neither a user nor a bot", raw)
    if "edited_at" in fields or fields.get("deleted"):
        fields["revision"] = day.revisions[ts] = day.revisions.get(ts, 0) + 1
    fields.update(speaker)
    day.authors[ts] = str(message.get("user") or message.get("bot_id") or "")
    if not fields.get("deleted"):
        fields.update(_content(message, workspace))
        if not fields["text"] and not fields["attachments"]:
            return service(source, number, "empty")
    thread = message.get("thread_ts")
    fields |= {
        "tenant": options.tenant,
        "conversation_id": options.conversation_id or channel.channel_id,
        "turn_id": ts,
        "timezone": workspace.zones.get(str(message.get("user")), options.timezone),
        "gateway": "slack",
        "group": channel.group,
        "reply_to": str(thread) if thread and str(thread) != ts else None,
    }
    return build(source, number, fields, options, raw)


def _speaker(message: dict[str, Any], workspace: _Workspace, options: ImportOptions) -> dict[str, Any] | None:
    comment = message.get("comment")
    user = message.get("user") or (comment.get("user") if isinstance(comment, dict) else None)
    bot_id = message.get("bot_id")
    profile = message.get("bot_profile")
    # A person who posts through an app has both ids; only the directory tells such a person from a bot's own account.
    if message.get("subtype") == "bot_message" or (not user and bot_id) or str(user) in workspace.bots:
        agent = str(bot_id or user or message.get("username") or "")
        name = message.get("username") or (profile.get("name") if isinstance(profile, dict) else None)
        return bot(options, agent, name or workspace.names.get(str(user)), None) if agent else None
    if not user:
        return None
    return person(options, str(user), workspace.names.get(str(user)) or message.get("username"))


def _content(message: dict[str, Any], workspace: _Workspace) -> dict[str, Any]:
    # `text` is what Slack itself made of the blocks; apps and newer clients may leave it out.
    text = plain_text(str(message.get("text") or ""), workspace.names)
    text = text if text.strip() else blocks_text(message.get("blocks"), workspace.names)
    files = dicts(message.get("files"))
    old_file = message.get("file")
    comment = message.get("comment")
    if isinstance(old_file, dict):
        files.append(old_file)
        # Before 2018 the text of an upload was Slack's own sentence; the person's words are the comment.
        if not isinstance(comment, dict):
            comment = old_file.get("initial_comment")
        text = plain_text(str(comment.get("comment") or ""), workspace.names) if isinstance(comment, dict) else ""
    content: dict[str, Any] = {"text": text, "attachments": [_file(file) for file in files]}
    shared = message.get("attachments")
    if not text and (said := attachments_text(shared, workspace.names)):
        content["text"] = said
        if not message.get("bot_id"):
            content["forwarded"] = True
    return content


def _file(file: dict[str, Any]) -> dict[str, str]:
    if file.get("mode") == "tombstone":
        return attachment("deleted file")
    url = file.get("permalink") or file.get("url_private") or ""
    return attachment(
        str(file.get("name") or file.get("title") or file.get("id") or ""), str(url), str(file.get("mimetype") or "")
    )


def _moment(ts: str) -> datetime:
    seconds, _, fraction = ts.partition(".")
    if not seconds.isdigit() or len(seconds) > 11:
        raise ValueError("not a Slack time")
    return datetime.fromtimestamp(int(seconds), UTC).replace(microsecond=int(fraction[:6].ljust(6, "0") or 0))


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True
