"""Noise, attachments: a file is a name, a kind and a URL; its bytes are never read (SPEC W1, W4)."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from schemas import Attachment, Turn

_KINDS: Final = {
    "image": frozenset({"png", "jpg", "jpeg", "gif", "webp", "heic", "bmp", "svg"}),
    "audio": frozenset({"mp3", "wav", "m4a", "ogg", "opus", "flac", "amr", "silk"}),
    "video": frozenset({"mp4", "mov", "avi", "mkv", "webm"}),
    "document": frozenset({"pdf", "doc", "docx", "odt", "rtf", "md", "txt", "pages"}),
    "spreadsheet": frozenset({"xls", "xlsx", "csv", "tsv", "ods", "numbers"}),
    "slides": frozenset({"ppt", "pptx", "odp", "key"}),
    "archive": frozenset({"zip", "tar", "gz", "7z", "rar", "xz"}),
}
_MOST: Final = 10
_LONGEST: Final = 200


def describe_attachments(turn: Turn) -> str:
    """One line per attachment, `[image] name: summary url`, at most ten; empty when the turn has none."""
    lines = [_line(attachment) for attachment in turn.attachments[:_MOST]]
    if len(turn.attachments) > _MOST:
        lines.append(f"+{len(turn.attachments) - _MOST}")
    return "\n".join(lines)


def _line(attachment: Attachment) -> str:
    name, summary = _one_line(attachment.name), _one_line(attachment.summary or "")
    # A data: URL is the file itself.
    url = "" if attachment.url.lower().startswith("data:") else "".join(attachment.url.split())
    title = ": ".join(part for part in (name, summary) if part)
    return " ".join(part for part in (f"[{_kind(attachment)}]", title, url) if part)


def _one_line(text: str) -> str:
    """White space collapsed, so that a name cannot pretend to be another line of the conversation."""
    return " ".join(text.split())[:_LONGEST]


def _kind(attachment: Attachment) -> str:
    family = attachment.mime.partition("/")[0].lower()
    if family in ("image", "audio", "video"):
        return family
    suffix = PurePosixPath(attachment.name or attachment.url.partition("?")[0]).suffix.removeprefix(".").lower()
    subtype = attachment.mime.partition("/")[2].lower()
    for kind, suffixes in _KINDS.items():
        if suffix in suffixes or subtype in suffixes:
            return kind
    return "file"
