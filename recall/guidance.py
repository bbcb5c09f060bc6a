"""Recall, guidance: the approved policy hints of a tenant, read from truth now and then."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from sqlalchemy import Connection

from processors.hints import POLICY_OWNER
from processors.recall.guidance import Guidance
from schemas import OwnerKind, digest
from sinks.truth import reading

_FRESH = timedelta(seconds=30)
"""How long a hint that was just approved, or taken back, may not be followed yet; a recall must not cost a statement more."""


class ApprovedHints:
    """Guidance by tenant; may be asked from several threads."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[datetime, Guidance]] = {}
        self._lock = threading.Lock()

    def __call__(self, connection: Connection, tenant: str, now: datetime) -> Guidance:
        """What stands approved; at most half a minute old."""
        with self._lock:
            held = self._held.get(tenant)
        if held is not None and abs(now - held[0]) < _FRESH:
            return held[1]
        approved = reading.standing_of(connection, digest(tenant, OwnerKind.AGENT, POLICY_OWNER))
        found = Guidance.of(approved)
        with self._lock:
            self._held[tenant] = (now, found)
        return found
