"""Erasing, composed: from a runtime to its clock, and from settings to what a command or a request needs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recall.erasing import What
from schemas import OwnerKind
from sinks.truth import Truth, erasure, make_engine, suppression
from sinks.truth.audit import AuditChain, Link
from sinks.truth.erasure import Erasure, Scope
from sinks.vectors.collections import Collections
from streams.erasing.clock import ErasureClock
from streams.erasing.logs import Logs
from streams.erasing.looking import Looking
from streams.erasing.opening import Opening, Wish
from streams.erasing.receipts import checked
from streams.erasing.work import Eraser, Parts
from streams.sealing import make_chain, make_identities, make_sealer
from streams.settings import Settings
from streams.vectors import open_collections

if TYPE_CHECKING:
    from streams.runtime import Runtime


def make_eraser(runtime: Runtime, now: Callable[[], datetime]) -> Eraser:
    """Who carries erasures out in this process."""
    return Eraser(
        Parts(
            settings=runtime.settings,
            truth=runtime.truth,
            delivery=runtime.delivery,
            collections=runtime.collections,
            sealer=make_sealer(runtime.settings),
            chain=make_chain(runtime.settings),
            metrics=runtime.metrics,
            now=now,
            holder=f"{socket.gethostname()[:40]}:{os.getpid()}",
        )
    )


def make_erasure_clock(runtime: Runtime, now: Callable[[], datetime]) -> ErasureClock:
    """The clock of this process."""
    return ErasureClock(make_eraser(runtime, now), runtime.delivery, runtime.truth, runtime.metrics)


def make_opening(settings: Settings, truth: Truth) -> Opening:
    """Where erasures are asked for."""
    return Opening(truth, make_sealer(settings), make_chain(settings))


class AskedHere:
    """`recall.erasing.Erasures` on these settings."""

    def __init__(self, settings: Settings, truth: Truth, now: Callable[[], datetime]) -> None:
        self._opening = make_opening(settings, truth)
        self._of = make_identities(settings)
        self._truth = truth
        self._now = now

    def ask(
        self, tenant: str, scope: What, name: str, owner_kind: OwnerKind, *, by: str, reason: str
    ) -> dict[str, Any]:
        """As the port says."""
        item = self._opening.open(Wish(Scope(scope), tenant, name, owner_kind), by=by, reason=reason, now=self._now())
        return _view(item)

    def look(self, tenant: str, erasure_id: str) -> dict[str, Any] | None:
        """As the port says."""
        with self._truth.reading() as connection:
            item = erasure.get(connection, erasure_id)
        return _view(item) if item is not None and item.tenant_key == self._of.tenant(tenant) else None


def _view(item: Erasure) -> dict[str, Any]:
    return {
        "id": item.erasure_id,
        "scope": item.scope.value,
        "status": item.status,
        "asked_at": item.opened_at,
        "done_at": item.done_at,
        "steps": list(item.steps),
        "receipt": dict(item.receipt) if item.receipt is not None else None,
    }


async def verify(
    settings: Settings, raw: bytes, *, topics: bool, broker: bool, collections: Collections | None = None
) -> dict[str, Any]:
    """The receipt, the chain and every store, once more: `faults` in words, `remaining` counts by store.

    `topics`: also the messages in topics that age out. `broker`: there is one. `collections`: opened already.

    Raises:
        PoisonError: no receipt of this deployment, or a damaged one.
        FatalError, TransientError: a store cannot be looked at.
    """
    chain, sealer = make_chain(settings), make_sealer(settings)
    receipt, link = checked(chain, raw)
    truth = Truth(make_engine(settings.database_url.get_secret_value()))
    held = collections or open_collections(settings, truth)
    try:
        faults, item = await asyncio.to_thread(_in_chain, truth, chain, receipt, link)
        looking = Looking(truth, sealer, Logs(settings) if broker else None, held)
        remaining = await looking.look(item) if item is not None else {}
        if item is not None and topics:
            remaining |= {f"topic:{name}": number for name, number in (await looking.transit(item)).items()}
        return {
            "erasure_id": receipt["erasure_id"],
            "faults": faults,
            "remaining": remaining,
            # Of a lifted subject nothing is looked for: what is there now is a new beginning.
            "lifted": await asyncio.to_thread(_is_lifted, truth, receipt["subject"], receipt["erasure_id"]),
        }
    finally:
        if collections is None:
            await asyncio.to_thread(held.close)
        truth.close()


def _in_chain(truth: Truth, chain: AuditChain, receipt: dict[str, Any], link: Link) -> tuple[list[str], Erasure | None]:
    with truth.reading() as connection:
        faults = list(chain.faults(connection))
        if not chain.holds(connection, link):
            faults.append("the audit chain does not have this receipt: its end was cut off, or rewritten")
        item = erasure.get(connection, receipt["erasure_id"])
    if item is None:
        faults.append("there is no such erasure here: is it the database of this receipt?")
    return faults, item


def _is_lifted(truth: Truth, subject_key: str, erasure_id: str) -> bool:
    with truth.reading() as connection:
        subject = suppression.look(connection, [subject_key]).get(subject_key)
    return subject is None or subject.erasure_id != erasure_id
