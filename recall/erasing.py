"""Erasing, as the API asks for it: a port, since the work is done by the stages."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from schemas import OwnerKind

What = Literal["memory", "conversation", "owner", "tenant"]


class Erasures(Protocol):
    """Blocking; run it in a thread."""

    def ask(
        self, tenant: str, scope: What, name: str, owner_kind: OwnerKind, *, by: str, reason: str
    ) -> dict[str, Any]:
        """Cut now; the rest is under way. Raises PoisonError: not there, or erased before."""

    def look(self, tenant: str, erasure_id: str) -> dict[str, Any] | None:
        """How far it is, with the receipt when it is done; None for another tenant's."""
