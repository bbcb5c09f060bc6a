"""HTTP API, erasing: ask for it, and fetch the receipt; for administrators, within their own tenant."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from processors.access import Scope, require
from processors.exceptions import PoisonError
from recall.api.callers import Caller, HouseOf, IdempotencyKey
from recall.api.problems import ProblemError, responses
from recall.api.shapes import answer
from recall.erasing import Erasures, What
from recall.requests import Asked, MemoryId, Name
from recall.verbs import NotFound
from schemas import OwnerKind
from schemas import UtcDatetime as Time

router = APIRouter(tags=["erasure"])


class EraseAsked(Asked):
    """What is to be erased, in the key's own tenant."""

    scope: What
    name: Name | None = Field(default=None, description="id of the memory, conversation or owner; none for the tenant")
    owner_kind: OwnerKind = OwnerKind.USER
    reason: str = Field(default="", max_length=200, description="for the audit chain; no names")


class ErasureShape(BaseModel):
    """How far an erasure is."""

    id: str
    scope: What
    status: Literal["open", "done"]
    asked_at: Time
    done_at: Time | None
    steps: list[str]
    receipt: dict[str, Any] | None = Field(description="signed; null until it is done")


def _port(request: Request) -> Erasures:
    return cast(Erasures, request.app.state.erasures)


@router.post(
    "/erasures", status_code=202, responses=responses(404, 409, ok=ErasureShape, status=202), summary="Erase for ever"
)
async def erase(
    asked: EraseAsked, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """From the answer on nothing of it comes in any more; what is there goes within minutes. It cannot be undone."""
    require(principal, Scope.ADMIN)
    if (asked.name is None) != (asked.scope == "tenant"):
        raise ProblemError(422, "invalid", "name what is to be erased; a tenant is the key's own and is not named")

    async def work() -> dict[str, Any]:
        try:
            return await asyncio.to_thread(
                _port(request).ask,
                principal.tenant,
                asked.scope,
                asked.name or "",
                asked.owner_kind,
                by=principal.name,
                reason=asked.reason,
            )
        except PoisonError as error:
            if error.reason == "not_found":
                raise NotFound("there is nothing of this name to erase") from error
            if error.reason == "erased":
                raise ProblemError(409, "erased", error.detail) from error
            raise

    return await at.answers.once(request, principal, token, 202, work)


@router.get("/erasures/{erasure_id}", responses=responses(404, ok=ErasureShape), summary="How far, and the receipt")
async def look(erasure_id: Annotated[MemoryId, Path()], request: Request, principal: Caller) -> Response:
    """The receipt names nobody; keep it: `memriver erase verify` checks it at any later time."""
    require(principal, Scope.ADMIN)
    found = await asyncio.to_thread(_port(request).look, principal.tenant, erasure_id)
    if found is None:
        raise NotFound("there is no such erasure")
    return answer(found)
