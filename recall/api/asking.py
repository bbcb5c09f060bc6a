"""HTTP API, asking: recall, context, summarize; remember, forget, feedback."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from recall.api.callers import Caller, HouseOf, IdempotencyKey
from recall.api.problems import responses
from recall.api.shapes import AcceptedShape, ContextShape, FeedbackShape, RecallShape, SummaryShape, answer
from recall.requests import ContextAsked, FeedbackAsked, ForgetAsked, RecallAsked, RememberAsked, SummarizeAsked

router = APIRouter(tags=["verbs"])


@router.post("/recall", responses=responses(ok=RecallShape), summary="Recall")
async def recall(asked: RecallAsked, principal: Caller, at: HouseOf) -> Response:
    """At most a handful of right, current memories; an honest empty answer when nothing is relevant."""
    return answer(await at.verbs.recall(principal, asked))


@router.post("/context", responses=responses(404, ok=ContextShape), summary="Context for a prompt")
async def context(asked: ContextAsked, principal: Caller, at: HouseOf) -> Response:
    """What should be known, as text within a token budget, with numbered citations."""
    return answer(await at.verbs.context(principal, asked))


@router.post("/summarize", responses=responses(404, ok=SummaryShape), summary="Summary of a conversation")
async def summarize(asked: SummarizeAsked, principal: Caller, at: HouseOf) -> Response:
    """Summary, key points and open loops, and who wrote them."""
    return answer(await at.verbs.summarize(principal, asked))


@router.post(
    "/remember", status_code=202, responses=responses(404, 409, 412, ok=AcceptedShape, status=202), summary="Remember"
)
async def remember(
    asked: RememberAsked, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """Sends what the text says to the resolver, after the policy gate; 202 with the commands to look up.

    An agent that passes on what a person said gives `source: user_statement` and the `quote`; without, its words are its
    own and wait for a reviewer.
    """
    return await at.answers.once(request, principal, token, 202, lambda: at.verbs.remember(principal, asked, token))


@router.post("/forget", status_code=202, responses=responses(404, 409, ok=AcceptedShape, status=202), summary="Forget")
async def forget(
    asked: ForgetAsked, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """One memory by id, or everything of an owner under an attribute."""
    return await at.answers.once(request, principal, token, 202, lambda: at.verbs.forget(principal, asked, token))


@router.post(
    "/feedback", status_code=202, responses=responses(404, 409, ok=FeedbackShape, status=202), summary="Feedback"
)
async def feedback(
    asked: FeedbackAsked, request: Request, principal: Caller, at: HouseOf, token: IdempotencyKey = None
) -> Response:
    """Used, ignored, corrected, or something was forgotten."""
    return await at.answers.once(request, principal, token, 202, lambda: at.verbs.feedback(principal, asked, token))
