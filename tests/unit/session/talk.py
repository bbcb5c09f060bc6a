"""Unit tests, sessions: a conversation written down in a few letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from processors.session import Said
from schemas import Turn

T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_ROLES = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}


def talk(*lines: str, start: int = 1) -> list[Said]:
    """ "u: …" user, "a: …" assistant, "t: …" tool, "s: …" system, "bob: …" another user, "-u: …" taken out as a greeting."""
    said: list[Said] = []
    for number, line in enumerate(lines, start=start):
        who, _, text = line.partition(":")
        name = who.removeprefix("-")
        fields: dict[str, Any] = {
            "tenant": "acme",
            "conversation_id": "c1",
            "turn_id": f"t{number}",
            "user_id": "ann" if name in _ROLES else name,
            "role": _ROLES.get(name, "user"),
            "text": text.strip(),
            "sent_at": T0 + timedelta(minutes=number),
        }
        said.append(Said(Turn.model_validate(fields), "greeting" if who.startswith("-") else None))
    return said


def same(text: str) -> str:
    """Masks nothing."""
    return text
