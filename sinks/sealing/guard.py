"""Sinks, sealing: the suppression list as the stages behind intake ask it: for what is under way when somebody is erased."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from sinks.sealing.identity import Identities
from sinks.truth import suppression
from sinks.truth.together import Questions


@dataclass(frozen=True, slots=True)
class Named:
    """Whom and what a message is about; keys as `schemas` computes them."""

    tenant: str
    owner_key: str
    conversation_key: str | None = None
    turn_key: str | None = None


class Guard:
    """Answers hold until the caller's transaction ends: the rows that an erasure would change are held shared."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities

    def foreseen(self, named: Sequence[Named]) -> Questions:
        """What `refuses` will ask; see `sinks.truth.together.foresee`."""
        return suppression.holding(self.identities.holders(named))

    def refuses(self, connection: Connection, named: Sequence[Named]) -> list[bool]:
        """Which of these must leave nothing behind."""
        of = self.identities
        tenants = {item.tenant: of.tenant(item.tenant) for item in named}
        owners = {item.owner_key: of.owner(item.owner_key) for item in named}
        held = suppression.held(connection, [*tenants.values(), *owners.values()]) if named else {}
        gone = {key for key, subject in held.items() if subject.suppressed}
        partial = {name for name, key in tenants.items() if key in held and held[key].partial}
        inner = [item for item in named if item.tenant in partial]
        names = {of.conversation(item.conversation_key) for item in inner if item.conversation_key is not None}
        names |= {of.turn(item.turn_key) for item in inner if item.turn_key is not None}
        gone |= suppression.suppressed(connection, names)
        return [
            tenants[item.tenant] in gone
            or owners[item.owner_key] in gone
            or (item.conversation_key is not None and of.conversation(item.conversation_key) in gone)
            or (item.turn_key is not None and of.turn(item.turn_key) in gone)
            for item in named
        ]
