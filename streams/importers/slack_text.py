"""The flow, importers: Slack's message markup as people read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streams.importers.building import dicts

_TOKEN = re.compile(r"<([^<>]+)>")
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
