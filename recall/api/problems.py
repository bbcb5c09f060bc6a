"""HTTP API, problems: every error is `application/problem+json` (RFC 9457), helps the caller, and shows nothing inside."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from processors.access import Denied
from processors.exceptions import ConflictError, TransientError
from recall.access import BadKey
from recall.verbs import Conflicting, NotFound, Stale
from recall.writing import Refused

log = logging.getLogger("memriver.api")

_RETRY_SECONDS = 1
_SHOWN = 64
"""Characters of a field's name that are said back: it may be the caller's own invention."""


class FieldProblem(BaseModel):
    """One field that is not as it must be."""

    field: str = Field(examples=["body.query"])
    message: str = Field(examples=["must not be blank"])


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(examples=["urn:memriver:problem:owner_not_granted"])
    title: str = Field(examples=["Forbidden"])
    status: int = Field(examples=[403])
    detail: str
    errors: list[FieldProblem] | None = None


class ProblemError(Exception):
    """Raised inside the API for what no verb raises."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.headers = status, code, detail, headers


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response."""
    body: dict[str, Any] = {
        "type": f"urn:memriver:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        body["errors"] = [error.model_dump() for error in errors]
    return Response(
        orjson.dumps(body), status, media_type="application/problem+json", headers=dict(headers) if headers else None
    )


def _fields(errors: Sequence[Any]) -> list[FieldProblem]:
    found = []
    for error in errors[:20]:
        where = ".".join(str(part) for part in error.get("loc", ()))
        plain = where.encode("ascii", "backslashreplace").decode()[:_SHOWN]
        text = str(error.get("msg", "not valid")).removeprefix("Value error, ")
        found.append(
            FieldProblem(field=plain or "body", message=text.encode("ascii", "backslashreplace").decode()[:300])
        )
    return found


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, (RequestValidationError, ValidationError))
    fields = _fields(error.errors())
    return problem(422, "invalid", "the request is not as it must be; see errors", errors=fields)


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = error.detail if isinstance(error.detail, str) else HTTPStatus(error.status_code).phrase
    return problem(error.status_code, HTTPStatus(error.status_code).name.lower(), detail, headers=error.headers)


async def _own(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(error.status, error.code, error.detail, headers=error.headers)


async def _expected(_request: Request, error: Exception) -> Response:
    """What the verbs raise, in the words of HTTP."""
    match error:
        case BadKey():
            challenge = {"WWW-Authenticate": 'Bearer realm="memriver"'}
            return problem(401, "unauthorised", "give a good key: Authorization: Bearer mr_…", headers=challenge)
        case Denied():
            return problem(403, error.reason, str(error))
        case NotFound():
            return problem(404, "not_found", str(error))
        case Conflicting():
            return problem(409, "conflict", str(error))
        case Stale():
            return problem(412, "stale", str(error), headers={"ETag": f'"{error.version}"'})
        case Refused():
            return problem(422, "refused", f"{error}: {', '.join(error.reasons)}")
        case TransientError() | ConflictError():
            seconds = error.retry_after if isinstance(error, TransientError) else None
            wait = {"Retry-After": str(max(_RETRY_SECONDS, round(seconds or 0)))}
            return problem(503, "unavailable", "a server behind this one is away; try again", headers=wait)
    return unexpected(error)


def unexpected(error: BaseException) -> Response:
    """Where it was goes to the log, what it was about does not: a message may quote what somebody said."""
    frames = "".join(traceback.format_tb(error.__traceback__)[-6:])
    log.error("a request failed with %s\n%s", type(error).__name__, frames)
    return problem(500, "internal", "something went wrong here; it was recorded without what you sent")


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ProblemError, _own)
    for kind in (BadKey, Denied, NotFound, Conflicting, Stale, Refused, TransientError, ConflictError):
        app.add_exception_handler(kind, _expected)


def responses(*statuses: int, ok: type[BaseModel] | None = None, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: `ok` is what is answered when all is well; these errors can happen, besides those that always can."""
    what = {
        400: "Not HTTP or not JSON",
        401: "No good key",
        403: "Not granted",
        404: "Not there, or not for this key",
        409: "In another state",
        412: "The version has moved on",
        413: "Too large",
        422: "Not as it must be, or refused by policy",
        428: "If-Match is missing",
        429: "Too many requests; see Retry-After",
        503: "A server behind this one is away; see Retry-After",
    }
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    always = (400, 401, 403, 413, 422, 429, 503)
    errors: dict[int | str, dict[str, Any]] = {
        error: {"description": what[error], "content": {"application/problem+json": schema}}
        for error in sorted({*always, *statuses})
    }
    if ok is not None:
        errors[status] = {"model": ok, "description": (ok.__doc__ or "").strip()}
    return errors
