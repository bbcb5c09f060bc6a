"""HTTP API, idempotency: a repeated POST gets the first one's answer, also after this process was restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from processors.access import Principal
from processors.exceptions import ConflictError
from recall.api.problems import ProblemError
from schemas import digest
from sinks.truth import Truth, access

KEPT = timedelta(hours=24)
_ABANDONED = timedelta(seconds=60)
"""A request that has been at work for longer has lost its process; repeating it is safe, the resolver knows its ids."""

Work = Callable[[], Awaitable[dict[str, Any]]]


class Answers:
    """What was answered, by principal and idempotency key."""

    def __init__(self, truth: Truth, now: Callable[[], datetime]) -> None:
        self._truth = truth
        self._now = now

    async def once(
        self, request: Request, principal: Principal, token: str | None, status: int, work: Work
    ) -> Response:
        """Do `work`, or give its earlier answer.

        Raises:
            ProblemError: the key was used for another request (422), or the first one is still at work (409).
        """
        if token is None:
            return _json(orjson.dumps(await work()), status)
        key = digest("idempotency", principal.key, token)
        body = await request.body()
        asked = digest(request.method, request.url.path, body.decode("utf-8", "replace"))
        before = await asyncio.to_thread(self._begin, key, asked)
        if before is not None:
            return _json(before[1].encode(), before[0], replayed=True)
        try:
            answer = orjson.dumps(await work())
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._release, key))
            raise
        await asyncio.to_thread(self._keep, key, status, answer.decode())
        return _json(answer, status)

    def _begin(self, key: str, asked: str) -> tuple[int, str] | None:
        now = self._now()
        with self._truth.reading() as connection:
            known = access.answered(connection, key)
        if known is not None and now - known.created_at > (KEPT if known.status is not None else _ABANDONED):
            self._release(key)
            known = None
        if known is None:
            try:
                with self._truth.begin() as connection:
                    access.claim_request(connection, key, asked, now)
            except ConflictError:
                raise _busy() from None
            return None
        if known.request_hash != asked:
            raise ProblemError(422, "idempotency_key_reused", "this Idempotency-Key was used for another request")
        if known.status is None or known.body is None:
            raise _busy()
        return known.status, known.body

    def _release(self, key: str) -> None:
        self._truth.run(lambda connection: access.release_request(connection, key))

    def _keep(self, key: str, status: int, body: str) -> None:
        self._truth.run(lambda connection: access.keep_answer(connection, key, status, body))

    def forget_old(self) -> int:
        """Drop answers after 24 hours; returns how many."""
        return self._truth.run(lambda connection: access.forget_answers(connection, self._now() - KEPT))


def _busy() -> ProblemError:
    return ProblemError(409, "in_progress", "the first request with this key is still at work", {"Retry-After": "1"})


def _json(body: bytes, status: int, *, replayed: bool = False) -> Response:
    headers = {"Idempotency-Replayed": "true"} if replayed else None
    return Response(body, status, media_type="application/json", headers=headers)
