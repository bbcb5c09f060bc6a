"""Sinks, vectors: the name under which a Qdrant server knows the live collection; for people and tools that look at it.

memriver itself goes by truth, never by the alias.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Aliased(Protocol):
    """A store on a server that knows aliases."""

    def take_alias(self, alias: str) -> None:
        """Let `alias` name this store's collection, in one step."""


def point_alias(store: object, alias: str) -> None:
    """Let `alias` name the collection of this store if its server knows aliases; nothing otherwise.

    Raises:
        TransientError, FatalError: the server is away or refuses.
    """
    if isinstance(store, Aliased):
        store.take_alias(alias)
