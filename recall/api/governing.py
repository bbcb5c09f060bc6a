"""HTTP API, governing: reviews, the fate of commands, grants, and the feed of changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from processors.access import Grant, OwnerRef, PrincipalKind, Scope, authorise, parse_namespace, require
from recall.api.callers import Caller, HouseOf, IdempotencyKey, KeyOf
from recall.api.changes import stream
from recall.api.problems import ProblemError, responses
from recall.api.shapes import (
    AcceptedShape,
    CommandStateShape,
    GrantShape,
    GrantsShape,
    PrincipalShape,
    ReviewsShape,
    answer,
)
from recall.requests import Asked, DecideAsked, MemoryId, Name, Namespace, ReportAsked, Within
from recall.verbs import NotFound
from schemas import OwnerKind, Sensitivity, UtcDatetime
from sinks.truth.access import StoredGrant

router = APIRouter()


@router.get("/reviews", responses=responses(ok=ReviewsShape), summary="Questions for a person", tags=["reviews"])
async def list_reviews(
    principal: Caller,
    at: HouseOf,
    owner: Annotated[Name, Query()],
    owner_kind: OwnerKind = OwnerKind.USER,
    status: Literal["open", "approved", "rejected", "merged"] = "open",
    cursor: Annotated[str | None, Query(max_length=200, pattern=r"^[A-Za-z0-9_-]+$")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Conflicts, quarantines, stale and held writes about one owner, oldest first."""
    try:
        page = await at.verbs.reviews(principal, OwnerRef(owner_kind, owner), status=status, cursor=cursor, limit=limit)
    except ValueError as error:
        raise ProblemError(422, "invalid", str(error)) from error
    return answer(page)


@router.post(
    "/reviews",
    status_code=202,
    responses=responses(404, 409, ok=AcceptedShape, status=202),
    summary="Report a conflict",
    tags=["reviews"],
)
async def report(
    asked: ReportAsked, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """A replica received two contents for one version of a memory; a reviewer is asked once, however many report it."""
    return await at.answers.once(request, principal, token, 202, lambda: at.verbs.report(principal, asked))


@router.post(
    "/reviews/{review_id}/decision",
    status_code=202,
    responses=responses(404, 409, ok=AcceptedShape, status=202),
    summary="Decide",
    tags=["reviews"],
)
async def decide(
    review_id: Annotated[MemoryId, Path()],
    asked: DecideAsked,
    request: Request,
    principal: Caller,
    at: HouseOf,
    token: IdempotencyKey = None,
) -> Response:
    """approve, reject, merge; undo takes an answer back."""
    return await at.answers.once(
        request, principal, token, 202, lambda: at.verbs.decide(principal, review_id, asked, token)
    )


@router.get(
    "/commands/{command_id}",
    responses=responses(ok=CommandStateShape),
    summary="What became of a command",
    tags=["memories"],
)
async def command(command_id: Annotated[MemoryId, Path()], principal: Caller, at: HouseOf) -> Response:
    """pending, applied, review (stale or held) or refused."""
    return answer(await at.verbs.command(principal, command_id))


class GrantAsked(Asked):
    """Let a principal reach a namespace."""

    principal_kind: PrincipalKind
    principal: Name
    namespace: Namespace = Field(examples=["user/ann/profile"], description="KIND/OWNER[/SEGMENT]; KIND/* for all")
    scopes: tuple[Scope, ...] = Field(min_length=1, max_length=4)
    sensitivity: Sensitivity = Field(default=Sensitivity.CONFIDENTIAL, description="nothing above this")
    expires_at: UtcDatetime | None = None


@router.get("/grants", responses=responses(ok=GrantsShape), summary="Standing grants", tags=["access"])
def list_grants(principal: Caller, at: HouseOf) -> Response:
    """Of the key's tenant; for administrators."""
    require(principal, Scope.ADMIN)
    return answer({"grants": [_grant_view(item) for item in at.keyring.grants(principal.tenant)]})


@router.post(
    "/grants", status_code=201, responses=responses(409, ok=GrantShape, status=201), summary="Grant", tags=["access"]
)
async def create_grant(
    asked: GrantAsked, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """For administrators, within their own tenant."""
    require(principal, Scope.ADMIN)
    try:
        kind, owner, segment = parse_namespace(asked.namespace)
    except ValueError as error:
        raise ProblemError(422, "invalid", str(error)) from error
    grant = Grant(kind, owner, segment, frozenset(asked.scopes), asked.sensitivity, asked.expires_at)

    async def work() -> dict[str, Any]:
        item = at.keyring.grant(
            principal.tenant, asked.principal_kind, asked.principal, grant, granted_by=principal.name
        )
        return _grant_view(item)

    return await at.answers.once(request, principal, token, 201, work)


@router.delete("/grants/{grant_id}", status_code=204, responses=responses(404), summary="Take back", tags=["access"])
def delete_grant(grant_id: Annotated[MemoryId, Path()], principal: Caller, at: HouseOf) -> None:
    """Works at once here, and within two seconds in other processes."""
    require(principal, Scope.ADMIN)
    if not at.keyring.revoke_grant(principal.tenant, grant_id):
        raise NotFound("there is no such grant")


@router.get("/principal", responses=responses(ok=PrincipalShape), summary="Who am I", tags=["access"])
def whoami(principal: Caller) -> Response:
    """The key's principal, and what it may reach."""
    return answer(
        {
            "tenant": principal.tenant,
            "kind": principal.kind.value,
            "id": principal.id,
            "scopes": sorted(scope.value for scope in principal.scopes),
            "grants": [
                {"namespace": grant.namespace, "scopes": sorted(scope.value for scope in grant.scopes)}
                for grant in principal.grants
            ],
        }
    )


def _grant_view(item: StoredGrant) -> dict[str, Any]:
    return {
        "id": item.grant_id,
        "principal_kind": item.principal_kind.value,
        "principal": item.principal,
        "namespace": item.grant.namespace,
        "scopes": sorted(scope.value for scope in item.grant.scopes),
        "sensitivity": item.grant.sensitivity.value,
        "expires_at": item.grant.expires_at,
        "granted_at": item.granted_at,
        "granted_by": item.granted_by,
    }


@router.get(
    "/changes",
    responses=responses() | {200: {"description": "an event stream", "content": {"text/event-stream": {}}}},
    response_class=StreamingResponse,
    summary="Changes as they happen",
    tags=["changes"],
)
async def changes(
    principal: Caller,
    key: KeyOf,
    at: HouseOf,
    request: Request,
    owner: Annotated[Name, Query()],
    owner_kind: OwnerKind = OwnerKind.USER,
    namespace: Annotated[list[Within] | None, Query(max_length=16)] = None,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", max_length=64, description="go on after this event")
    ] = None,
) -> StreamingResponse:
    """Server-sent events `memory_updated` of one owner, from now on, or from the one in `Last-Event-ID` on.

    Only the last ones are kept: who comes back too late gets `lost`. `owner_seq` counts without gaps: after one, or after
    `lost`, read the memories again.
    """
    now = request.app.state.now
    named = (OwnerRef(owner_kind, owner),)
    authorise(principal, Scope.READ, named[0], now(), namespace or ())
    events = stream(at.changes, lambda: at.keyring.principal(key), named, namespace or (), now, last_event_id)
    return StreamingResponse(events, media_type="text/event-stream")
