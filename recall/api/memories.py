"""HTTP API, memories: read with a version (`ETag`), change from a version (`If-Match`); changes are commands."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from processors.access import OwnerRef
from recall.api.callers import Caller, HouseOf, IdempotencyKey, Version
from recall.api.problems import ProblemError, responses
from recall.api.shapes import AcceptedShape, ExplanationShape, HistoryShape, MemoryShape, PageShape, answer
from recall.requests import Attribute, EditAsked, MemoryId, Name, ReplaceAsked, RestoreAsked, Within
from schemas import OwnerKind, Status

router = APIRouter(tags=["memories"])

IdOf = Annotated[MemoryId, Path(examples=["9b2c6d1e-0d6b-5f0e-9a53-0f6a6e1b2c3d"])]


@router.get("/memories", responses=responses(ok=PageShape), summary="List one owner's memories")
async def list_memories(
    principal: Caller,
    at: HouseOf,
    owner: Annotated[Name, Query(description="required: nothing named is never everything")],
    owner_kind: OwnerKind = OwnerKind.USER,
    namespace: Annotated[list[Within] | None, Query(max_length=16)] = None,
    status: Annotated[list[Status] | None, Query(max_length=9, description="active if left out")] = None,
    attribute: Annotated[Attribute | None, Query()] = None,
    cursor: Annotated[str | None, Query(max_length=200, pattern=r"^[A-Za-z0-9_-]+$")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """A page in the order in which they were first stated; `next_cursor` is null on the last."""
    try:
        page = await at.verbs.listing(
            principal,
            OwnerRef(owner_kind, owner),
            namespaces=namespace or (),
            statuses=status or (Status.ACTIVE,),
            attribute=attribute,
            cursor=cursor,
            limit=limit,
        )
    except ValueError as error:
        raise ProblemError(422, "invalid", str(error)) from error
    return answer(page)


@router.get("/memories/{memory_id}", responses=responses(404, ok=MemoryShape), summary="One memory")
async def get_memory(memory_id: IdOf, principal: Caller, at: HouseOf) -> Response:
    """Its version is the `ETag`."""
    view = await at.verbs.memory(principal, memory_id)
    return answer(view, ETag=f'"{view["version"]}"')


@router.get("/memories/{memory_id}/history", responses=responses(404, ok=HistoryShape), summary="Every version")
async def history(memory_id: IdOf, principal: Caller, at: HouseOf) -> Response:
    """Oldest first. Of a deleted memory only that there were versions."""
    return answer(await at.verbs.history(principal, memory_id))


@router.get(
    "/memories/{memory_id}/explain", responses=responses(404, ok=ExplanationShape), summary="Where it comes from"
)
async def explain(memory_id: IdOf, principal: Caller, at: HouseOf) -> Response:
    """Turns, writer, policy decision, versions, and who read it."""
    return answer(await at.verbs.explain(principal, memory_id))


@router.put(
    "/memories/{memory_id}",
    status_code=202,
    responses=responses(404, 412, 428, ok=AcceptedShape, status=202),
    summary="Replace content",
)
async def replace(memory_id: IdOf, asked: ReplaceAsked, version: Version, principal: Caller, at: HouseOf) -> Response:
    """Text and value anew. A write that turns out stale on arrival goes to review; it never wins and never vanishes."""
    return answer(await at.verbs.edit(principal, memory_id, version, asked), 202)


@router.patch(
    "/memories/{memory_id}",
    status_code=202,
    responses=responses(404, 412, 428, ok=AcceptedShape, status=202),
    summary="Change content",
)
async def edit(memory_id: IdOf, asked: EditAsked, version: Version, principal: Caller, at: HouseOf) -> Response:
    """Text or value."""
    return answer(await at.verbs.edit(principal, memory_id, version, asked), 202)


@router.delete(
    "/memories/{memory_id}",
    status_code=202,
    responses=responses(404, 412, 428, ok=AcceptedShape, status=202),
    summary="Delete",
)
async def delete(memory_id: IdOf, version: Version, principal: Caller, at: HouseOf) -> Response:
    """The content goes; `POST /v1/forget` is the soft way."""
    return answer(await at.verbs.delete(principal, memory_id, version, "deleted"), 202)


@router.post(
    "/memories/{memory_id}/confirm",
    status_code=202,
    responses=responses(404, 409, 412, 428, ok=AcceptedShape, status=202),
    summary="Still true",
)
async def confirm(
    memory_id: IdOf, version: Version, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """One more piece of evidence."""
    return await at.answers.once(
        request, principal, token, 202, lambda: at.verbs.confirm(principal, memory_id, version, token)
    )


@router.post(
    "/memories/{memory_id}/restore",
    status_code=202,
    responses=responses(404, 409, 412, 428, ok=AcceptedShape, status=202),
    summary="Restore",
)
async def restore(
    memory_id: IdOf,
    asked: RestoreAsked,
    version: Version,
    request: Request,
    principal: Caller,
    at: HouseOf,
    token: IdempotencyKey = None,
) -> Response:
    """What an earlier version said holds again, as a new version."""
    return await at.answers.once(
        request, principal, token, 202, lambda: at.verbs.restore(principal, memory_id, version, asked, token)
    )
