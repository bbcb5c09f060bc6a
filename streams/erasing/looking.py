"""Erasing, looking: whether anything is still there, in every store; the same eye during an erasure and years later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select

from sinks.sealing import Sealer
from sinks.sealing.mentions import Mentions
from sinks.truth import Truth, erasure, keys
from sinks.truth.beside import Beside
from sinks.truth.erasure import Erasure, Scope
from sinks.truth.tables import subjects
from sinks.truth.traces import Traces
from sinks.vectors.collections import Collections
from sinks.vectors.protocol import TOMBSTONE, VectorStore
from streams.erasing.logs import Logs

_PAGE = 500


class Looking:
    """Reads only. `logs` None: there is no broker that could hold anything (a directory on which nothing runs)."""

    def __init__(self, truth: Truth, sealer: Sealer, logs: Logs | None, collections: Collections) -> None:
        self._truth = truth
        self._sealer = sealer
        self._logs = logs
        self._collections = collections

    async def look(self, item: Erasure) -> dict[str, int]:
        """What is still there, per store: tables, collections, data keys, last events. All of them are named.

        Raises:
            TransientError, FatalError: a store cannot be looked at; then nothing is said of the others either.
        """
        found = await asyncio.to_thread(self._stores, item)
        if self._logs is not None:
            mentions = await asyncio.to_thread(self.mentions, item)
            found["memory_updated"] = len(await self._logs.events_left(mentions))
        return found

    async def transit(self, item: Erasure) -> dict[str, int]:
        """Messages in the topics that age out by themselves."""
        if self._logs is None:
            return {}
        return await self._logs.traces(await asyncio.to_thread(self.mentions, item))

    def _stores(self, item: Erasure) -> dict[str, int]:
        with self._truth.reading() as connection:
            eye = self.traces(connection, item)
            found = eye.look(connection)
            buried = erasure.buried_by(connection, item.erasure_id)
            found["data_keys"] = len(keys.living(connection, subject_keys(connection, item.erasure_id, "owner")))
        with self.beside() as other:
            if other is not None:
                with other.reading() as connection:
                    found |= {f"beside:{store}": number for store, number in eye.look(connection).items()}
        mentions = self.mentions(item)
        with self._collections.every() as held:
            for collection in held:
                left = set(living(collection.store, buried))
                if item.scope in (Scope.OWNER, Scope.TENANT):
                    left |= {
                        point.id
                        for point in collection.store.scroll()
                        if point.status != TOMBSTONE and mentions.owner(str(point.payload.get("owner_key", "")))
                    }
                found[f"vectors:{collection.name}"] = len(left)
        return found

    @contextmanager
    def beside(self) -> Iterator[Truth | None]:
        """The schema that a replay made or left beside the live one, if there is one."""
        place = Beside(self._truth.engine.url.render_as_string(hide_password=False))
        if not place.exists():
            yield None
            return
        other = place.open()
        try:
            yield other
        finally:
            other.close()

    def traces(self, connection: Connection, item: Erasure) -> Traces:
        """The eye of this erasure, for the database."""
        person: list[str] = []
        if item.target is not None and item.scope is Scope.OWNER:
            person = [f"{'person' if kind == 'user' else kind}:{owner}" for kind, owner in item.target.owners]
        return Traces(item.scope, self._mentions(connection, item), person)

    def mentions(self, item: Erasure) -> Mentions:
        """Tells what a message is about."""
        with self._truth.reading() as connection:
            return self._mentions(connection, item)

    def _mentions(self, connection: Connection, item: Erasure) -> Mentions:
        """By hashes, and while it is under way also by the plain words of who is meant."""
        names = subject_keys(connection, item.erasure_id)
        whole = item.scope in (Scope.OWNER, Scope.TENANT)
        # Of a cell that was folded anew the same ids live on.
        ids = [memory_id for memory_id, _version in erasure.buried_by(connection, item.erasure_id)] if whole else []
        needles: list[bytes] = []
        if item.target is not None and item.scope is Scope.OWNER:
            needles = [owner.encode() for _kind, owner in item.target.owners]
        elif item.target is not None and item.target.conversation_id is not None:
            needles = [item.target.conversation_id.encode()]
        return Mentions(self._sealer.identities, names, ids, needles)


def subject_keys(connection: Connection, erasure_id: str, kind: str | None = None) -> list[str]:
    """The keyed hashes that an erasure suppressed, and that nobody has lifted since."""
    query = select(subjects.c.subject_key).where(subjects.c.erasure_id == erasure_id)
    if kind is not None:
        query = query.where(subjects.c.kind == kind)
    return list(connection.execute(query).scalars())


def living(store: VectorStore, buried: list[tuple[str, int]]) -> Iterator[str]:
    """Points with content, of a version that is erased. One that was made anew has a higher version."""
    for part in pages(buried):
        versions = dict(part)
        for point in store.get(list(versions)):
            if point.status != TOMBSTONE and point.version <= versions[point.id]:
                yield point.id


def pages(buried: list[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """In lists that a store takes at once."""
    for start in range(0, len(buried), _PAGE):
        yield buried[start : start + _PAGE]
