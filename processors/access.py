"""Access: who asks, what a key may do, and which owners' namespaces it reaches. Pure; refuses whatever is not granted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import unquote

from processors.exceptions import MemriverError
from processors.slots import namespace_of
from schemas import Memory, OwnerKind, Sensitivity, Status, digest

_RANK = {level: rank for rank, level in enumerate(Sensitivity)}
SHARED = frozenset({OwnerKind.ORG, OwnerKind.PROJECT})
"""Owners that are no single person or agent: what is written there must be promoted (SPEC G1)."""
HIDDEN = frozenset({Status.PENDING, Status.QUARANTINED})
"""Nobody has let these in yet, so only a reviewer sees them."""


class Denied(MemriverError):
    """Not granted. `reason` is a short code; the text names no other owner and does not say what exists."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Scope(StrEnum):
    """What a key may do. No scope contains another: an administrator's key does not read memories by itself."""

    READ = "read"
    WRITE = "write"
    REVIEW = "review"
    ADMIN = "admin"


class PrincipalKind(StrEnum):
    """Who holds a key."""

    AGENT = "agent"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """One owner within the principal's tenant."""

    kind: OwnerKind
    id: str

    @property
    def root(self) -> str:
        """`user/ann/`, the prefix of all its namespaces."""
        return namespace_of(self.kind, self.id, "")

    def key(self, tenant: str) -> str:
        """The owner's digest (`schemas.digest`)."""
        return digest(tenant, self.kind, self.id)


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes on the namespaces of one owner, or of every owner of a kind (`owner` None, said explicitly as `user/*`).

    `segment` is what follows the owner (`profile`, or `projects/x`); empty means all of them. Memories above
    `sensitivity` stay out of reach.
    """

    kind: OwnerKind
    owner: str | None
    segment: str = ""
    scopes: frozenset[Scope] = frozenset({Scope.READ})
    sensitivity: Sensitivity = Sensitivity.CONFIDENTIAL
    expires_at: datetime | None = None

    def reaches(self, owner: OwnerRef) -> bool:
        """Whether it speaks of this owner."""
        return self.kind is owner.kind and (self.owner is None or self.owner == owner.id)

    @property
    def namespace(self) -> str:
        """As it is written: `user/ann/profile`, `user/ann`, `org/*`."""
        owner = "*" if self.owner is None else namespace_of(self.kind, self.owner, "").split("/")[1].replace("*", "%2A")
        return "/".join(part for part in (self.kind.value, owner, self.segment) if part)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a key belongs to. `scopes` bound what any grant may give; `key_id` is which key it was."""

    tenant: str
    kind: PrincipalKind
    id: str
    key_id: str
    scopes: frozenset[Scope]
    grants: tuple[Grant, ...] = ()

    @property
    def name(self) -> str:
        """`agent:crm`; how it signs what it writes."""
        return f"{self.kind}:{self.id}"

    @property
    def key(self) -> str:
        """Digest of the principal, for tables."""
        return principal_key(self.tenant, self.kind, self.id)

    def is_owner(self, owner: OwnerRef) -> bool:
        """A person is the user of the same id, an agent the agent of the same id."""
        kind = OwnerKind.USER if self.kind is PrincipalKind.PERSON else OwnerKind.AGENT
        return owner.kind is kind and owner.id == self.id


@dataclass(frozen=True, slots=True)
class Reach:
    """What of one owner may be touched: `segments` (empty: all of them), up to `sensitivity` for each.

    Made only by `authorise`, so that whoever holds one has been let in.
    """

    tenant: str
    owner: OwnerRef
    segments: tuple[tuple[str, Sensitivity], ...]
    review: bool = False

    @property
    def owner_key(self) -> str:
        """The owner's digest."""
        return self.owner.key(self.tenant)

    def covers(self, memory: Memory) -> bool:
        """Tenant, owner, namespace and sensitivity; whether its status may be seen."""
        if memory.tenant != self.tenant or memory.owner_kind is not self.owner.kind or memory.owner != self.owner.id:
            return False
        if memory.status in HIDDEN and not self.review:
            return False
        return any(
            within(memory.namespace, self.owner.root, segment) and _RANK[memory.sensitivity] <= _RANK[ceiling]
            for segment, ceiling in self.segments
        )

    def narrowed(self, namespaces: Sequence[str]) -> Reach:
        """Only these namespaces.

        Raises:
            Denied: one of them is outside. A list that is empty means what was reached before, never more.
        """
        if not namespaces:
            return self
        kept: list[tuple[str, Sensitivity]] = []
        for name in namespaces:
            segment = self._segment_of(name)
            found = [(segment, ceiling) for held, ceiling in self.segments if _below(segment, held)]
            if not found:
                raise Denied("namespace_not_granted", "a namespace was named that this key may not touch")
            kept += found
        return Reach(self.tenant, self.owner, tuple(dict.fromkeys(kept)), self.review)

    def _segment_of(self, name: str) -> str:
        plain = name.strip("/")
        if f"{plain}/" == self.owner.root:
            return ""
        return plain.removeprefix(self.owner.root) if plain.startswith(self.owner.root) else plain


