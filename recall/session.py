"""Sessions, the read side: what a conversation holds in mind, its summary kept up to date, an agent's own checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import orjson
from sqlalchemy import Connection

from processors.exceptions import ConflictError, PoisonError, TransientError
from processors.ports import ChatModel, ChatReply
from processors.session import (
    Loop,
    Mask,
    Note,
    NoteKind,
    Said,
    Summary,
    SummaryLimits,
    Suspect,
    TurnDigest,
    due_by,
    follow,
    recent_digests,
)
from processors.session.extractive import extract, key_points, language_of, notes_in, unsuspected
from processors.session.parse import read_summary
from processors.session.render import MAX_REPLY_TOKENS, MAX_TURNS, render
from schemas import OwnerKind, digest
from sinks.truth import Truth, checkpoints, sessions, turns
from sinks.truth.checkpoints import Checkpoint, Thread
from sinks.truth.sessions import Cursor, StoredSummary

log = logging.getLogger("memriver.session")

Refuses = Callable[[Connection, Thread], bool]
"""Whether the person of this state was erased; the answer holds until the transaction ends."""


def nobody(_connection: Connection, _thread: Thread) -> bool:
    """Where nobody can have been erased."""
    return False


MAX_STATE_BYTES: Final = 65_536
"""A checkpoint is where a task stands, not its material."""
_UNSUMMARISED: Final = 40
"""Turns since the last summary that a read looks at; four times what a summary waits for, so that a read stays quick."""
_LANGUAGE_FROM: Final = 10
_ROUNDS: Final = 50
"""Steps of one refresh: 2,000 turns; the rest has to wait for the next one."""
_TRIES: Final = 3
"""Times that somebody else may be faster, or the conversation gone, before what is stored is taken as it is."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """What a session holds. `recent` is oldest first; `decisions` and `key_points` are newest first.

    `summary` is None until the first one is due; `unsummarised` counts the turns since. `timezone` is the person's.
    """

    conversation_key: str
    language: Literal["zh", "en"]
    timezone: str
    recent: tuple[Said, ...] = ()
    digests: tuple[TurnDigest, ...] = ()
    summary: Summary | None = None
    facts: tuple[Note, ...] = ()
    decisions: tuple[Note, ...] = ()
    loops: tuple[Loop, ...] = ()
    key_points: tuple[Note, ...] = ()
    unsummarised: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """A checkpoint to resume from; name its `version` to replace it."""

    version: int
    data: dict[str, Any]
    updated_at: datetime


class SessionMemory:
    """Reads and keeps sessions. `mask` and `suspect` are the policy's; without a model summaries are extractive.

    Reads and checkpoints block and belong in a thread; `refresh` is a coroutine since it may ask the model.
    """

    def __init__(
        self,
        truth: Truth,
        *,
        mask: Mask,
        now: Callable[[], datetime],
        suspect: Suspect = unsuspected,
        model: ChatModel | None = None,
        limits: SummaryLimits | None = None,
        spent: Callable[[ChatReply], None] = lambda _reply: None,
        refuses: Refuses = nobody,
    ) -> None:
        """`spent` is told of each reply of the model, also one that made no summary: it has been paid for."""
        self._truth = truth
        self._mask = mask
        self._refuses = refuses
        self._suspect = suspect
        self._now = now
        self._model = model
        self._limits = limits or SummaryLimits()
        self._spent = spent

    def view(self, tenant: str, conversation_id: str, owner: str, *, turns: int = 10) -> SessionView:
        """What the session holds for a person who takes part in it.

        To anybody else, and where there is no such conversation, it is an empty session: the two look the same.
        """
        key = digest(tenant, conversation_id)
        owner_key = digest(tenant, OwnerKind.USER, owner)
        with self._truth.reading() as connection:
            if not sessions.takes_part(connection, key, owner_key):
                return SessionView(key, "en", "UTC")
            recent = sessions.said(connection, key, limit=max(turns, _LANGUAGE_FROM))
            stored = sessions.summary(connection, key)
            through = stored.through if stored else None
            since, _ = sessions.said_since(connection, key, through, limit=_UNSUMMARISED, newest=True)
            made = _standing(connection, stored)
        return self._view(key, owner_key, recent, turns, made, since)

    def _view(
        self, key: str, owner_key: str, recent: list[Said], turns: int, made: Summary | None, since: list[Said]
    ) -> SessionView:
        notes = [note for note in made.notes if note.kind is not NoteKind.OPEN] if made else []
        opened = [note.as_loop() for note in made.of_kind(NoteKind.OPEN)] if made else []
        notes += notes_in([item for item in since if not item.filtered], self._mask)
        notes = [note for note in notes if not self._suspect(note.text)]
        notes.sort(key=lambda note: (note.said_at, note.turn_id), reverse=True)
        own = [item for item in recent if item.turn.owner_key == owner_key]
        return SessionView(
            key,
            language_of(recent),
            own[-1].turn.timezone if own else recent[-1].turn.timezone if recent else "UTC",
            tuple(recent[-turns:]) if turns else (),
            recent_digests(recent, self._mask),
            made,
            tuple(note for note in notes if note.kind is NoteKind.FACT),
            tuple(note for note in notes if note.kind is NoteKind.DECISION),
            tuple(loop for loop in follow(opened, since, self._mask) if not self._suspect(loop.text)),
            key_points(notes),
            len(since),
        )

    async def refresh(self, tenant: str, conversation_id: str, *, force: bool = False) -> Summary | None:
        """Bring the rolling summary up to date if it is due (or `force`); the summary, or None when there is none yet.

        Two writers at once: the faster one wins, the other takes what it wrote. A summary that rests on a turn which
        was taken back or edited meanwhile loses those notes for good here.
        """
        return await self.refresh_key(digest(tenant, conversation_id), force=force)

    async def refresh_key(self, key: str, *, force: bool = False) -> Summary | None:
        """As `refresh`, by the key that `sinks.truth.sessions.due` gives."""
        lost = 0
        for _ in range(_ROUNDS):
            stored, standing, since, through = await asyncio.to_thread(self._read, key)
            fallen = stored is not None and standing != stored.summary
            if not (force or fallen or due_by(since, self._limits)) or (not since and standing is None):
                return standing
            made = await self._made(since, standing) if since or standing is None else standing
            version = stored.version if stored else 0
            if not await asyncio.to_thread(self._save, key, made, through, version):
                lost += 1
            elif len(since) < MAX_TURNS:
                return made
            if lost == _TRIES:
                break
        return await asyncio.to_thread(self._last, key)

    def _read(self, key: str) -> tuple[StoredSummary | None, Summary | None, list[Said], Cursor | None]:
        with self._truth.reading() as connection:
            stored = sessions.summary(connection, key)
            through = stored.through if stored else None
            since, reached = sessions.said_since(connection, key, through, limit=MAX_TURNS)
            return stored, _standing(connection, stored), since, reached

    def _save(self, key: str, made: Summary, through: Cursor | None, version: int) -> bool:
        now = self._now()

        def work(connection: Connection) -> bool:
            # The row that an erasure takes before it deletes turns: what they said goes with them or is not written here.
            turns.lock_conversations(connection, [key])
            keys = {source.turn_key for note in made.notes for source in note.sources}
            if made.standing(sessions.revisions(connection, keys)) != made:
                return False
            return sessions.save_summary(connection, key, made, through=through, expected_version=version, now=now)

        return self._truth.run(work)

    def _last(self, key: str) -> Summary | None:
        with self._truth.reading() as connection:
            return _standing(connection, sessions.summary(connection, key))

    async def _made(self, since: list[Said], previous: Summary | None) -> Summary:
        language = language_of(since) if since else (previous.language if previous else "en")
        fallback = "off"
        prompt = render(since, previous, language, self._mask)
        if prompt is None:
            # Small talk: no call, and nothing of what is known changes.
            empty = extract([], self._mask, previous=previous)
            return (previous or empty).model_copy(update={"turns": empty.turns + len(since)})
        if self._model is not None:
            try:
                reply = await self._model.complete(prompt.system, prompt.user, max_tokens=MAX_REPLY_TOKENS)
            except (TransientError, PoisonError) as error:
                fallback = "unavailable" if isinstance(error, TransientError) else "refused"
            else:
                self._spent(reply)
                read = read_summary(reply.text, prompt, self._mask, self._suspect)
                if read is not None:
                    notes, refused = read
                    if refused:
                        log.info("a summary lost %d notes that named no turn or were not to be kept", refused)
                    return Summary(
                        notes=notes,
                        method="model",
                        language=language,
                        model=reply.model,
                        prompt_version=prompt.version,
                        turns=(previous.turns if previous else 0) + len(since),
                    )
                fallback = "unparsable"
            log.warning("the model made no summary (%s): sentences are picked out instead", fallback)
        return extract(since, self._mask, previous=previous, suspect=self._suspect, fallback=fallback)

    def save_state(
        self,
        agent: str,
        thread: Thread,
        data: dict[str, Any],
        *,
        expected_version: int,
        conversation_id: str | None = None,
    ) -> State:
        """Save where `agent` stands, so that an interrupted task resumes; `expected_version` 0 starts a task.

        Raises:
            PoisonError: another agent's thread; not JSON; more than 65,536 bytes.
            ConflictError: somebody saved meanwhile; load, and save again.
        """
        _own(agent, thread)
        body = _body(data)
        now = self._now()
        place = digest(thread.tenant, conversation_id) if conversation_id is not None else None
        version = self._put(thread, body, expected_version, now, place, ended=False)
        return State(version, data, now)

    def load_state(self, agent: str, thread: Thread) -> State | None:
        """Where the task stands, or None when there is nothing to resume.

        Raises:
            PoisonError: another agent's thread; working memory is private.
        """
        _own(agent, thread)
        with self._truth.reading() as connection:
            found = checkpoints.load(connection, thread)
        return State(found.version, orjson.loads(found.body), found.updated_at) if found and not found.ended else None

    def end_state(self, agent: str, thread: Thread, *, expected_version: int) -> None:
        """The task is over: its state is emptied and nothing is resumed. Raises as `save_state`."""
        _own(agent, thread)
        self._put(thread, "{}", expected_version, self._now(), None, ended=True)

    def _put(
        self, thread: Thread, body: str, expected: int, now: datetime, conversation_key: str | None, *, ended: bool
    ) -> int:
        def work(connection: Connection) -> int | None:
            if self._refuses(connection, thread):
                raise PoisonError("erased", "the person whom this state is about was erased")
            found = checkpoints.load(connection, thread)
            version = _expected(found, expected)
            if version is None:
                return None
            return checkpoints.save(
                connection,
                thread,
                body,
                expected_version=version,
                now=now,
                conversation_key=conversation_key,
                ended=ended,
            )

        saved = self._truth.run(work)
        if saved is None:
            raise ConflictError("the state was saved by another run meanwhile")
        return saved


def _expected(found: Checkpoint | None, expected: int) -> int | None:
    """The version to replace: after an ended task a new one starts from 0 again, and the row's numbers go on."""
    if found is not None and found.ended:
        return found.version if expected == 0 else None
    return expected if expected == (found.version if found else 0) else None


def _own(agent: str, thread: Thread) -> None:
    if not agent or agent != thread.agent_id:
        raise PoisonError("forbidden", "working memory is private to its agent")


def _body(data: dict[str, Any]) -> str:
    try:
        raw = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError):
        # orjson's words would quote the value.
        raise PoisonError("invalid_state", "a state is a JSON object of valid Unicode text") from None
    if len(raw) > MAX_STATE_BYTES:
        raise PoisonError("state_too_large", f"a state has at most {MAX_STATE_BYTES} bytes of JSON")
    return raw.decode()


def _standing(connection: Connection, stored: StoredSummary | None) -> Summary | None:
    if stored is None:
        return None
    keys = {source.turn_key for note in stored.summary.notes for source in note.sources}
    return stored.summary.standing(sessions.revisions(connection, keys))
