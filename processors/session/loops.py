"""Session, open loops: what was asked and not answered, promised and not done, or left to be confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import regex

from processors.keywords import tokens
from processors.session.cues import cues, plain
from processors.session.said import Mask, Said, sentences
from schemas import Role

MOST: Final = 20
"""Loops that one conversation keeps open; the oldest are let go of."""
_SHARED: Final = 0.34
_LETTERS: Final = regex.compile(r"[\p{L}\p{N}]")
_SHORTEST: Final = 3


class LoopKind(StrEnum):
    """Why it is open."""

    QUESTION = "question"
    REQUEST = "request"
    PROMISE = "promise"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Loop:
    """One open matter. `speaker` is who is waited for (promise) or who waits (question, request)."""

    kind: LoopKind
    text: str
    role: Role
    speaker: str
    turn_id: str
    turn_key: str
    revision: int
    said_at: datetime


def follow(open_before: Sequence[Loop], said: Iterable[Said], mask: Mask) -> list[Loop]:
    """The loops that are open after these turns, oldest first.

    An answer closes what was asked last, whoever of the others gives it; older questions stay open unless the answer
    shares a third of their words. "Let me check" is no answer. A promise is closed by its own "done" that names it, or
    by anybody's "not needed any more"; what was to be confirmed is closed by a sentence that settles it.
    """
    loops = list(open_before)
    seen: dict[str, frozenset[str]] = {}
    for item in said:
        if item.turn.role is Role.SYSTEM:
            continue
        loops = _after(loops, item, seen)
        loops += _opened(item, mask)
    return loops[-MOST:]


def _opened(item: Said, mask: Mask) -> Iterator[Loop]:
    """Greetings and moods open nothing, and neither does a tool."""
    if item.filtered or item.turn.role is Role.TOOL:
        return
    turn, known = item.turn, cues()
    for sentence in sentences(turn):
        kind = _kind(plain(sentence), by_user=item.by_user)
        if kind is None or len(_LETTERS.findall(sentence)) < _SHORTEST:
            continue
        if kind is LoopKind.PROMISE and (known.finishes(plain(sentence)) or known.hit("checking", plain(sentence))):
            # "Let me check" keeps open what was asked; it is nothing of its own.
            continue
        yield Loop(
            kind, mask(sentence), turn.role, _speaker(item), turn.turn_id, turn.turn_key, turn.revision, turn.sent_at
        )


def _kind(sentence: str, *, by_user: bool) -> LoopKind | None:
    known = cues()
    if known.asks(sentence):
        return LoopKind.QUESTION
    if known.hit("rhetorical", sentence):
        return None
    if by_user and known.hit("request", sentence):
        return LoopKind.REQUEST
    if known.hit("pending", sentence):
        return LoopKind.PENDING
    if known.hit("promise", sentence) and not known.hit("idle", sentence):
        return LoopKind.PROMISE
    return None


def _after(loops: Sequence[Loop], item: Said, seen: dict[str, frozenset[str]]) -> list[Loop]:
    said = [plain(sentence) for sentence in sentences(item.turn)]
    if not said and not item.turn.text.strip():
        return list(loops)
    speaker = _speaker(item)
    answers = _answers(said)
    words = frozenset(tokens(item.turn.text[:2_000])) if loops else frozenset()
    finished = [_matter(sentence) for sentence in said if cues().finishes(sentence)]
    waited_for = [loop for loop in loops if loop.kind in _ASKED and _may_answer(loop, item, speaker)]
    latest = waited_for[-1].turn_key if waited_for else ""
    kept: list[Loop] = []
    for loop in loops:
        if loop.turn_key == item.turn.turn_key:
            # The same turn, edited: what it says now is opened anew.
            continue
        about = seen.get(loop.text)
        if about is None:
            about = seen[loop.text] = frozenset(tokens(loop.text))
        if loop.kind in _ASKED:
            meant = loop.turn_key == latest or loop.turn_id == item.turn.reply_to or _overlap(about, words) >= _SHARED
            closed = answers and loop in waited_for and meant
            closed = closed or (speaker == loop.speaker and _is_done(loop, finished, own=False))
        else:
            closed = _is_done(loop, finished, own=speaker == loop.speaker)
        if not closed:
            kept.append(loop)
    return kept


_ASKED: Final = (LoopKind.QUESTION, LoopKind.REQUEST)


def _may_answer(loop: Loop, item: Said, speaker: str) -> bool:
    # A tool's output is the agent's material; the agent still has to say it.
    return speaker != loop.speaker and item.turn.role is not Role.TOOL


def _answers(said: Sequence[str]) -> bool:
    """Whether something was said that is neither a question back nor a delay; an image or a sticker counts as said."""
    known = cues()
    if not said:
        return True
    return any(not known.asks(sentence) and not known.hit("deferral", sentence) for sentence in said)


def _matter(sentence: str) -> frozenset[str]:
    return frozenset(tokens(cues().matter(sentence)))


def _is_done(loop: Loop, finished: Sequence[frozenset[str]], *, own: bool) -> bool:
    """Whether something that was finished is what the loop is about; "done" alone is enough for an "I'll fix it"."""
    about = _matter(plain(loop.text))
    if not about:
        return own and bool(finished)
    return any(_overlap(about, done) > 0 for done in finished)


def _overlap(about: frozenset[str], words: frozenset[str]) -> float:
    return len(about & words) / len(about) if about else 0.0


def _speaker(item: Said) -> str:
    turn = item.turn
    return f"user:{turn.user_id}" if item.by_user else f"{turn.role.value}:{turn.agent_id or ''}"