def within(namespace: str, root: str, segment: str) -> bool:
    """Whether a memory's namespace lies under the owner's `root` and there under `segment`, whole segments compared."""
    return namespace.startswith(root) and _below(namespace.removeprefix(root), segment)


def _below(segment: str, prefix: str) -> bool:
    return not prefix or segment == prefix or segment.startswith(f"{prefix}/")


def authorise(
    principal: Principal, scope: Scope, owner: OwnerRef | None, now: datetime, namespaces: Sequence[str] = ()
) -> Reach:
    """What of `owner` the principal may touch in this way.

    Its own memories are a principal's without a grant, as far as its key's scopes go; everything else needs one.

    Raises:
        Denied: no owner named, the key has not the scope, or nothing of the owner is granted.
    """
    if scope not in principal.scopes:
        raise Denied("scope_missing", f"this key has no {scope} scope")
    if owner is None or not owner.id:
        raise Denied("owner_missing", "name an owner; a request that names none is never answered with everything")
    segments: list[tuple[str, Sensitivity]] = []
    review = Scope.REVIEW in principal.scopes
    if principal.is_owner(owner):
        segments.append(("", Sensitivity.RESTRICTED))
    may_review = review and bool(segments)
    for grant in principal.grants:
        if grant.reaches(owner) and scope in grant.scopes and not _over(grant, now):
            segments.append((grant.segment, grant.sensitivity))
            may_review = may_review or (review and Scope.REVIEW in grant.scopes)
    if not segments:
        raise Denied("owner_not_granted", "this key has no grant for that owner")
    reach = Reach(principal.tenant, owner, tuple(dict.fromkeys(segments)), may_review)
    return reach.narrowed(namespaces)


def authorise_all(
    principal: Principal, scope: Scope, owners: Iterable[OwnerRef], now: datetime, namespaces: Sequence[str] = ()
) -> tuple[Reach, ...]:
    """One reach per owner, private ones first; one that is refused refuses all of them.

    Raises:
        Denied: see `authorise`; also when no owner is named.
    """
    named = tuple(dict.fromkeys(owners))
    if not named:
        raise Denied("owner_missing", "name an owner; a request that names none is never answered with everything")
    ordered = sorted(named, key=lambda owner: owner.kind in SHARED)
    return tuple(authorise(principal, scope, owner, now, namespaces) for owner in ordered)


def require(principal: Principal, scope: Scope) -> None:
    """Raises Denied unless the key has the scope."""
    if scope not in principal.scopes:
        raise Denied("scope_missing", f"this key has no {scope} scope")


def needs_promotion(principal: Principal, owner: OwnerRef, now: datetime) -> bool:
    """Whether what the principal writes there waits for a person: shared scopes, unless it may review them itself."""
    if owner.kind not in SHARED:
        return False
    try:
        return not authorise(principal, Scope.REVIEW, owner, now).review
    except Denied:
        return True


def parse_namespace(text: str) -> tuple[OwnerKind, str | None, str]:
    """`user/ann`, `user/ann/profile`, `org/*` → kind, owner (None: every owner of the kind) and segment.

    Raises:
        ValueError: it does not name a kind and an owner.
    """
    kind, _, rest = text.strip("/").partition("/")
    raw, _, segment = rest.partition("/")
    if kind not in set(OwnerKind) or not raw:
        kinds = ", ".join(OwnerKind)
        raise ValueError(f"a namespace is KIND/OWNER or KIND/OWNER/SEGMENT; KIND is one of {kinds}")
    if raw == "*" and segment:
        raise ValueError("KIND/* takes no segment")
    owner = unquote(raw)
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in owner + segment):
        raise ValueError("a namespace has no control characters")
    return OwnerKind(kind), None if raw == "*" else owner, segment


def principal_key(tenant: str, kind: PrincipalKind, name: str) -> str:
    """Digest of a principal."""
    return digest("principal", tenant, kind, name)


def _over(grant: Grant, now: datetime) -> bool:
    return grant.expires_at is not None and grant.expires_at <= now
