"""HTTP API, callers: from the key in a header to a principal, at the pace that the key is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from processors.access import Principal
from recall.access import BadKey, Keyring
from recall.api.changes import ChangeHub
from recall.api.idempotency import Answers
from recall.api.limits import TokenBuckets
from recall.api.problems import ProblemError
from recall.verbs import Verbs

_bearer = HTTPBearer(auto_error=False, description="a memriver key: mr_…", scheme_name="key")


@dataclass(frozen=True, slots=True)
class House:
    """What the routes need; one per application, in `app.state.house`."""

    verbs: Verbs
    keyring: Keyring
    answers: Answers
    buckets: TokenBuckets
    strangers: TokenBuckets
    changes: ChangeHub


def house(request: Request) -> House:
    """The application's."""
    found: House = request.app.state.house
    return found


HouseOf = Annotated[House, Depends(house)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


def key_of(credentials: Credentials) -> str:
    """The key, unchecked."""
    return credentials.credentials if credentials is not None else ""


KeyOf = Annotated[str, Depends(key_of)]


def _principal(request: Request, at: House, key: str, *, patient: bool) -> Principal:
    try:
        found = at.keyring.principal(key, patient=patient)
    except BadKey:
        # Somebody who guesses is slowed down by where he comes from, since he has no key to slow down.
        _pace(at.strangers, request.client.host if request.client else "unknown")
        raise
    _pace(at.buckets, found.key_id)
    return found


def _pace(buckets: TokenBuckets, caller: str) -> None:
    wait = buckets.take(caller)
    if wait:
        seconds = math.ceil(wait)
        raise ProblemError(429, "too_many", f"try again in {seconds} s", {"Retry-After": str(seconds)})


def caller(request: Request, at: HouseOf, key: KeyOf) -> Principal:
    """Who asks; read from the database at most two seconds ago."""
    return _principal(request, at, key, patient=False)


def gateway(request: Request, at: HouseOf, key: KeyOf) -> Principal:
    """Who publishes; what was known minutes ago is enough, so that intake does not wait for the database."""
    return _principal(request, at, key, patient=True)


Caller = Annotated[Principal, Depends(caller)]
Gateway = Annotated[Principal, Depends(gateway)]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
        description="the same key and the same request give the same answer for 24 hours, and one effect",
    ),
]


def version_of(
    if_match: Annotated[
        str | None, Header(alias="If-Match", description='the version that was read, as in `ETag`: `"3"`')
    ] = None,
) -> int:
    """The version in `If-Match` (RFC 9110, 13.1.1); required, since who writes must have read."""
    if if_match is None or if_match.strip() == "*":
        raise ProblemError(428, "if_match_missing", 'say which version you read: If-Match: "3"')
    word = if_match.strip().removeprefix('"').removesuffix('"')
    if not (word.isascii() and word.isdigit() and len(word) <= 9 and int(word) > 0):
        raise ProblemError(422, "if_match_invalid", 'If-Match is the ETag that was given out, such as "3"')
    return int(word)


Version = Annotated[int, Depends(version_of)]
