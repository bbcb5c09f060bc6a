"""Session, the question to the model: the summary so far and what was said since, as numbered lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from processors.session.notes import Note, Source, Summary
from processors.session.prompts import module_for
from processors.session.said import Mask, Said, clip, words_of
from schemas import Role

MAX_TURNS: Final = 40
"""Turns that one call is shown; a longer stretch is summarised in steps."""
MAX_TURN_CHARS: Final = 600
_ROOM: Final = 24_000
MAX_REPLY_TOKENS: Final = 1_500


@dataclass(frozen=True, slots=True)
class SummaryPrompt:
    """What is sent. `lines` maps the numbers shown to the note or turn behind them; no real id is ever shown."""

    system: str
    user: str
    lines: Mapping[int, Note | Said]
    version: str


def render(said: Sequence[Said], previous: Summary | None, language: str, mask: Mask) -> SummaryPrompt | None:
    """The prompt; None when nothing was said that a model may see.

    Filtered turns, system prompts and recalled memories in a turn are not shown (SPEC W4, W5). Everything is masked.
    """
    module = module_for(language)
    spoken = [(item, words) for item in said if _may_be_seen(item) and (words := mask(words_of(item.turn)))]
    if not spoken:
        return None
    share = min(MAX_TURN_CHARS, _ROOM // len(spoken))
    lines: dict[int, Note | Said] = {}
    text: list[str] = []
    before = previous.notes if previous else ()
    if before:
        text.append(module.BEFORE)
    for note in before:
        lines[len(lines) + 1] = note
        text.append(f"[{len(lines)}] {module.KINDS[note.kind.value]}: {note.text}")
    text.append(module.SINCE)
    for item, words in spoken:
        lines[len(lines) + 1] = item
        text.append(f"[{len(lines)}] {module.ROLES[item.turn.role.value]}: {clip(words, share)}")
    return SummaryPrompt(module.SYSTEM, "\n".join(text), MappingProxyType(lines), module.VERSION)


def _may_be_seen(item: Said) -> bool:
    return item.filtered is None and item.turn.role is not Role.SYSTEM and item.turn.consent is not False


def sources_of(line: Note | Said) -> tuple[Source, ...]:
    """The turns behind one line."""
    if isinstance(line, Note):
        return line.sources
    return (Source(turn_key=line.turn.turn_key, revision=line.turn.revision),)


def summary_schema() -> dict[str, Any]:
    """JSON Schema of the answer, for endpoints that take one (strict mode: every key required, nothing else)."""
    item = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "from": {"type": "array", "items": {"type": "integer"}}},
        "required": ["text", "from"],
        "additionalProperties": False,
    }
    keys = ("facts", "decisions", "open")
    return {
        "type": "object",
        "properties": {key: {"type": "array", "items": item} for key in keys},
        "required": list(keys),
        "additionalProperties": False,
    }
