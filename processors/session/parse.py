"""Session, the tolerant reader of a model's summary; nothing here trusts the text (FIELD_REPORTS 1–4, 6, 9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import regex

from processors.extraction.json_scan import Found, python_literal, repaired, scan
from processors.session.notes import LONGEST, Note, NoteKind, rolled
from processors.session.render import SummaryPrompt, sources_of
from processors.session.said import Mask, Said, Suspect, clip, one_line
from schemas import Role

MAX_REPLY_CHARS: Final = 400_000
_MOST_SOURCES: Final = 12
_THINK: Final = regex.compile(r"<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", regex.DOTALL | regex.IGNORECASE)
_THINK_END: Final = regex.compile(r"\A.*?</(?:think|thinking|reasoning)>", regex.DOTALL | regex.IGNORECASE)
_NUMBER: Final = regex.compile(r"\d{1,6}")
_KEYS: Final = {
    "facts": NoteKind.FACT,
    "fact": NoteKind.FACT,
    "decisions": NoteKind.DECISION,
    "decision": NoteKind.DECISION,
    "open": NoteKind.OPEN,
    "open_items": NoteKind.OPEN,
    "todo": NoteKind.OPEN,
}


def read_summary(
    reply: str, prompt: SummaryPrompt, mask: Mask, suspect: Suspect
) -> tuple[tuple[Note, ...], int] | None:
    """(notes, how many were refused), or None when there is no summary in the reply.

    Refused is a note that names no line it was shown, is empty, copies a placeholder of the prompt, or tries to steer
    agents. One bad note never takes the others with it.
    """
    answer = _answer(reply)
    if answer is None:
        return None
    notes: list[Note] = []
    refused = 0
    for kind, entry in _entries(answer):
        note = _note(kind, entry, prompt, mask)
        if note is None or suspect(note.text):
            refused += 1
        else:
            notes.append(note)
    return rolled(notes), refused


def _answer(reply: str) -> Mapping[str, Any] | None:
    """The last whole object that is a summary: outside of thoughts, in the whole reply, or after a repair."""
    if not reply.strip() or len(reply) > MAX_REPLY_CHARS:
        return None
    outside = _THINK_END.sub("", _THINK.sub("\n", reply))
    for text in (outside, reply):
        whole = [piece.value for piece in scan(text) if isinstance(piece, Found) and _is_summary(piece.value)]
        if whole:
            return dict(whole[-1])
    start, end = outside.find("{"), outside.rfind("}") + 1
    if start < 0 or end <= start:
        return None
    region = outside[start:end]
    mended = [piece.value for piece in scan(repaired(region)) if isinstance(piece, Found) and _is_summary(piece.value)]
    literal = python_literal(region)
    if mended or not _is_summary(literal):
        return dict(mended[-1]) if mended else None
    return dict(literal)


def _is_summary(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(key), list) for key in _KEYS)


def _entries(answer: Mapping[str, Any]) -> Iterator[tuple[NoteKind, Any]]:
    for key, kind in _KEYS.items():
        listed = answer.get(key)
        if isinstance(listed, list):
            yield from ((kind, entry) for entry in listed[:40])


def _note(kind: NoteKind, entry: Any, prompt: SummaryPrompt, mask: Mask) -> Note | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        return None
    text = mask(one_line(entry["text"]))
    lines = [prompt.lines[number] for number in _numbers(entry.get("from")) if number in prompt.lines]
    if not text or "⟨" in text or not lines or "\ufffd" in text:
        return None
    if kind is NoteKind.FACT and all(_assistant(line) for line in lines):
        # What an assistant says is no fact of the user's (FIELD_REPORTS 12).
        return None
    return _built(kind, clip(text, LONGEST), lines)


def _built(kind: NoteKind, text: str, lines: Sequence[Note | Said]) -> Note:
    newest = max(lines, key=_place)
    sources = {source.turn_key: source for line in sorted(lines, key=_place) for source in sources_of(line)}
    if isinstance(newest, Note):
        role, speaker, turn_id, said_at = newest.role, newest.speaker, newest.turn_id, newest.said_at
    else:
        turn = newest.turn
        role, turn_id, said_at = turn.role, turn.turn_id, turn.sent_at
        speaker = f"user:{turn.user_id}" if newest.by_user else f"{turn.role.value}:{turn.agent_id or ''}"
    loop = next((line.loop for line in lines if isinstance(line, Note) and line.loop), None)
    return Note(
        kind=kind,
        text=text,
        role=role,
        speaker=speaker,
        loop=loop if kind is NoteKind.OPEN else None,
        turn_id=turn_id,
        said_at=said_at,
        sources=tuple(list(sources.values())[-_MOST_SOURCES:]),
    )


def _place(line: Note | Said) -> tuple[Any, str]:
    return (line.said_at, line.turn_id) if isinstance(line, Note) else (line.turn.sent_at, line.turn.turn_id)


def _assistant(line: Note | Said) -> bool:
    return (line.role if isinstance(line, Note) else line.turn.role) is Role.ASSISTANT


def _numbers(value: Any) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [int(number) for entry in listed[:50] for number in _NUMBER.findall(str(entry)[:200])]
