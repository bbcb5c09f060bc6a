"""Session, notes: what a summary consists of; each note names the turns it rests on, so that it falls with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field

from processors.session.loops import Loop, LoopKind
from processors.slots import value_key
from schemas import Contract, Role, UtcDatetime


class NoteKind(StrEnum):
    """The three things that a summary keeps (SPEC W13); small talk is none of them."""

    FACT = "fact"
    DECISION = "decision"
    OPEN = "open"


MOST: Final = {NoteKind.FACT: 10, NoteKind.DECISION: 8, NoteKind.OPEN: 8}
"""Notes of each kind in a summary; two hours of talk stay below 500 tokens."""
LONGEST: Final = 160


class Source(Contract):
    """A turn at one revision."""

    turn_key: str
    revision: int = 0


class Note(Contract):
    """One thing to keep, masked, in the language it was said in. `turn_id` is the newest source's."""

    kind: NoteKind
    text: str
    role: Role
    speaker: str = ""
    loop: LoopKind | None = None
    turn_id: str
    said_at: UtcDatetime
    sources: tuple[Source, ...]

    @classmethod
    def of_loop(cls, loop: Loop) -> Note:
        """The note of something that is still open."""
        return cls(
            kind=NoteKind.OPEN,
            text=loop.text,
            role=loop.role,
            speaker=loop.speaker,
            loop=loop.kind,
            turn_id=loop.turn_id,
            said_at=loop.said_at,
            sources=(Source(turn_key=loop.turn_key, revision=loop.revision),),
        )

    def as_loop(self) -> Loop:
        """Back again; what a model noted as open without saying why waits to be confirmed."""
        newest = self.sources[-1]
        kind = self.loop or LoopKind.PENDING
        return Loop(
            kind, self.text, self.role, self.speaker, self.turn_id, newest.turn_key, newest.revision, self.said_at
        )


class Summary(Contract):
    """What a conversation came to.

    `method` says how it was made: by a model, or `extractive`, which only picks out sentences. `fallback` is why there was
    no model: off, unavailable, refused, unparsable. `turns` counts the turns it rests on.
    """

    notes: tuple[Note, ...] = ()
    method: Literal["model", "extractive"]
    fallback: str | None = None
    language: Literal["zh", "en"] = "en"
    model: str = ""
    prompt_version: str = ""
    turns: int = Field(default=0, ge=0)

    def of_kind(self, kind: NoteKind) -> tuple[Note, ...]:
        """Its notes of one kind, oldest first."""
        return tuple(note for note in self.notes if note.kind is kind)

    def standing(self, revisions: Mapping[str, int]) -> Summary:
        """Without the notes that rest on a turn which no longer stands at the revision that was read."""
        kept = tuple(
            note
            for note in self.notes
            if all(revisions.get(source.turn_key) == source.revision for source in note.sources)
        )
        return self if len(kept) == len(self.notes) else self.model_copy(update={"notes": kept})


def rolled(notes: Sequence[Note]) -> tuple[Note, ...]:
    """Each thing once, in its newest wording, the newest of each kind up to the limit, oldest first."""
    unique: dict[tuple[NoteKind, str], Note] = {}
    for note in sorted(notes, key=lambda note: (note.said_at, note.turn_id)):
        key = (note.kind, value_key(note.text))
        unique.pop(key, None)
        unique[key] = note
    kept: list[Note] = []
    for kind, most in MOST.items():
        kept += [note for note in unique.values() if note.kind is kind][-most:]
    return tuple(kept)
