"""Session, extraction by rule: the sentences that hold facts and decisions, when no model is there to put them in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import regex

from processors.keywords import tokens
from processors.language import of_conversation
from processors.session.cues import cues, plain
from processors.session.loops import follow
from processors.session.notes import Note, NoteKind, Source, Summary, rolled
from processors.session.said import Mask, Said, Suspect, clip, sentences
from schemas import Role

_FIGURE: Final = regex.compile(
    r"\p{N}|[一二三四五六七八九十百千万两]+[个天点号月日年万元块人位次]|周[一二三四五六日天]"
)
_LETTERS: Final = regex.compile(r"\p{Han}|[\p{L}\p{N}]+")
_SHORTEST: Final = 3
_FACTS_PER_TURN: Final = 2
_ASSENT: Final = regex.compile(r"^\s*(?:ok(?:ay)?|great|fine|good|sure|yes|好的?|行|可以|嗯)\b[\s,，.。!！]*")
_PROPOSAL: Final = 100


def unsuspected(_text: str) -> bool:
    """The default: nothing is suspect."""
    return False


def extract(
    said: Sequence[Said],
    mask: Mask,
    *,
    previous: Summary | None = None,
    suspect: Suspect = unsuspected,
    fallback: str | None = None,
) -> Summary:
    """A summary made of the speakers' own sentences; says so in `method`.

    Facts are a person's or a tool's, never the assistant's; decisions may be anybody's and keep the speaker's role.
    """
    usable = [item for item in said if not item.filtered]
    before = previous.notes if previous else ()
    loops = follow([note.as_loop() for note in before if note.kind is NoteKind.OPEN], said, mask)
    notes = [note for note in before if note.kind is not NoteKind.OPEN]
    notes += notes_in(usable, mask)
    notes += [Note.of_loop(loop) for loop in loops]
    return Summary(
        notes=rolled([note for note in notes if not suspect(note.text)]),
        method="extractive",
        fallback=fallback,
        language=language_of(said),
        turns=(previous.turns if previous else 0) + len(said),
    )


def language_of(said: Sequence[Said]) -> Literal["zh", "en"]:
    """The language that most of what was said is in; tools do not count."""
    return of_conversation(item.turn.text for item in said if item.turn.role in (Role.USER, Role.ASSISTANT))


def notes_in(said: Sequence[Said], mask: Mask) -> list[Note]:
    """The notes of these turns. "Then let's do that" is kept with the sentence that it answers."""
    found: list[Note] = []
    before: Said | None = None
    for item in said:
        for note in notes_of(item, mask):
            found.append(_with_what_it_settles(note, before, mask) if note.kind is NoteKind.DECISION else note)
        if sentences(item.turn):
            before = item
    return found


def _with_what_it_settles(note: Note, before: Said | None, mask: Mask) -> Note:
    if before is None or _says_what(note.text):
        return note
    proposal = clip(mask(sentences(before.turn)[0]), _PROPOSAL)
    source = Source(turn_key=before.turn.turn_key, revision=before.turn.revision)
    return note.model_copy(update={"text": f"{proposal} → {note.text}", "sources": (source, *note.sources)})


def _says_what(decision: str) -> bool:
    """Whether anything is left beside the words that say that something was decided."""
    bare = _ASSENT.sub("", cues().patterns["decision"].sub(" ", plain(decision)))
    return any(len(token) > 1 for token in tokens(bare))


def notes_of(item: Said, mask: Mask) -> Iterator[Note]:
    """The decisions and the two strongest facts of one turn, in the order in which they stand there."""
    if item.turn.role is Role.SYSTEM or item.filtered:
        return
    known, facts = cues(), []
    found: list[tuple[int, NoteKind, str]] = []
    for position, sentence in enumerate(sentences(item.turn)):
        low = plain(sentence)
        if len(_LETTERS.findall(sentence)) < _SHORTEST or known.asks(low):
            continue
        if known.settles(low) and item.turn.role is not Role.TOOL:
            found.append((position, NoteKind.DECISION, sentence))
        elif not item.by_assistant and (weight := _weight(low, item)) > 0:
            facts.append((-weight, position, sentence))
    found += [(position, NoteKind.FACT, sentence) for _, position, sentence in sorted(facts)[:_FACTS_PER_TURN]]
    for _, kind, sentence in sorted(found):
        yield _note(item, kind, mask(sentence))


def _weight(sentence: str, item: Said) -> int:
    known = cues()
    if item.turn.role is Role.TOOL:
        return int(_FIGURE.search(sentence) is not None)
    if any(known.hit(kind, sentence) for kind in ("request", "rhetorical", "pending", "promise")):
        return 0
    if not known.hit("fact", sentence):
        return 0
    figure = _FIGURE.search(sentence) is not None
    return 3 if figure else 0 if known.hit("mood", sentence) else 2


def _note(item: Said, kind: NoteKind, text: str) -> Note:
    turn = item.turn
    return Note(
        kind=kind,
        text=text,
        role=turn.role,
        speaker=f"user:{turn.user_id}" if item.by_user else f"{turn.role.value}:{turn.agent_id or ''}",
        turn_id=turn.turn_id,
        said_at=turn.sent_at,
        sources=(Source(turn_key=turn.turn_key, revision=turn.revision),),
    )


def key_points(notes: Sequence[Note], *, most: int = 5) -> tuple[Note, ...]:
    """What somebody who joins now must know: the newest decisions, then the newest facts."""
    newest = sorted(notes, key=lambda note: (note.said_at, note.turn_id), reverse=True)
    decisions = [note for note in newest if note.kind is NoteKind.DECISION]
    facts = [note for note in newest if note.kind is NoteKind.FACT]
    return tuple([*decisions, *facts][:most])
