"""Command line, output: the same facts as a table for people or as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from schemas import Memory, MemoryUpdated

console = Console(soft_wrap=True)
errors = Console(stderr=True)


def as_json(value: Any) -> None:
    """Print `value` as indented JSON on stdout."""
    raw = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z, default=str)
    sys.stdout.buffer.write(raw + b"\n")
    sys.stdout.flush()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows; nothing of what is printed is read as markup."""
    view = Table(title=title, title_justify="left", show_lines=False, expand=False)
    for column in columns:
        view.add_column(column, overflow="fold")
    for row in rows:
        view.add_row(*(_cell(value) for value in row))
    console.print(view, markup=False)


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)
    return text.replace("[", "\\[")


def plain_bytes(raw: bytes, *, hexadecimal: bool = False) -> str:
    """A message's bytes for a terminal: text with its control characters escaped, or a dump of 16 bytes a line."""
    try:
        text = None if hexadecimal else raw.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None:
        # A message may hold escape sequences that would speak to the terminal.
        return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    lines = (raw[start : start + 16] for start in range(0, len(raw), 16))
    return "\n".join(
        f"{number * 16:08x}  {line.hex(' '):<47}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in line)}"
        for number, line in enumerate(lines)
    )


def memory_view(memory: Memory) -> dict[str, Any]:
    """A memory as programs read it."""
    view: dict[str, Any] = memory.model_dump(mode="json", exclude={"schema_version"})
    view["valid_from"] = memory.valid_from
    # A stated end ("this week") bounds the validity although the interval is still open.
    view["valid_to"] = memory.valid_to or memory.expires_at
    view["evidence"] = [{"turn_id": item.turn_id, "quote": item.quote} for item in memory.evidence]
    view["source_turn_ids"] = list(dict.fromkeys(item.turn_id for item in memory.evidence))
    return view


def event_view(event: MemoryUpdated) -> dict[str, Any]:
    """An event without the memory's whole state."""
    memory = event.memory
    return {
        "event_id": event.event_id,
        "change": event.change.value,
        "memory_id": memory.id,
        "version": memory.version,
        "owner": memory.owner,
        "owner_seq": event.owner_seq,
        "attribute": memory.attribute,
        "value": memory.value,
        "text": memory.text,
        "status": memory.status.value,
        "cause": event.cause,
        "cause_turn_ids": list(event.cause_turn_ids),
        "replaces": list(event.replaces),
        "occurred_at": event.occurred_at,
    }


def turn_view(row: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a turn."""
    keys = ("tenant", "conversation_id", "turn_id", "user_id", "role", "sent_at", "revision", "outcome", "reason")
    return {key: row.get(key) for key in keys}
