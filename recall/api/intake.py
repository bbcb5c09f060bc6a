"""HTTP API, intake: turns go onto the log and are acknowledged before anybody thinks; sessions are read back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Body, Path, Query, Response

from processors.access import Denied
from processors.exceptions import MemriverError
from recall.access import Keyring
from recall.api.callers import Caller, Gateway, HouseOf, KeyOf
from recall.api.problems import ProblemError, responses
from recall.api.shapes import SessionShape, TurnAcceptedShape, TurnOutcomeShape, answer
from recall.requests import Name
from schemas import Turn

router = APIRouter(tags=["turns"])

_LIMIT = 1_000_000
"""What a turn's message may have on the log (`streams.producer`)."""

_EXAMPLE = {
    "conversation_id": "c-1",
    "turn_id": "t-1",
    "user_id": "ann",
    "role": "user",
    "text": "I live in Hamburg now.",
    "sent_at": "2026-03-01T09:00:00Z",
    "timezone": "Europe/Berlin",
}


@router.post("/turns", status_code=202, responses=responses(ok=TurnAcceptedShape, status=202), summary="Publish a turn")
async def publish_turn(
    turn: Annotated[Turn, Body(examples=[_EXAMPLE])],
    principal: Gateway,
    at: HouseOf,
    key: KeyOf,
    background: BackgroundTasks,
) -> dict[str, Any]:
    """Accepts a turn onto the log; what became of it is looked up by its ids.

    The same `turn_id` of the same conversation is the same turn: publishing it again changes nothing, so this POST needs no
    Idempotency-Key. `tenant` may be left out; it is the key's.
    """
    if "tenant" in turn.model_fields_set and turn.tenant != principal.tenant:
        raise Denied("foreign_tenant", "the key belongs to another tenant")
    whole = _readable(turn.model_copy(update={"tenant": principal.tenant}))
    await at.verbs.accept(principal, whole)
    background.add_task(_look_again, at.keyring, key)
    return {
        "status": "accepted",
        "conversation_id": whole.conversation_id,
        "turn_id": whole.turn_id,
        "turn_key": whole.turn_key,
        "see": "/v1/turns/{conversation_id}/{turn_id}",
    }


def _readable(turn: Turn) -> Turn:
    """As the first stage will read it: nested too deeply, or not Unicode in an unknown field, is said here."""
    try:
        raw = turn.to_bytes()
        Turn.from_bytes(raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProblemError(422, "invalid", "the turn cannot be written: nested too deeply, or not Unicode") from error
    if len(raw) > _LIMIT:
        raise ProblemError(413, "too_large", f"a turn may have {_LIMIT} bytes")
    return turn


def _look_again(keyring: Keyring, key: str) -> None:
    """After the answer: intake goes by what was known of a key, so that is brought up to date for the next turn."""
    try:
        keyring.principal(key)
    except MemriverError:
        return


@router.get(
    "/turns/{conversation_id}/{turn_id}", responses=responses(404, ok=TurnOutcomeShape), summary="What became of a turn"
)
async def turn_outcome(
    conversation_id: Annotated[Name, Path()], turn_id: Annotated[Name, Path()], principal: Caller, at: HouseOf
) -> Response:
    """stored, filtered (and why), batched, extracted, remembered or dead_lettered; 404 until it has come through."""
    return answer(await at.verbs.turn(principal, conversation_id, turn_id))


@router.get("/turns", responses=responses(404, ok=TurnOutcomeShape), summary="What became of a turn (ids with slashes)")
async def turn_outcome_by_query(
    conversation_id: Annotated[Name, Query()], turn_id: Annotated[Name, Query()], principal: Caller, at: HouseOf
) -> Response:
    """The same for ids that do not fit into a path."""
    return answer(await at.verbs.turn(principal, conversation_id, turn_id))


@router.get(
    "/sessions/{conversation_id}", responses=responses(404, ok=SessionShape), summary="Recent turns", tags=["sessions"]
)
async def session(
    conversation_id: Annotated[Name, Path()],
    principal: Caller,
    at: HouseOf,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> Response:
    """The last turns of a conversation, filtered ones included; only for who may read everybody who speaks in it."""
    return answer(await at.verbs.session(principal, conversation_id, limit))
