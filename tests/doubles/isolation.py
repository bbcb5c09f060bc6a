"""Tests, doubles: tenants with the same people in them, keys with random grants, and what each may see, by the book.

What may be seen is worked out from the grants as they were written, without the code under test.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from processors.access import PrincipalKind, Scope
from schemas import Command, Memory, OwnerKind, Status
from sinks.truth import turns
from sinks.truth.outbox import Outgoing
from sinks.truth.tables import reviews
from sinks.truth.turns import Conversation
from tests.doubles.house import House, said
from tests.doubles.records import turn, turn_row

OWNERS = (
    ("user", "ann"),
    ("user", "Ann"),
    ("user", "ann/x"),
    ("user", "an%2Fn"),
    ("user", "*"),
    ("user", "a_n"),
    ("org", "ann"),
)
SEGMENTS = ("profile", "profiles", "preferences")
MARK = re.compile(r"mark-\d+-")
HOLDERS = 14


@dataclass
class Planted:
    """A memory and where it lies; `memory` as it stands in truth."""

    mark: str
    tenant: str
    kind: str
    owner: str
    segment: str
    memory: Memory


@dataclass(frozen=True)
class Spoken:
    """A turn that nothing was extracted from, and who else speaks in its conversation."""

    mark: str
    tenant: str
    owner: str
    conversation: str
    people: tuple[str, ...]


@dataclass(frozen=True)
class Holder:
    """A key, with its grants as they were written: (kind, owner or None, segment)."""

    secret: str
    tenant: str
    kind: PrincipalKind
    name: str
    scopes: frozenset[Scope]
    grants: tuple[tuple[str, str | None, str], ...]

    def may(self, scope: Scope, planted: Planted) -> bool:
        """By the book."""
        return self.reaches(scope, planted.tenant, planted.kind, planted.owner, planted.segment)

    def may_all(self, people: Iterable[str], tenant: str) -> bool:
        """Whether everything of these people may be read, as for their raw words."""
        return all(self.reaches(Scope.READ, tenant, "user", name, None) for name in people)

    def reaches(self, scope: Scope, tenant: str, kind: str, owner: str, segment: str | None) -> bool:
        """A segment of an owner, or None: all of them."""
        if scope not in self.scopes or tenant != self.tenant:
            return False
        own = "user" if self.kind is PrincipalKind.PERSON else "agent"
        if (kind, owner) == (own, self.name):
            return True
        return any(
            kind == granted and (name is None or owner == name) and part in ("", segment)
            for granted, name, part in self.grants
        )


class World:
    """Three tenants of a number of their own; several worlds share one house."""

    def __init__(self, house: House, seed: int) -> None:
        self.random = random.Random(seed)
        self.house = house
        self.tenants = (f"acme{seed}", f"Acme{seed}", f"globex{seed}")
        self._number = 1_000 * seed
        self.planted = self._plant()
        self.spoken = self._speak()
        self.reviews: list[str] = []
        self.holders: list[Holder] = []
        for number in range(HOLDERS):
            self.holders.append(self._holder(number))
        self.look_again()

    def check(self, holder: Holder, text: str, what: str, *, recalled: bool = False) -> None:
        """Everything that shows in `text` was granted, and stands; what waits for a reviewer shows to reviewers only."""
        for mark in set(MARK.findall(text)):
            turn_of = next((item for item in self.spoken if item.mark == mark), None)
            if turn_of is not None:
                assert holder.may_all([turn_of.owner], turn_of.tenant), f"{what}: {holder} heard {turn_of}"
                continue
            planted = next((item for item in self.planted if item.mark == mark), None)
            assert planted is not None, f"{what}: {mark} is of another world"
            status = planted.memory.status
            seen = holder.may(Scope.READ, planted) or holder.may(Scope.REVIEW, planted)
            assert seen, f"{what}: {holder} saw {planted}"
            assert status is not Status.DELETED, f"{what}: {mark} was deleted"
            if status in (Status.QUARANTINED, Status.PENDING):
                assert holder.may(Scope.REVIEW, planted), f"{what}: {holder} saw the quarantined {planted}"
            if recalled:
                assert status is Status.ACTIVE, f"{what}: {mark} is {status}"

    def check_commands(self, holder: Holder, sent: Sequence[Outgoing], what: str) -> None:
        """Whatever was ordered was ordered about memories or owners that the holder may change."""
        for message in sent:
            if message.topic != "commands":
                continue
            command = Command.from_bytes(message.payload or b"")
            assert command.tenant == holder.tenant, what
            scopes = {"decide_review": Scope.REVIEW, "report_conflict": Scope.READ}
            scope = scopes.get(command.kind.value, Scope.WRITE)
            about = [item for item in self.planted if item.memory.id == command.memory_id]
            if not about:
                about = [
                    item
                    for item in self.planted
                    if (item.tenant, item.kind, item.owner) == (command.tenant, command.owner_kind.value, command.owner)
                ]
            assert any(holder.may(scope, item) for item in about), f"{what}: {holder} ordered {command.kind}"

    def look_again(self) -> None:
        """After the resolver has worked: what was planted, as it stands now."""
        for planted in self.planted:
            planted.memory = self.house.memory(planted.memory.id)
        with self.house.truth.reading() as connection:
            # Of whichever tenant.
            query = select(reviews.c.review_id).order_by(reviews.c.review_id)
            self.reviews = list(connection.execute(query).scalars())

    def spell(self, grant: tuple[str, str | None, str]) -> str:
        """A grant as it is written down."""
        kind, owner, segment = grant
        name = "*" if owner is None else owner.replace("%", "%25").replace("/", "%2F").replace("*", "%2A")
        return "/".join(part for part in (kind, name, segment) if part)

    def _plant(self) -> list[Planted]:
        claims, places = [], []
        for tenant in self.tenants:
            for kind, owner in OWNERS:
                for segment in SEGMENTS:
                    self._number += 1
                    mark = f"mark-{self._number}-"
                    fields: dict[str, Any] = {"tenant": tenant, "owner_kind": OwnerKind(kind), "owner": owner}
                    if self._number % 5 == 0:
                        fields |= {"decision": "quarantine", "decision_reasons": (mark,)}
                    attribute = f"thing_{self._number}"
                    claims.append(said(self._number, attribute, mark, f"{mark} lives", segment=segment, **fields))
                    places.append((mark, tenant, kind, owner, segment))
        memories = self.house.learn(*claims)
        return [Planted(*place, memory) for place, memory in zip(places, memories, strict=True)]

    def _speak(self) -> list[Spoken]:
        """In each tenant: ann alone, the others with somebody beside them."""
        users = [owner for kind, owner in OWNERS if kind == "user"]
        made: list[Spoken] = []
        for tenant in self.tenants:
            for number, people in enumerate([users[:1], users[:2], users[2:4], users[3:6]]):
                conversation = f"talk-{number}"
                rows = []
                for name in people:
                    self._number += 1
                    mark = f"mark-{self._number}-"
                    made.append(Spoken(mark, tenant, name, conversation, tuple(people)))
                    fields = {"tenant": tenant, "user_id": name, "conversation_id": conversation}
                    rows.append(turn(len(rows) + 1, text=f"{mark} who lives where", **fields))
                row = Conversation(rows[0].conversation_key, tenant, conversation, rows[-1].sent_at)
                row.turn_count = len(rows)

                def write(connection: Any, rows: Any = rows, row: Any = row) -> None:
                    turns.save_conversations(connection, [row])
                    turns.insert_turns(connection, [turn_row(item) for item in rows])

                self.house.truth.run(write)
        return made

    def _holder(self, number: int) -> Holder:
        pick = self.random
        scopes = frozenset(scope for scope in Scope if pick.random() < 0.8)
        grants: list[tuple[str, str | None, str]] = []
        for _ in range(pick.randrange(1, 6)):
            kind, owner = pick.choice(OWNERS)
            every = pick.random() < 0.2
            segment = "" if every or pick.random() < 0.5 else pick.choice(SEGMENTS)
            grants.append((kind, None if every else owner, segment))
        holds = pick.choice(list(PrincipalKind))
        name = pick.choice(["ann", "Ann", "ann/x", "a_n"]) if holds is PrincipalKind.PERSON else f"agent-{number}"
        tenant = pick.choice(self.tenants)
        # A principal that is there twice would have both keys' grants; the book knows of one.
        if any((held.tenant, held.name) == (tenant, name) for held in self.holders):
            name = f"p{number}"
        spelt = tuple(self.spell(grant) for grant in grants)
        secret = self.house.key(name, *spelt, kind=holds, tenant=tenant, scopes=scopes)
        return Holder(secret, tenant, holds, name, scopes, tuple(grants))
