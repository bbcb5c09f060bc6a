"""Replay, the door: sealed turns opened as far as their keys are there, and whoever was erased kept out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from processors.exceptions import FatalError
from schemas import Turn
from sinks.sealing import Admission, DataKeys, Identities, Sealer, open_frame, read_frame
from sinks.sealing.sealer import DataKey
from sinks.truth import Truth, suppression, tables
from sinks.truth.replays import pages

_NO_KEY = DataKey("", bytes(32))
"""An admission names a key for each owner; a replay seals nothing with it."""


class Unsealing:
    """Opens records of `turns.sealed` with the data keys of the live schema, looked up anew for each page."""

    def __init__(self, live: Truth, data_keys: DataKeys) -> None:
        self._live = live
        self._data_keys = data_keys

    def __call__(self, records: Sequence[Any]) -> list[bytes | None]:
        """The turns; None for one whose key is destroyed.

        Raises:
            FatalError: a key was never in this database, or the master key does not fit.
        """
        frames = [read_frame(record.value or b"") for record in records]
        with self._live.reading() as connection:
            found = self._data_keys.fetch(connection, {frame.key_id for frame in frames})
        payloads: list[bytes | None] = []
        for record, frame in zip(records, frames, strict=True):
            if frame.key_id not in found:
                raise FatalError(
                    f"{record.topic}:{record.partition}:{record.offset} is sealed with a key that this database never had"
                )
            key = found[frame.key_id]
            payloads.append(open_frame(frame, key.cipher) if key is not None else None)
        return payloads


class ReplayDoor(Sealer):
    """Intake's door for a replay: the list of the live schema decides, nobody is written down, nothing is sealed."""

    def __init__(self, live: Truth, identities: Identities, data_keys: DataKeys) -> None:
        super().__init__(identities, data_keys)
        self._live = live

    def admit(self, connection: Connection, turns: Sequence[Turn], now: datetime) -> Admission:
        """Who was erased stays out, by person, tenant, conversation or turn."""
        names = _names(self.identities, turns)
        with self._live.reading() as live:
            gone = {names[key] for key in suppression.suppressed(live, names)}
        open_to = {turn.owner_key for turn in turns if not {turn.owner_key, turn.tenant} & gone}
        return Admission(dict.fromkeys(open_to, _NO_KEY), frozenset(gone))


def returning(live: Connection, beside: Connection, identities: Identities) -> int:
    """How many people, conversations and turns the schema beside still has that were erased since it was filled."""
    gone: set[str] = set()
    columns = (
        tables.turns.c.turn_key,
        tables.turns.c.conversation_key,
        tables.turns.c.owner_key,
        tables.turns.c.tenant,
    )
    for rows in pages(beside, select(*columns), tables.turns.c.turn_key):
        gone |= suppression.suppressed(live, _names(identities, rows))
    # Somebody of whom there are orders only.
    for rows in pages(beside, select(tables.owners.c.owner_key, tables.owners.c.tenant), tables.owners.c.owner_key):
        names = {identities.owner(row.owner_key) for row in rows} | {identities.tenant(row.tenant) for row in rows}
        gone |= suppression.suppressed(live, names)
    return len(gone)


def _names(of: Identities, turns: Iterable[Any]) -> dict[str, str]:
    """What may be suppressed of these turns, by its keyed hash."""
    names: dict[str, str] = {}
    for turn in turns:
        names[of.owner(turn.owner_key)] = turn.owner_key
        names[of.tenant(turn.tenant)] = turn.tenant
        names[of.conversation(turn.conversation_key)] = turn.conversation_key
        names[of.turn(turn.turn_key)] = turn.turn_key
    return names
