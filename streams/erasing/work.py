"""Erasing, the work: step after step, each recorded when it is done, so that a death anywhere repeats one step and no more.

ordered     the owners' single writers are told (`commands`)
resolved    they have: ledger, memories, versions are gone, and tombstones are out behind the last events
truth       everything else in the database
vectors     tombstones in every collection; caches of this process
keys        data keys destroyed; of somebody who stays, after what stays was sealed anew
logs        last events that came late are ended; transit topics are cut off, if the deployment wants that
verified    everything was looked at again, and nothing was there
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from schemas import Turn
from sinks.sealing import Sealer
from sinks.sealing.frame import read_frame, seal
from sinks.sealing.sealer import DataKey
from sinks.truth import Truth, erasure, keys, outbox, suppression
from sinks.truth.audit import AuditChain
from sinks.truth.erasure import Erasure, Scope
from sinks.truth.files import forget_bytes
from sinks.truth.outbox import Outgoing
from sinks.truth.tables import turns
from sinks.vectors import Tombstone
from sinks.vectors.collections import Collections
from streams.delivery import Delivery
from streams.erasing.logs import READERS, Logs
from streams.erasing.looking import Looking, living, pages, subject_keys
from streams.erasing.receipts import make_receipt
from streams.metrics import Metrics
from streams.settings import Settings
from streams.stages.erasing import order_of

log = logging.getLogger("memriver.erasure")

_LEASE = timedelta(minutes=2)
_PAGE = 500
_SETTLE_SECONDS = 2.5
"""Before the look back: servers of the API write what was read, and answers for repetition, a second later."""
_LOOKS = 5
"""Times that a look after the work may find something, written by whoever was at work at the cut, before we ask for help."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the work is done with. `holder` names this process among those that might do it."""

    settings: Settings
    truth: Truth
    delivery: Delivery
    collections: Collections
    sealer: Sealer
    chain: AuditChain
    metrics: Metrics
    now: Callable[[], datetime]
    holder: str


