"""Erasing, the beginning: the cut. One transaction after which nothing of what is meant comes in any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, select, union

from processors.exceptions import PoisonError
from processors.resolution import Cell
from schemas import OwnerKind, digest, new_id
from sinks.sealing import Identities, Sealer
from sinks.truth import Truth, erasure, ledger, suppression
from sinks.truth.audit import AuditChain
from sinks.truth.erasure import Erasure, Scope, Target
from sinks.truth.sql import chunks, exactly
from sinks.truth.suppression import Subject
from sinks.truth.tables import claims, feedback, memories, owners, turns
from sinks.truth.turns import lock_conversations
from streams.stages.erasing import claims_of_memory


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be erased: `name` is a memory's, a conversation's or an owner's id, or empty for a whole tenant."""

    scope: Scope
    tenant: str
    name: str = ""
    owner_kind: OwnerKind = OwnerKind.USER


class NothingToErase(PoisonError):
    """There is no such memory, conversation, owner or tenant; another tenant's looks the same."""

    def __init__(self, scope: Scope) -> None:
        super().__init__("not_found", f"there is no such {scope.value}; nothing was changed")


class Opening:
    """Opens erasures, and lets a person begin anew."""

    def __init__(self, truth: Truth, sealer: Sealer, chain: AuditChain) -> None:
        self._truth = truth
        self._sealer = sealer
        self._of: Identities = sealer.identities
        self._chain = chain

    def open(self, wish: Wish, *, by: str, reason: str, now: datetime) -> Erasure:
        """Cut. What was accepted before is going to be erased, what comes after is refused.

        Asking again while it is under way returns the same erasure.

        Raises:
            NothingToErase: nothing of that name.
            PoisonError: it was erased before; the receipt's id is in the message.
        """
        return self._truth.run(lambda connection: self._open(connection, wish, by, reason, now))

    def _open(self, connection: Connection, wish: Wish, by: str, reason: str, now: datetime) -> Erasure:
        of, tenant_key = self._of, self._of.tenant(wish.tenant)
        # The conversation's row first, then the subjects': the order in which intake takes them.
        if wish.scope is Scope.CONVERSATION:
            lock_conversations(connection, [digest(wish.tenant, wish.name)])
        known = suppression.take(connection, [tenant_key, self._subject(wish)])
        subject_key = self._subject(wish)
        under_way = erasure.open_of(connection, subject_key)
        if under_way is not None:
            return under_way
        if subject_key in known and known[subject_key].suppressed:
            raise PoisonError("erased", f"this was erased before, by {known[subject_key].erasure_id}")
        target, others = self._target(connection, wish)
        item = Erasure(
            erasure_id=new_id("erasure", subject_key, now.isoformat()),
            scope=wish.scope,
            subject_key=subject_key,
            tenant_key=tenant_key,
            status="open",
            opened_at=now,
            target=target,
        )
        if tenant_key not in known:
            suppression.add(connection, [Subject(tenant_key, "tenant")], now)
            known[tenant_key] = Subject(tenant_key, "tenant")
        if wish.scope in (Scope.MEMORY, Scope.CONVERSATION):
            suppression.change(connection, replace(known[tenant_key], partial=True), now)
        subjects = {subject_key: wish.scope.value} | others
        known |= suppression.take(connection, [key for key in subjects if key not in known])
        for key, kind in sorted(subjects.items()):
            row = Subject(key, kind, suppressed=True, erasure_id=item.erasure_id)  # type: ignore[arg-type]  # a Scope's value
            if key in known:
                suppression.change(connection, row, now)
            else:
                suppression.add(connection, [row], now)
        erasure.open_(connection, item)
        entry = {"erasure_id": item.erasure_id, "scope": item.scope.value, "subject": subject_key}
        self._chain.append(connection, "erasure_opened", entry | {"by": of.owner(by), "reason": reason[:200]}, now)
        return item

    def lift(self, wish: Wish, *, by: str, now: datetime) -> None:
        """A person (or a conversation) may come back, on purpose: a new beginning with a new key. What is gone stays gone.

        Raises:
            PoisonError: it was never erased, or its erasure is not done yet, or it is not of a kind that comes back.
        """
        if wish.scope not in (Scope.OWNER, Scope.CONVERSATION):
            raise PoisonError("invalid_option", "an owner or a conversation can begin anew")

        def work(connection: Connection) -> None:
            subject_key = self._subject(wish)
            subject = suppression.take(connection, [subject_key]).get(subject_key)
            if subject is None or not subject.suppressed:
                raise PoisonError("not_found", f"no erased {wish.scope.value} has this name")
            if erasure.open_of(connection, subject_key) is not None:
                raise PoisonError("not_done", "its erasure is still under way")
            if wish.scope is Scope.OWNER:
                self._sealer.renew(connection, digest(wish.tenant, wish.owner_kind, wish.name), now)
            else:
                suppression.change(connection, replace(subject, suppressed=False, erasure_id=None), now)
            entry = {"subject": subject_key, "erasure_id": subject.erasure_id, "by": self._of.owner(by)}
            self._chain.append(connection, "erasure_lifted", entry, now)

        self._truth.run(work)

    def _subject(self, wish: Wish) -> str:
        match wish.scope:
            case Scope.OWNER:
                return self._of.owner(digest(wish.tenant, wish.owner_kind, wish.name))
            case Scope.TENANT:
                return self._of.tenant(wish.tenant)
            case Scope.CONVERSATION:
                return self._of.conversation(digest(wish.tenant, wish.name))
            case Scope.MEMORY:
                return self._of.memory(wish.name)

    def _target(self, connection: Connection, wish: Wish) -> tuple[Target, dict[str, str]]:
        """What is meant, and the other subjects that go with it. Raises NothingToErase."""
        match wish.scope:
            case Scope.OWNER:
                return self._owner(connection, wish), {}
            case Scope.TENANT:
                return self._tenant(connection, wish)
            case Scope.CONVERSATION:
                return self._conversation(connection, wish)
            case Scope.MEMORY:
                return self._memory(connection, wish)

    def _owner(self, connection: Connection, wish: Wish) -> Target:
        key = digest(wish.tenant, wish.owner_kind, wish.name)
        known = suppression.look(connection, [self._of.owner(key)])
        tables = (owners, turns, feedback)
        if not known and not any(
            connection.execute(select(table.c.owner_key).where(table.c.owner_key == key).limit(1)).first()
            for table in tables
        ):
            raise NothingToErase(wish.scope)
        return Target(wish.tenant, owners=((wish.owner_kind.value, wish.name),))

    def _tenant(self, connection: Connection, wish: Wish) -> tuple[Target, dict[str, str]]:
        query = select(owners.c.owner_key, owners.c.owner_kind, owners.c.owner)
        rows = connection.execute(query.where(exactly(owners.c.tenant, wish.tenant))).all()
        said = connection.execute(select(turns.c.owner_key).where(exactly(turns.c.tenant, wish.tenant)).distinct())
        keys = {row.owner_key for row in rows} | set(said.scalars())
        tenant_key = self._of.tenant(wish.tenant)
        if not keys and not suppression.look(connection, [tenant_key]):
            raise NothingToErase(wish.scope)
        people = tuple((row.owner_kind, row.owner) for row in rows)
        return Target(wish.tenant, owners=people), {self._of.owner(key): "owner" for key in keys}

    def _conversation(self, connection: Connection, wish: Wish) -> tuple[Target, dict[str, str]]:
        key = digest(wish.tenant, wish.name)
        keys = tuple(
            connection.execute(
                select(turns.c.turn_key).where(turns.c.conversation_key == key).order_by(turns.c.turn_key)
            ).scalars()
        )
        if not keys:
            raise NothingToErase(wish.scope)
        target = Target(
            wish.tenant,
            owners=self._owners_of(connection, keys),
            conversation_key=key,
            conversation_id=wish.name,
            turn_keys=keys,
            speakers=_speakers(connection, keys),
        )
        return target, {self._of.turn(turn_key): "turn" for turn_key in keys}

    def _memory(self, connection: Connection, wish: Wish) -> tuple[Target, dict[str, str]]:
        row = connection.execute(
            select(memories.c.tenant, memories.c.owner_kind, memories.c.owner, memories.c.cell_key).where(
                memories.c.id == wish.name, exactly(memories.c.tenant, wish.tenant)
            )
        ).one_or_none()
        if row is None:
            raise NothingToErase(wish.scope)
        entries = ledger.entries(connection, [row.cell_key]).get(row.cell_key, [])
        cell = ledger.load_cells(connection, [row.cell_key]).get(row.cell_key, Cell())
        names = claims_of_memory(cell, entries, wish.name)
        keys = tuple(sorted({entry.claim.turn_key for entry in entries if entry.claim.candidate_id in names}))
        target = Target(
            wish.tenant,
            owners=((row.owner_kind, row.owner),),
            memory_id=wish.name,
            turn_keys=keys,
            speakers=_speakers(connection, keys),
        )
        return target, {self._of.turn(turn_key): "turn" for turn_key in keys}

    def _owners_of(self, connection: Connection, turn_keys: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Whose ledgers hold a claim (or a retraction) of these turns."""
        found: set[tuple[str, str]] = set()
        for chunk in chunks(turn_keys):
            mine = union(
                select(claims.c.owner_key).where(claims.c.turn_key.in_(chunk)),
                select(turns.c.owner_key).where(turns.c.turn_key.in_(chunk)),
            )
            query = select(owners.c.owner_kind, owners.c.owner).where(owners.c.owner_key.in_(mine))
            found |= {(row.owner_kind, row.owner) for row in connection.execute(query)}
        return tuple(sorted(found))


def _speakers(connection: Connection, turn_keys: Iterable[str]) -> tuple[str, ...]:
    """Under whose keys these turns are sealed."""
    found: set[str] = set()
    for chunk in chunks(turn_keys):
        found |= set(
            connection.execute(select(turns.c.owner_key).where(turns.c.turn_key.in_(chunk)).distinct()).scalars()
        )
    return tuple(sorted(found))
