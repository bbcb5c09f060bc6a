"""Client, exchange: building requests and judging answers, the same for the synchronous and the asynchronous client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

import httpx

from memriver_client import results
from memriver_client.calls import Call
from memriver_client.exceptions import (
    ApiError,
    BadAnswer,
    ConnectionFailed,
    FeedLost,
    MemriverError,
    VersionConflict,
    api_error,
)
from memriver_client.feed import Message
from memriver_client.model import MemoryUpdated
from memriver_client.retries import AGAIN, Retry, retry_after

T = TypeVar("T")


def headers(api_key: str) -> dict[str, str]:
    """Sent with every request."""
    return {"Authorization": f"Bearer {api_key}", "Accept": "application/json, application/problem+json"}


def request(http: httpx.Client | httpx.AsyncClient, call: Call[Any], key: str) -> httpx.Request:
    """One attempt's request. The key is that of the call, so that all attempts of a write carry the same."""
    extra = {**call.headers, **({"Idempotency-Key": key} if call.writes else {})}
    # httpx's own JSON would turn a lone surrogate into an error of its depths; escaped, the API can say what is wrong.
    content = None if call.body is None else json.dumps(call.body).encode()
    if content is not None:
        extra["Content-Type"] = "application/json"
    return http.build_request(call.method, call.path, params=dict(call.params), content=content, headers=extra)


def result(call: Call[T], response: httpx.Response) -> T:
    """The call's result.

    Raises:
        ApiError: the API refused.
        BadAnswer: this is not the API's answer.
    """
    if response.is_error:
        raise error(response)
    if not response.is_success:
        raise BadAnswer(f"{call.method} {call.path} was answered {response.status_code}")
    try:
        return call.read(response.json() if response.content else {})
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise BadAnswer(f"{call.method}: the answer is not what the API promises ({type(failure).__name__})") from None


def error(response: httpx.Response) -> ApiError:
    """The exception for a 4xx or 5xx."""
    problem: Mapping[str, Any] = {}
    if "json" in response.headers.get("content-type", ""):
        try:
            data = response.json()
        except ValueError:
            data = None
        problem = data if isinstance(data, dict) else {}
    errors = problem.get("errors")
    found = api_error(response.status_code)(
        response.status_code,
        str(problem.get("title") or response.reason_phrase or "error"),
        detail=str(problem.get("detail") or ""),
        type=str(problem.get("type") or "about:blank"),
        errors=[item for item in errors if isinstance(item, dict)] if isinstance(errors, list) else (),
        retry_after=retry_after(response.headers, datetime.now(timezone.utc)),
        request_id=response.headers.get("x-request-id"),
        problem=problem,
    )
    if isinstance(found, VersionConflict):
        tag = response.headers.get("etag", "").strip().removeprefix('"').removesuffix('"')
        found.present_version = int(tag) if tag.isascii() and tag.isdigit() else None
    return found


def pause(call: Call[Any], retry: Retry, attempt: int, failure: MemriverError, chance: float) -> float | None:
    """Seconds until the call is sent again; None: the failure is final."""
    if isinstance(failure, ApiError):
        # 409 with Retry-After: the first attempt is still at work under this Idempotency-Key.
        later = failure.status in AGAIN or (failure.status == 409 and failure.retry_after is not None)
        return retry.pause(attempt, failure.retry_after, chance) if later else None
    if isinstance(failure, ConnectionFailed) and (call.repeatable or failure.unsent):
        return retry.pause(attempt, None, chance)
    return None


def connection_failed(call: Call[Any], failure: httpx.TransportError) -> ConnectionFailed:
    """The exception for no answer."""
    unsent = isinstance(failure, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    return ConnectionFailed(f"{call.method} {call.path}: {type(failure).__name__}", unsent=unsent)


def message(found: Message) -> MemoryUpdated | None:
    """An event of the change feed; None for one of a later server that is not known here.

    Raises:
        FeedLost: the server dropped events, or ends the feed.
        BadAnswer: this is not the API's event.
    """
    if found.event in ("lost", "closed"):
        raise FeedLost("no longer granted" if found.event == "closed" else "fell behind; read the memories again")
    if found.event != "memory_updated":
        return None
    try:
        return results.change(json.loads(found.data))
    except (ValueError, KeyError, TypeError) as failure:
        raise BadAnswer(f"an event of the feed is not what the API promises ({type(failure).__name__})") from None
