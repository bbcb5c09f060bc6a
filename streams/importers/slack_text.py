"""The flow, importers: Slack's message markup as people read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streams.importers.building import dicts

_TOKEN = re.compile(r"<([^<>]+)>")
_INLINE = ("rich_text_section", "rich_text_quote", "rich_text_preformatted")
# Levels of blocks inside blocks; Slack itself knows three.
_DEEPEST = 8
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def plain_text(text: str, names: Mapping[str, str]) -> str:
    """Mentions become names, links their label and address, entities their characters.

    Source: https://docs.slack.dev/messaging/formatting-message-text
    """
    text = _TOKEN.sub(lambda match: _token(match[1], names), text)
    # The ampersand last: "&amp;lt;" is somebody writing "&lt;".
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text


def _token(token: str, names: Mapping[str, str]) -> str:
    target, bar, label = token.partition("|")
    if target.startswith("@"):
        return "@" + (label.lstrip("@") or names.get(target[1:], target[1:]))
    if target.startswith("#"):
        return "#" + (label or target[1:])
    if target.startswith("!"):
        return label if bar else "@" + target[1:].split("^", 1)[0]
    address = target.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in (target, address):
        return address
    # Slack shortens the label of a bare link; the address says it all then.
    return target if label in target else f"{label} ({address})"


def attachments_text(attachments: object, names: Mapping[str, str]) -> str:
    """What a message says that consists of attachments only (bots, shared messages)."""
    lines: list[str] = []
    for part in dicts(attachments):
        said = [_string(part, key) for key in ("pretext", "title", "text")]
        lines.append("\n".join(line for line in said if line) or _string(part, "fallback"))
    return plain_text("\n".join(line for line in lines if line), names)


def _string(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def blocks_text(blocks: object, names: Mapping[str, str]) -> str:
    """What a message says in its blocks: the lines of a rich text, and the texts of sections, headers and contexts.

    Source: https://docs.slack.dev/reference/block-kit/blocks
    """
    return "\n".join(line for block in dicts(blocks) for line in _lines(block, names, _DEEPEST) if line.strip())


def _lines(block: dict[str, Any], names: Mapping[str, str], depth: int) -> list[str]:
    kind = block.get("type")
    if depth == 0:
        return []
    if kind in _INLINE:
        return ["".join(_inline(part, names) for part in dicts(block.get("elements")))]
    if kind in ("rich_text", "rich_text_list", "context"):
        return [line for part in dicts(block.get("elements")) for line in _lines(part, names, depth - 1)]
    if kind in ("section", "header"):
        parts = [*dicts([block.get("text")]), *dicts(block.get("fields"))]
        return [line for part in parts for line in _lines(part, names, depth - 1)]
    if kind == "mrkdwn":
        return [plain_text(_string(block, "text"), names)]
    return [_string(block, "text")] if kind == "plain_text" else []


def _inline(part: dict[str, Any], names: Mapping[str, str]) -> str:
    kind, text = part.get("type"), _string(part, "text")
    if kind == "link":
        url = _string(part, "url")
        return f"{text} ({url})" if text and text not in url else url
    if kind == "user":
        user = _string(part, "user_id")
        return "@" + (names.get(user) or user)
    if kind == "channel":
        return "#" + _string(part, "channel_id")
    if kind == "usergroup":
        return "@" + _string(part, "usergroup_id")
    if kind == "broadcast":
        return "@" + _string(part, "range")
    if kind == "emoji":
        return f":{_string(part, 'name')}:"
    return text
