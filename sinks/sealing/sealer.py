"""Sinks, sealing: who may come in, and the key that seals what they say; looked up once per message group."""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection

from processors.exceptions import FatalError
from schemas import Turn
from sinks.sealing import frame
from sinks.sealing.identity import Identities
from sinks.sealing.wrapping import KeyWrapper
from sinks.truth import keys, suppression
from sinks.truth.keys import WrappedKey
from sinks.truth.suppression import Subject
from sinks.truth.together import Questions

CACHED_KEYS = 50_000
"""Data keys kept unwrapped, a third of a kilobyte each: unwrapping costs a call to the key service where there is one."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """An unwrapped key of 32 bytes."""

    key_id: str
    key: bytes

    @property
    def cipher(self) -> AESGCM:
        """Made anew, in a microsecond or two: kept, it would be five times as large as the key."""
        return AESGCM(self.key)


class DataKeys:
    """Unwrapped keys by id, read through a cache. For reading sealed turns, and behind `Sealer` for writing them.

    The cache knows nothing of destruction. A writer has just read, under a lock, which key is an owner's now; a reader asks
    truth again about every key, and is only spared the unwrapping.
    """

    def __init__(self, wrapper: KeyWrapper, *, cached: int = CACHED_KEYS) -> None:
        self.wrapper = wrapper
        self._cached = cached
        self._keys: OrderedDict[str, DataKey] = OrderedDict()

    def fetch(
        self, connection: Connection, key_ids: Iterable[str], *, living: bool = False
    ) -> dict[str, DataKey | None]:
        """Keys by id; None for a destroyed one. An id that truth has never seen is left out.

        `living`: the caller knows that they are not destroyed, so what is cached needs no look.

        Raises:
            TransientError, FatalError: as `KeyWrapper.unwrap`.
        """
        found: dict[str, DataKey | None] = {}
        missing: list[str] = []
        for key_id in set(key_ids):
            known = self._keys.get(key_id) if living else None
            if known is None:
                missing.append(key_id)
            else:
                self._keys.move_to_end(key_id)
                found[key_id] = known
        for key_id, row in keys.by_id(connection, missing).items():
            if row.wrapped is None:
                self._keys.pop(key_id, None)
                found[key_id] = None
            else:
                found[key_id] = self._keys.get(key_id) or self._unwrap(row, row.wrapped)
        return found

    def _unwrap(self, row: WrappedKey, wrapped: bytes) -> DataKey:
        key = DataKey(row.key_id, self.wrapper.unwrap(wrapped, row.key_id, row.master))
        self._keys[key.key_id] = key
        if len(self._keys) > self._cached:
            self._keys.popitem(last=False)  # the one that was used longest ago
        return key

    def make(self, subject_key: str) -> tuple[DataKey, WrappedKey]:
        """A new key, in hand and as it is stored. It is remembered when it is first fetched: who made it may roll back."""
        made = DataKey(str(uuid.uuid4()), os.urandom(32))
        master = self.wrapper.current
        return made, WrappedKey(made.key_id, subject_key, self.wrapper.wrap(made.key, made.key_id), master)


@dataclass(frozen=True, slots=True)
class Admission:
    """What intake may do with a group of turns; good until its transaction ends."""

    _owners: dict[str, DataKey]
    _refused: frozenset[str]

    def refuses(self, turn: Turn) -> bool:
        """Its person, conversation or tenant was erased, or the turn with a memory that was made from it."""
        return turn.owner_key not in self._owners or (
            bool(self._refused) and (turn.conversation_key in self._refused or turn.turn_key in self._refused)
        )

    def seal(self, turn: Turn, body: bytes) -> bytes:
        """`body` is `turn.to_bytes()`; the turn must not be refused."""
        key = self._owners[turn.owner_key]
        return frame.seal(turn, body, key.key_id, key.key, key.cipher)


class Sealer:
    """Intake's door."""

    def __init__(self, identities: Identities, data_keys: DataKeys) -> None:
        self.identities = identities
        self.data_keys = data_keys

    def foreseen(self, turns: Sequence[Turn]) -> Questions:
        """What `admit` will ask first; see `sinks.truth.together.foresee`."""
        return suppression.holding(self.identities.holders(turns))

    def admit(self, connection: Connection, turns: Sequence[Turn], now: datetime) -> Admission:
        """Look the group's people up, under a shared lock; those who come for the first time get a key.

        The caller holds the locks of the group's conversations already.
        """
        of = self.identities
        owners = {of.owner(turn.owner_key): (turn.owner_key, of.tenant(turn.tenant)) for turn in turns}
        tenants = {tenant for _owner, tenant in owners.values()}
        known = suppression.held(connection, [*tenants, *owners])
        fresh = [Subject(tenant, "tenant") for tenant in tenants if tenant not in known]
        made: list[WrappedKey] = []
        open_to: dict[str, DataKey] = {}
        wanted: dict[str, str] = {}
        for subject_key, (owner_key, tenant) in owners.items():
            if tenant in known and known[tenant].suppressed:
                continue
            subject = known.get(subject_key)
            if subject is None:
                key, wrapped = self.data_keys.make(subject_key)
                fresh.append(Subject(subject_key, "owner", key_id=key.key_id))
                made.append(wrapped)
                open_to[owner_key] = key
            elif not subject.suppressed and subject.key_id is not None:
                wanted[subject.key_id] = owner_key
        for key_id, found in self.data_keys.fetch(connection, wanted, living=True).items():
            if found is None:
                raise FatalError("an owner's present data key is destroyed although nothing was erased")
            open_to[wanted[key_id]] = found
        keys.add(connection, made, now)
        suppression.add(connection, fresh, now)
        partial = {tenant for tenant in tenants if tenant in known and known[tenant].partial}
        return Admission(open_to, self._refused(connection, turns, partial))

    def _refused(self, connection: Connection, turns: Sequence[Turn], tenants: set[str]) -> frozenset[str]:
        """Keys of conversations and turns of these tenants that must not come back."""
        of = self.identities
        names: dict[str, str] = {}
        for turn in turns if tenants else ():
            if of.tenant(turn.tenant) in tenants:
                names[of.conversation(turn.conversation_key)] = turn.conversation_key
                names[of.turn(turn.turn_key)] = turn.turn_key
        return frozenset(names[key] for key in suppression.suppressed(connection, names)) if names else frozenset()

    def renew(self, connection: Connection, owner_key: str, now: datetime) -> DataKey:
        """A new key for an owner who stays, or who comes back: their turns are sealed with it from now on.

        The earlier keys are left as they are.
        """
        subject_key = self.identities.owner(owner_key)
        before = suppression.take(connection, [subject_key]).get(subject_key)
        key, wrapped = self.data_keys.make(subject_key)
        keys.add(connection, [wrapped], now)
        if before is None:
            suppression.add(connection, [Subject(subject_key, "owner", key_id=key.key_id)], now)
        else:
            suppression.change(connection, replace(before, suppressed=False, key_id=key.key_id, erasure_id=None), now)
        return key
