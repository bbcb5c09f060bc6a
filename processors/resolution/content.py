"""Resolution, content: what a memory says once a claim is folded onto it, from when that holds and until when. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from processors.resolution.cell import memory_id_of
from schemas import Audit, Candidate, Interval, Memory, Operation, SourceKind, Status

MAX_EVIDENCE = 10
"""Quotes shown with a memory; the ledger keeps all of them, a hot fact must not grow without bound."""

CREDIBILITY = {
    SourceKind.USER_STATEMENT: 3,
    SourceKind.TOOL_RESULT: 2,
    SourceKind.EXTERNAL_DOCUMENT: 1,
    SourceKind.ASSISTANT: 1,
    SourceKind.THIRD_PARTY: 1,
}
"""Whose word outweighs whose."""


def began(claim: Candidate) -> datetime:
    """From when the claim holds. An end that is named before its beginning is believed, since it may not outlive it."""
    return min(claim.event_time, claim.valid_to) if claim.valid_to is not None else claim.event_time


def expiry(claim: Candidate, *starts: datetime) -> datetime | None:
    """When it is over: at the end that was named, else its days after it was said, or after it begins if that is later.

    A plan for next year must not be over before next year has come. `starts` are more beginnings that it must outlive.
    """
    if claim.valid_to is not None:
        return claim.valid_to
    return after(claim.ttl_days, claim.stated_at, claim.event_time, *starts)


def after(ttl_days: int | None, *moments: datetime) -> datetime | None:
    """So many days after the latest of the moments; None for what does not run out, or only after the last year there is."""
    if ttl_days is None:
        return None
    try:
        return max(moments) + timedelta(days=ttl_days)
    except OverflowError:
        return None


def renewed(memory: Memory, claim: Candidate) -> Memory:
    """A memory that holds, or holds again, with the claim.

    It has the newest wording, one more piece of evidence, and a confidence that approaches but never reaches certainty. One
    that did not hold is open from when the claim says.
    """
    base = max(memory.confidence, claim.confidence)
    stronger = CREDIBILITY[claim.source_kind] >= CREDIBILITY[memory.source_kind]
    worded = stronger and claim.operation is Operation.ASSERT
    intervals = memory.intervals
    if memory.status is not Status.ACTIVE or not intervals:
        intervals = (*intervals, Interval(start=began(claim)))
    start = intervals[-1].start
    ends = expiry(claim, start) if worded else memory.expires_at
    if not worded and memory.status is not Status.ACTIVE and ends is not None and ends <= start:
        # Its days went by while it waited or was at rest; an end that was named stays.
        ends = after(memory.ttl_days, claim.stated_at, start) if memory.ttl_days is not None else ends
    if ends is not None and ends < start:
        intervals = (*intervals[:-1], Interval(start=min(began(claim), ends)))
    update = {
        "value": claim.value if worded else memory.value,
        "text": claim.text if worded else memory.text,
        "language": claim.language if worded else memory.language,
        "status": Status.ACTIVE,
        "confidence": round(min(0.99, base + 0.25 * (1.0 - base)), 4),
        "evidence": tuple(dict.fromkeys((*memory.evidence, *claim.evidence)))[-MAX_EVIDENCE:],
        "evidence_count": memory.evidence_count + 1,
        "source_kind": claim.source_kind if stronger else memory.source_kind,
        "explicit": memory.explicit or claim.explicit,
        "last_stated_at": max(memory.last_stated_at, claim.stated_at),
        "intervals": intervals,
        "expires_at": ends,
        "ttl_days": claim.ttl_days if worded else memory.ttl_days,
        "superseded_by": None,
        "provenance": claim.provenance or memory.provenance,
        "audit": _audit(claim),
    }
    return memory.model_copy(update=update)


def _audit(claim: Candidate) -> Audit:
    return Audit(
        writer=claim.writer,
        decision=claim.decision,
        policy_version=claim.policy_version,
        reasons=claim.decision_reasons,
    )


def created(claim: Candidate, rep: str, status: Status) -> Memory:
    """The memory of a value that is told for the first time, or for the first time again."""
    return Memory(
        id=memory_id_of(claim, rep),
        tenant=claim.tenant,
        owner_kind=claim.owner_kind,
        owner=claim.owner,
        namespace=claim.namespace,
        type=claim.type,
        category=claim.category,
        subject=claim.subject,
        attribute=claim.attribute,
        value=claim.value,
        cardinality=claim.cardinality,
        text=claim.text,
        language=claim.language,
        status=status,
        version=1,
        confidence=claim.confidence,
        sensitivity=claim.sensitivity,
        source_kind=claim.source_kind,
        explicit=claim.explicit,
        evidence=claim.evidence[:MAX_EVIDENCE],
        evidence_count=1,
        provenance=claim.provenance,
        intervals=(Interval(start=began(claim)),) if status is Status.ACTIVE else (),
        first_stated_at=claim.stated_at,
        last_stated_at=claim.stated_at,
        timezone=claim.timezone,
        ttl_days=claim.ttl_days,
        expires_at=expiry(claim),
        promotion_rule=claim.promotion_rule,
        agent_id=claim.agent_id,
        audit=_audit(claim),
    )
