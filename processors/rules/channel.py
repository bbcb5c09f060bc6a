"""Rules, channel: hits become candidates with deterministic identities, evidence and provenance per field (SPEC W6)."""

from __future__ import annotations

from collections.abc import Iterable

from processors.rules.loading import packaged_rules
from processors.rules.model import HitKind, RuleHit
from processors.slots import namespace_of, normal_attribute, slot_for, value_key
from schemas import Candidate, Channel, Evidence, OwnerKind, Provenance, SourceKind, Turn, new_id


def candidates_from(turn: Turn, hits: Iterable[RuleHit], *, version: str | None = None) -> tuple[Candidate, ...]:
    """One candidate per CLAIM and FORGET hit; RETRACT_PREVIOUS is a command and not made here.

    `version` is that of the rules (`RuleBook.version`); None means the packaged ones. The same turn, revision and rules
    give the same candidates, identities included.
    """
    writer = f"rules:{packaged_rules().version if version is None else version}"
    return tuple(_candidate(turn, hit, writer) for hit in hits if hit.kind is not HitKind.RETRACT_PREVIOUS)


def _candidate(turn: Turn, hit: RuleHit, writer: str) -> Candidate:
    slot = slot_for(hit.attribute)
    attribute = normal_attribute(hit.attribute)

    def said(confidence: float) -> Provenance:
        return Provenance(
            source=SourceKind.USER_STATEMENT, turn_id=turn.turn_id, method=f"rule:{hit.rule_id}", confidence=confidence
        )

    provenance = {"attribute": said(hit.confidence), "value": said(hit.confidence), "text": said(hit.confidence)}
    # A time that was not stated is the turn's own and needs no source.
    if hit.event_time is not None:
        provenance["event_time"] = said(hit.confidence)
    if hit.valid_to is not None:
        provenance["valid_to"] = said(hit.confidence)
    return Candidate(
        candidate_id=new_id(
            turn.turn_key, str(turn.revision), hit.rule_id, hit.operation, hit.subject, attribute, value_key(hit.value)
        ),
        tenant=turn.tenant,
        owner=turn.user_id,
        namespace=namespace_of(OwnerKind.USER, turn.user_id, slot.namespace),
        conversation_id=turn.conversation_id,
        source_turn_ids=(turn.turn_id,),
        turn_key=turn.turn_key,
        turn_revision=turn.revision,
        agent_id=turn.agent_id,
        trace_id=turn.trace_id,
        channel=Channel.RULE,
        writer=writer,
        operation=hit.operation,
        type=slot.type,
        category=slot.category,
        subject=hit.subject,
        attribute=attribute,
        value=hit.value,
        cardinality=slot.cardinality,
        text=hit.text,
        language=hit.language,
        evidence=(Evidence(turn_id=turn.turn_id, turn_key=turn.turn_key, quote=hit.quote),),
        source_kind=SourceKind.USER_STATEMENT,
        explicit=hit.explicit,
        event_time=hit.event_time or turn.sent_at,
        stated_at=turn.sent_at,
        timezone=turn.timezone,
        valid_to=hit.valid_to,
        ttl_days=hit.ttl_days if hit.ttl_days is not None else slot.ttl_days,
        confidence=hit.confidence,
        sensitivity=slot.sensitivity,
        consent=turn.consent,
        provenance=provenance,
    )
