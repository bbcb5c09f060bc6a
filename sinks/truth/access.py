"""Truth, access: keys (hashed), grants, answers already given to an idempotency key, and who read what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, false, func, or_, select, update

from processors.access import Grant, OwnerRef, PrincipalKind, Reach, Scope
from schemas import Memory, OwnerKind, Sensitivity, Status, Turn
from sinks.truth.sql import exactly, insert_rows
from sinks.truth.tables import (
    api_keys,
    claims,
    decisions,
    grants,
    idempotency_keys,
    inbox,
    memories,
    memory_versions,
    owners,
    read_log,
    reviews,
    turns,
)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is kept: without its secret."""

    prefix: str
    hash: str
    tenant: str
    principal_key: str
    principal_kind: PrincipalKind
    principal: str
    label: str
    scopes: frozenset[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant with its id and its holder."""

    grant_id: str
    tenant: str
    principal_kind: PrincipalKind
    principal: str
    grant: Grant
    granted_at: datetime
    granted_by: str


def insert_key(connection: Connection, key: StoredKey) -> None:
    """A new key; a prefix that is taken raises a conflict and the caller draws another."""
    insert_rows(
        connection,
        api_keys,
        [
            {
                "prefix": key.prefix,
                "hash": key.hash,
                "tenant": key.tenant,
                "principal_key": key.principal_key,
                "principal_kind": key.principal_kind.value,
                "principal": key.principal,
                "label": key.label,
                "scopes": _words(key.scopes),
                "created_at": key.created_at,
                "created_by": key.created_by,
                "expires_at": key.expires_at,
                "revoked_at": key.revoked_at,
            }
        ],
    )


def find_key(connection: Connection, prefix: str) -> StoredKey | None:
    """The key with this public part, whether or not it is still good."""
    row = connection.execute(select(api_keys).where(api_keys.c.prefix == prefix)).one_or_none()
    return _key(row) if row is not None else None


def list_keys(connection: Connection, *, tenant: str | None = None) -> list[StoredKey]:
    """All keys, newest first; for people who keep them."""
    query = select(api_keys).order_by(api_keys.c.created_at.desc(), api_keys.c.prefix)
    if tenant is not None:
        query = query.where(exactly(api_keys.c.tenant, tenant))
    return [_key(row) for row in connection.execute(query)]


def revoke_key(connection: Connection, prefix: str, now: datetime) -> bool:
    """False when there is none, or it was revoked before."""
    statement = update(api_keys).where(api_keys.c.prefix == prefix, api_keys.c.revoked_at.is_(None))
    return bool(connection.execute(statement.values(revoked_at=now)).rowcount)


def _key(row: Any) -> StoredKey:
    return StoredKey(
        prefix=row.prefix,
        hash=row.hash,
        tenant=row.tenant,
        principal_key=row.principal_key,
        principal_kind=PrincipalKind(row.principal_kind),
        principal=row.principal,
        label=row.label,
        scopes=_scopes(row.scopes),
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


def insert_grant(connection: Connection, holder_key: str, item: StoredGrant) -> None:
    """A new grant."""
    grant = item.grant
    insert_rows(
        connection,
        grants,
        [
            {
                "grant_id": item.grant_id,
                "principal_key": holder_key,
                "tenant": item.tenant,
                "principal_kind": item.principal_kind.value,
                "principal": item.principal,
                "owner_kind": grant.kind.value,
                "owner": grant.owner,
                "segment": grant.segment,
                "scopes": _words(grant.scopes),
                "sensitivity": grant.sensitivity.value,
                "granted_at": item.granted_at,
                "granted_by": item.granted_by,
                "expires_at": grant.expires_at,
                "revoked_at": None,
            }
        ],
    )


def grants_of(connection: Connection, principal_key: str) -> tuple[Grant, ...]:
    """What a principal was given and has not lost; an expired grant is in, since the judge looks at the clock."""
    query = select(grants).where(grants.c.principal_key == principal_key, grants.c.revoked_at.is_(None))
    return tuple(_grant(row) for row in connection.execute(query.order_by(grants.c.grant_id)))


def list_grants(connection: Connection, tenant: str) -> list[StoredGrant]:
    """Every standing grant of a tenant."""
    query = select(grants).where(exactly(grants.c.tenant, tenant), grants.c.revoked_at.is_(None))
    return [
        StoredGrant(
            row.grant_id,
            row.tenant,
            PrincipalKind(row.principal_kind),
            row.principal,
            _grant(row),
            row.granted_at,
            row.granted_by,
        )
        for row in connection.execute(query.order_by(grants.c.granted_at, grants.c.grant_id))
    ]


def revoke_grant(connection: Connection, tenant: str, grant_id: str, now: datetime) -> bool:
    """False when the tenant has no such standing grant."""
    statement = update(grants).where(
        grants.c.grant_id == grant_id, exactly(grants.c.tenant, tenant), grants.c.revoked_at.is_(None)
    )
    return bool(connection.execute(statement.values(revoked_at=now)).rowcount)


def _grant(row: Any) -> Grant:
    return Grant(
        OwnerKind(row.owner_kind),
        row.owner,
        row.segment,
        _scopes(row.scopes),
        Sensitivity(row.sensitivity),
        row.expires_at,
    )


def _words(scopes: frozenset[Scope]) -> str:
    return " ".join(sorted(scopes))


def _scopes(words: str) -> frozenset[Scope]:
    return frozenset(Scope(word) for word in words.split())


@dataclass(frozen=True, slots=True)
class Answered:
    """The first request under an idempotency key. `status` None: it is still at work."""

    request_hash: str
    status: int | None
    body: str | None
    created_at: datetime


def answered(connection: Connection, request_key: str) -> Answered | None:
    """What was answered under this key."""
    query = select(idempotency_keys).where(idempotency_keys.c.request_key == request_key)
    row = connection.execute(query).one_or_none()
    return Answered(row.request_hash, row.status, row.body, row.created_at) if row is not None else None


def claim_request(connection: Connection, request_key: str, request_hash: str, now: datetime) -> None:
    """Take the key; a conflict is raised when somebody took it meanwhile."""
    row = {"request_key": request_key, "request_hash": request_hash, "created_at": now}
    insert_rows(connection, idempotency_keys, [row | {"status": None, "body": None}])


def keep_answer(connection: Connection, request_key: str, status: int, body: str) -> None:
    """Later requests under this key get this answer."""
    statement = update(idempotency_keys).where(idempotency_keys.c.request_key == request_key)
    connection.execute(statement.values(status=status, body=body))


def release_request(connection: Connection, request_key: str) -> None:
    """Nothing happened: the key may be used again."""
    connection.execute(delete(idempotency_keys).where(idempotency_keys.c.request_key == request_key))


def forget_answers(connection: Connection, before: datetime) -> int:
    """Drop the answers that are older."""
    return int(connection.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at < before)).rowcount)


def record_reads(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Who read which memories; no content (SPEC G2)."""
    insert_rows(connection, read_log, rows)


def reads_of(connection: Connection, memory_id: str, *, limit: int = 100) -> list[dict[str, Any]]:
    """Who read a memory, newest first."""
    names = ("reader", "verb", "version", "read_at")
    query = select(*(read_log.c[name] for name in names)).where(read_log.c.memory_id == memory_id)
    rows = connection.execute(query.order_by(read_log.c.id.desc()).limit(limit))
    return [dict(zip(names, row, strict=True)) for row in rows]


def page(
    connection: Connection,
    reach: Reach,
    *,
    statuses: Sequence[Status],
    now: datetime,
    attribute: str | None = None,
    after: tuple[datetime, str] | None = None,
    limit: int = 50,
) -> tuple[list[Memory], tuple[datetime, str] | None]:
    """Memories within one reach, by the time they were first stated, and where the next page starts (None: no more).

    `after` is what the page before gave as its end.
    """
    query = select(memories.c.body).where(memories.c.owner_key == reach.owner_key, _in_reach(reach))
    query = query.where(memories.c.status.in_([status.value for status in statuses]))
    if Status.EXPIRED not in statuses:
        # The life cycle may be a moment late; its clock is not what decides.
        query = query.where(or_(memories.c.expires_at.is_(None), memories.c.expires_at > now))
    if attribute is not None:
        query = query.where(exactly(memories.c.attribute, attribute))
    if after is not None:
        at, memory_id = after
        later = memories.c.first_stated_at > at
        query = query.where(or_(later, and_(memories.c.first_stated_at == at, memories.c.id > memory_id)))
    query = query.order_by(memories.c.first_stated_at, memories.c.id).limit(limit + 1)
    found = [Memory.from_bytes(body.encode()) for body in connection.execute(query).scalars()]
    end = (found[limit - 1].first_stated_at, found[limit - 1].id) if len(found) > limit else None
    return [memory for memory in found[:limit] if reach.covers(memory)], end


def _in_reach(reach: Reach) -> ColumnElement[bool]:
    """The namespaces in SQL, so that a page is full; `Reach.covers` decides again about each row."""
    root = reach.owner.root
    ranks = list(Sensitivity)
    conditions: list[ColumnElement[bool]] = [false()]
    for segment, ceiling in reach.segments:
        levels = [level.value for level in ranks[: ranks.index(ceiling) + 1]]
        below = memories.c.namespace.startswith(f"{root}{segment}/" if segment else root, autoescape=True)
        within = or_(below, memories.c.namespace == f"{root}{segment}")
        conditions.append(and_(within, memories.c.sensitivity.in_(levels)))
    return or_(*conditions)


@dataclass(frozen=True, slots=True)
class CommandState:
    """What became of a command. `memories` are (id, version) it wrote; `owner_key` None while nothing is known."""

    state: str
    owner_key: str | None
    memories: tuple[tuple[str, int], ...] = ()
    review_id: str | None = None


def command_state(connection: Connection, command_id: str) -> CommandState:
    """pending (not seen yet), applied, review (stale, or held for a person) or refused (it named nothing that exists)."""
    versions = select(memory_versions.c.memory_id, memory_versions.c.version, memory_versions.c.owner_key)
    done = connection.execute(versions.where(memory_versions.c.cause == command_id)).all()
    if done:
        return CommandState("applied", done[0].owner_key, tuple((row.memory_id, row.version) for row in done))
    asked = select(reviews.c.review_id, reviews.c.owner_key).where(
        reviews.c.candidate_id == command_id, reviews.c.body.is_not(None)
    )
    if (row := connection.execute(asked).first()) is not None:
        return CommandState("review", row.owner_key, (), row.review_id)
    decided = select(reviews.c.review_id, reviews.c.owner_key).where(reviews.c.decision_id == command_id)
    if (row := connection.execute(decided).first()) is not None:
        return CommandState("applied", row.owner_key, (), row.review_id)
    owner = connection.execute(select(claims.c.owner_key).where(claims.c.claim_id == command_id)).scalar()
    if owner is not None:
        return CommandState("applied", owner)
    reported = select(reviews.c.review_id, reviews.c.owner_key).where(reviews.c.candidate_id == command_id)
    if (row := connection.execute(reported).first()) is not None:
        return CommandState("review", row.owner_key, (), row.review_id)
    seen = select(func.count()).select_from(inbox).where(inbox.c.message_id == command_id, inbox.c.stage == "resolve")
    return CommandState("refused" if connection.execute(seen).scalar() else "pending", None)


def turn_state(connection: Connection, turn_key: str) -> dict[str, Any] | None:
    """Outcome, reason and owner of one turn; None while it has not come through."""
    columns = (turns.c.outcome, turns.c.reason, turns.c.owner_key, turns.c.revision, turns.c.arrived_at)
    row = connection.execute(select(*columns).where(turns.c.turn_key == turn_key)).one_or_none()
    return dict(row._mapping) if row is not None else None


def speakers(connection: Connection, conversation_key: str) -> list[str]:
    """Everybody whose turns are in a conversation: who may read it must be allowed to read all of them."""
    first = select(func.min(turns.c.turn_key)).where(turns.c.conversation_key == conversation_key)
    bodies = select(turns.c.body).where(turns.c.turn_key.in_(first.group_by(turns.c.owner_key)))
    return sorted({Turn.from_bytes(body.encode()).user_id for body in connection.execute(bodies).scalars()})


def decisions_about(connection: Connection, candidate_ids: Sequence[str]) -> list[dict[str, Any]]:
    """What the policy said about these claims, oldest first."""
    columns = ("candidate_id", "decision", "reasons", "policy_version", "channel", "decided_at")
    query = select(*(decisions.c[name] for name in columns)).where(decisions.c.candidate_id.in_(list(candidate_ids)))
    return [dict(zip(columns, row, strict=True)) for row in connection.execute(query.order_by(decisions.c.decided_at))]


def owner_of(connection: Connection, owner_key: str) -> tuple[str, OwnerRef] | None:
    """Tenant and owner behind a digest."""
    row = connection.execute(select(owners).where(owners.c.owner_key == owner_key)).one_or_none()
    return (row.tenant, OwnerRef(OwnerKind(row.owner_kind), row.owner)) if row is not None else None