class Eraser:
    """Takes the oldest open erasure and does what can be done of it now."""

    def __init__(self, parts: Parts) -> None:
        self._in = parts
        self._logs = Logs(parts.settings)
        self._looking = Looking(parts.truth, parts.sealer, self._logs, parts.collections)

    async def step(self) -> bool:
        """One step of one erasure; False when there is nothing to do, or somebody has to be waited for.

        Raises:
            TransientError: a server is away; the step is done again.
        """
        parts = self._in
        item = await asyncio.to_thread(
            parts.truth.run, lambda connection: erasure.claim(connection, parts.holder, parts.now(), _LEASE)
        )
        if item is None:
            return False
        for name, work in (
            ("ordered", self._order),
            ("resolved", self._resolved),
            ("truth", self._truth),
            ("vectors", self._vectors),
            ("keys", self._keys),
            ("logs", self._tend_logs),
            ("verified", self._verify),
        ):
            if name not in item.steps:
                done = await work(item)
                if done:
                    log.info("erasure %s: %s", item.erasure_id, name)
                return done
        await asyncio.to_thread(parts.truth.run, lambda connection: self._close(connection, item))
        # What was meant stood in the row until now.
        await asyncio.to_thread(forget_bytes, parts.truth)
        parts.metrics.erasure_seconds.observe((parts.now() - item.opened_at).total_seconds())
        log.info("erasure %s: done", item.erasure_id)
        return True

    async def _order(self, item: Erasure) -> bool:
        assert item.target is not None  # an open one has it
        target = item.target

        def work(connection: Connection, now: datetime) -> list[Outgoing]:
            orders = [order_of(item, target.tenant, kind, owner, now) for kind, owner in target.owners]
            erasure.step(connection, item.erasure_id, "ordered", [order.command_id for order in orders])
            return [Outgoing("commands", order.owner_key, order.owner_key, order.to_bytes()) for order in orders]

        await self._in.delivery.transact("erasure", work)
        return True

    async def _resolved(self, item: Erasure) -> bool:
        """And where the transit topics ended then: what is meant, the orders too, lies before it."""
        wanted = set(item.steps["ordered"])

        def look() -> bool:
            with self._in.truth.reading() as connection:
                return outbox.seen(connection, "resolve", wanted) == wanted

        if not await asyncio.to_thread(look):
            return False
        ends = await self._logs.ends()

        def work(connection: Connection) -> bool:
            places = {name: {str(part): end for part, end in at.items()} for name, at in ends.items()}
            erasure.step(connection, item.erasure_id, "resolved", places)
            return True

        return await self._in_thread(work)

    async def _truth(self, item: Erasure) -> bool:
        def work(connection: Connection) -> bool:
            gone = self._looking.traces(connection, item).erase(connection)
            erasure.count(connection, item.erasure_id, gone)
            erasure.step(connection, item.erasure_id, "truth", sum(gone.values()))
            return True

        # Another database is another transaction; repeated, it finds nothing more.
        beside = await asyncio.to_thread(self._beside, item)
        if beside:
            await self._in_thread(lambda connection: self._count(connection, item, beside))
        return await self._in_thread(work)

    def _count(self, connection: Connection, item: Erasure, found: dict[str, int]) -> bool:
        erasure.count(connection, item.erasure_id, found)
        return True

    def _beside(self, item: Erasure) -> dict[str, int]:
        """A schema that a replay made, or left for going back: nobody works on it but a replay, which lets nobody in."""
        with self._looking.beside() as other:
            if other is None:
                return {}
            with self._in.truth.reading() as connection:
                eye = self._looking.traces(connection, item)
            gone = other.run(eye.erase_ledger)
            for store, number in other.run(eye.erase).items():
                gone[store] = gone.get(store, 0) + number
            forget_bytes(other)
            return {f"beside:{store}": number for store, number in gone.items()}

    async def _vectors(self, item: Erasure) -> bool:
        def work() -> dict[str, int]:
            with self._in.truth.reading() as connection:
                buried = erasure.buried_by(connection, item.erasure_id)
            found: dict[str, int] = {}
            with self._in.collections.every() as held:
                for collection in held:
                    store = collection.store
                    found[f"vectors:{collection.name}"] = len(list(living(store, buried)))
                    for part in pages(buried):
                        store.delete([Tombstone(memory_id, version) for memory_id, version in part])
                    compact = getattr(store, "compact", None)
                    if compact is not None:
                        compact()
            self._in.collections.forget_texts()
            return found

        found = await asyncio.to_thread(work)

        def note(connection: Connection) -> bool:
            erasure.count(connection, item.erasure_id, found)
            erasure.step(connection, item.erasure_id, "vectors", sum(found.values()))
            return True

        return await self._in_thread(note)

    async def _keys(self, item: Erasure) -> bool:
        """Of those who are gone: destroy. Of those who stay: a new key, what stays sealed anew with it, then destroy."""
        if item.scope in (Scope.OWNER, Scope.TENANT):

            def work(connection: Connection) -> bool:
                mine = subject_keys(connection, item.erasure_id, "owner")
                return self._destroyed(connection, item, keys.destroy(connection, mine, self._in.now()))

            return await self._in_thread(work)
        assert item.target is not None  # an open one has it
        gone = 0
        for owner_key in item.target.speakers:
            gone += await self._seal_anew(owner_key)
        return await self._in_thread(lambda connection: self._destroyed(connection, item, gone))

    def _destroyed(self, connection: Connection, item: Erasure, gone: int) -> bool:
        erasure.count(connection, item.erasure_id, {"data_keys": gone})
        erasure.step(connection, item.erasure_id, "keys", gone)
        return True

    async def _seal_anew(self, owner_key: str) -> int:
        """Idempotent: a repetition makes one more key and publishes copies, which readers know."""
        parts, subject_key = self._in, self._in.sealer.identities.owner(owner_key)

        def renew(connection: Connection) -> DataKey | None:
            subject = suppression.take(connection, [subject_key]).get(subject_key)
            if subject is None or subject.suppressed:
                return None  # nothing is sealed for them, or they were erased themselves
            return parts.sealer.renew(connection, owner_key, parts.now())

        key = await asyncio.to_thread(parts.truth.run, renew)
        if key is not None:
            last = ""
            while True:
                page = await asyncio.to_thread(self._page, owner_key, last)
                if not page:
                    break
                await parts.delivery.send("erasure", [_sealed(turn, key) for turn in page])
                last = page[-1].turn_key
        but = key.key_id if key is not None else None
        return int(
            await asyncio.to_thread(
                parts.truth.run, lambda connection: keys.destroy(connection, [subject_key], parts.now(), but=but)
            )
        )

    def _page(self, owner_key: str, after: str) -> list[Turn]:
        query = select(turns.c.body).where(turns.c.owner_key == owner_key, turns.c.turn_key > after)
        with self._in.truth.reading() as connection:
            rows = connection.execute(query.order_by(turns.c.turn_key).limit(_PAGE)).scalars()
            return [Turn.from_bytes(body.encode()) for body in rows]

    async def _tend_logs(self, item: Erasure) -> bool:
        parts = self._in
        trimmed = None
        if parts.settings.erasure_trims_topics:
            ends = {name: {int(part): end for part, end in at.items()} for name, at in item.steps["resolved"].items()}
            groups = {name: parts.settings.group(stage) for name, stage in READERS.items()}
            if await self._logs.unread(ends, groups):
                return False
            trimmed = await self._logs.trim(ends)
        mentions = await asyncio.to_thread(self._looking.mentions, item)
        late = await self._logs.events_left(mentions)

        def work(connection: Connection, _now: datetime) -> list[Outgoing]:
            versions = dict(erasure.buried_by(connection, item.erasure_id))
            erasure.count(connection, item.erasure_id, {"memory_updated": len(late)})
            erasure.step(connection, item.erasure_id, "logs", {"trimmed": trimmed, "late_events": len(late)})
            return [
                Outgoing("memory_updated", name, owner_key, None, version=versions.get(name))
                for name, owner_key in late
            ]

        await parts.delivery.transact("erasure", work)
        return True

    async def _verify(self, item: Erasure) -> bool:
        """Look again. What is found was written by whoever was at work at the cut: it goes the same way once more."""
        await asyncio.sleep(_SETTLE_SECONDS)
        await asyncio.to_thread(forget_bytes, self._in.truth)
        left = await self._looking.look(item)
        again = int(item.steps.get("looks", 0)) + 1
        if sum(left.values()):
            if again >= _LOOKS:
                where = ", ".join(f"{number} in {store}" for store, number in left.items() if number)
                log.error("erasure %s: something is still there after %d looks: %s", item.erasure_id, again, where)
            return await self._in_thread(lambda connection: self._again(connection, item, again))

        def work(connection: Connection) -> bool:
            erasure.step(connection, item.erasure_id, "verified", left)
            return True

        return await self._in_thread(work)

    def _again(self, connection: Connection, item: Erasure, looks: int) -> bool:
        erasure.step(connection, item.erasure_id, "looks", looks)
        erasure.unstep(connection, item.erasure_id, ("truth", "vectors", "logs"))
        return looks < _LOOKS

    async def let_go(self) -> None:
        """Somebody else may try: this process cannot reach what it needs."""
        holder = self._in.holder
        await asyncio.to_thread(self._in.truth.run, lambda connection: erasure.let_go(connection, holder))

    def _close(self, connection: Connection, item: Erasure) -> None:
        now = self._in.now()
        counts = erasure.counts(connection, item.erasure_id)
        receipt = make_receipt(connection, self._in.chain, item, counts, self._logs.ages_out(item.opened_at), now)
        erasure.close(connection, item.erasure_id, receipt, now)

    async def _in_thread(self, work: Callable[[Connection], bool]) -> bool:
        return await asyncio.to_thread(self._in.truth.run, work)


def _sealed(turn: Turn, key: DataKey) -> Outgoing:
    raw = seal(turn, turn.to_bytes(), key.key_id, key.key, key.cipher)
    return Outgoing("turns.sealed", read_frame(raw).message_id.hex(), turn.conversation_key, raw)
