"""Client, what can go wrong.

MemriverError
├── ConnectionFailed       no answer: refused, timed out, broken off
├── BadAnswer              an answer that is not what the API promises
├── FeedLost               the change feed skipped something: read the memories again, then listen again
├── ApiError               a problem+json answer (RFC 9457)
│   ├── BadRequest         400, 413, 415, 422: `errors` says which field
│   ├── Unauthenticated    401: no key, or one that is not known
│   ├── Forbidden          403: the key has no grant for that namespace
│   ├── NotFound           404, 410
│   ├── StateConflict      409: it is in a state in which this cannot be done
│   ├── VersionConflict    412, 428: someone else wrote first; read again, then decide
│   ├── RateLimited        429: `retry_after` seconds
│   └── ServerError        5xx
│       └── Unavailable    503: `retry_after` seconds
└── ReplicaError
    ├── ReplicaStopped     it was asked for something while not running
    ├── TopicMissing       the topic is not there, or hidden from these credentials
    └── WaitTimeout        the version did not arrive in time; also a TimeoutError

Messages carry no memory's text: they end up in logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class MemriverError(Exception):
    """Whatever this package raises on purpose."""


class ConnectionFailed(MemriverError):
    """No answer came. A write may or may not have happened, unless `unsent`: the request never left."""

    def __init__(self, message: str, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent


class BadAnswer(MemriverError):
    """The server answered something else than the API promises; usually a proxy in between."""


class FeedLost(MemriverError):
    """The change feed dropped events, or its connection broke: read the memories again, then listen again.

    `after` is the id of the last event that came before the connection broke: `changes(…, after=…)` goes on there, or
    raises this again, without one, when the server keeps it no longer.
    """

    def __init__(self, message: str, *, after: str | None = None) -> None:
        super().__init__(message)
        self.after = after


class ApiError(MemriverError):
    """The API refused. `type` is the problem's URI, `errors` what is wrong field by field (RFC 9457)."""

    def __init__(
        self,
        status: int,
        title: str,
        *,
        detail: str = "",
        type: str = "about:blank",
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{status} {title}" + (f": {detail}" if detail else ""))
        self.status = status
        self.title = title
        self.detail = detail
        self.type = type
        self.errors = tuple(errors)
        self.retry_after = retry_after
        self.request_id = request_id
        self.problem = dict(problem or {})


class BadRequest(ApiError):
    """The request is wrong; sent again it will be wrong again."""


class Unauthenticated(ApiError):
    """No API key, or one that the server does not know."""


class Forbidden(ApiError):
    """The key's principal has no grant for what was asked."""


class NotFound(ApiError):
    """There is no such thing, or not for this key."""


class StateConflict(ApiError):
    """The thing is in a state in which this cannot be done."""


class VersionConflict(ApiError):
    """The stated version is not the present one. Nothing was overwritten: read again, then decide."""

    present_version: int | None = None
    """Where the memory is now, when the server says so."""


class RateLimited(ApiError):
    """Too many requests for this key; `retry_after` seconds."""


class ServerError(ApiError):
    """The server failed."""


class Unavailable(ServerError):
    """The server is up, what it stands on is not; `retry_after` seconds."""


class ReplicaError(MemriverError):
    """Something about the local replica."""


class ReplicaStopped(ReplicaError):
    """The replica is not running."""


class TopicMissing(ReplicaError):
    """The topic is not there, or not to be seen with these credentials."""


class WaitTimeout(ReplicaError, TimeoutError):
    """The version did not arrive in time."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    410: NotFound,
    409: StateConflict,
    412: VersionConflict,
    428: VersionConflict,
    429: RateLimited,
    503: Unavailable,
}


def api_error(status: int) -> type[ApiError]:
    """The class for an HTTP status of 400 or more."""
    return _BY_STATUS.get(status) or (ServerError if status >= 500 else BadRequest)
