"""Portability, importing: a file into a running deployment, looked at whole before the first message is sent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from processors.access import OwnerRef
from processors.exceptions import PoisonError
from processors.policy import PolicyGate
from sinks.truth.outbox import Outgoing
from streams.portability.reading import Checked, check, parts
from streams.portability.renaming import Renaming
from streams.portability.screening import Screen
from streams.portability.sending import Orders, Report, Target
from streams.portability.signing import Signer
from streams.producer import EventProducer
from streams.settings import Settings

_CHUNK = 200
"""Messages whose acknowledgement is waited for together: at most 60 MB of them."""


class Import:
    """One memriver export on its way into this deployment.

    `tenant` and `as_owner` say whose the memories will be; without `as_owner` they stay whose they were, and the export
    must be of `tenant`. `origin` is another deployment's hash key, for an export that it signed. `with_turns` stores turns
    that were judged there; they are not in this deployment's log, so a replay makes nothing of them.

    Raises:
        DamagedExport: the file is not whole.
        PoisonError: of another tenant; signed by a key that is not `origin`, though one was given.
    """

    def __init__(
        self,
        path: Path,
        *,
        tenant: str,
        as_owner: OwnerRef | None,
        gate: PolicyGate,
        signer: Signer,
        origin: Signer | None,
        now: datetime,
        by: str,
        with_turns: bool = False,
    ) -> None:
        self._path = path
        self.checked: Checked = check(path, (signer,) if origin is None else (signer, origin))
        header, trailer = self.checked.header, self.checked.trailer
        if origin is not None and trailer.key_id != origin.key_id:
            raise PoisonError("wrong_key", "the export was not signed with the key that was given")
        was = OwnerRef(header.owner_kind, header.owner)
        if as_owner is None and header.tenant != tenant:
            raise PoisonError(
                "foreign_tenant",
                "the export is of another tenant; name that tenant with --tenant, or a new owner with --as-owner",
            )
        self.target = Target(tenant, as_owner or was)
        same = header.tenant == tenant and self.target.owner == was
        self._renaming = None if same else Renaming(was, tenant, self.target.owner)
        self._screen = Screen(gate, vouched=self.checked.vouched)
        self._by, self._now, self._with_turns = by, now, with_turns
        # Everything once without sending: what cannot be sent must not stop half way.
        self.report: Report = Report()
        for _message in self.messages():
            pass

    def messages(self) -> Iterator[Outgoing]:
        """All messages, in order; the same ones each time."""
        orders = Orders(
            self.target,
            self._screen,
            by=self._by,
            now=self._now,
            renaming=self._renaming,
            with_turns=self._with_turns,
        )
        self.report = orders.report
        yield from orders.messages(parts(self._path))


async def send(
    producer: EventProducer, messages: Iterable[Outgoing], progress: Callable[[int], None] = lambda _count: None
) -> None:
    """Publish in order; `progress` is told how many more have been acknowledged.

    Raises:
        TransientError: the broker is away. What was sent stays sent; sending again changes nothing.
    """
    chunk: list[Outgoing] = []
    for message in messages:
        chunk.append(message)
        if len(chunk) >= _CHUNK:
            await producer.publish(chunk)
            progress(len(chunk))
            chunk = []
    await producer.publish(chunk)
    progress(len(chunk))


@asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[EventProducer]:
    """A producer for as long as it is needed."""
    producer = EventProducer(settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


def write_whole(path: Path, lines: Iterable[bytes]) -> int:
    """Write a file that is there whole or not at all; returns its bytes. It holds somebody's memories: nobody else reads it."""
    scratch = path.with_name(f".{path.name}.part")
    written = 0
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for line in lines:
                written += file.write(line)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return written
