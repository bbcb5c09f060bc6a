"""Portability, screening: claims from elsewhere pass this deployment's policy gate before anything of them is sent.

Two measures. An export that a key of ours signed is what a memriver of ours wrote, so what was judged with the turn at hand
(source, confidence, worth) and what a person decided stand; its content is looked at again, since rules grow: secrets are
masked or refused, steering is quarantined. Any other file could have been written by anybody: there every claim is judged
anew, and a yes to something that is locked up here is asked for here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from processors.policy import Decision, PolicyGate
from schemas import Candidate, Channel, Operation
from schemas.portable import Bundle, ExportedReview

_LOCKED = (Decision.QUARANTINE.value, Decision.REVIEW.value)
_PASSED = (Decision.ACCEPT.value, Decision.MASK.value)
_ALWAYS = ("secret", "foreign_namespace")
"""Refusals that hold whoever signed."""


@dataclass(frozen=True, slots=True)
class Screened:
    """What of a cell may go on. `intact`: nothing was touched, so its history can go with it."""

    claims: tuple[Candidate, ...]
    intact: bool
    refused: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(slots=True)
class _Judged:
    kept: list[Candidate] = field(default_factory=list)
    refused: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


class Screen:
    """`vouched`: the file was signed by a key of ours."""

    def __init__(self, gate: PolicyGate, *, vouched: bool) -> None:
        self._gate = gate
        self._vouched = vouched

    def cell(self, bundle: Bundle) -> Screened:
        """Judge every claim of a cell."""
        judged = _Judged()
        for claim in bundle.claims:
            verdict = self.claim(claim)
            if verdict.decision == Decision.REFUSE.value:
                judged.refused.append((claim.candidate_id, verdict.decision_reasons))
            else:
                judged.kept.append(verdict)
        if not self._vouched and any(item.decision in _LOCKED for item in judged.kept if _asserts(item)):
            self._unconfirm(judged)
        claims = tuple(judged.kept)
        return Screened(claims, claims == bundle.claims, tuple(judged.refused))

    def claim(self, claim: Candidate) -> Candidate:
        """The claim as it may go on, or with decision `refuse`. Unchanged when there is nothing against it."""
        verdict = self._gate.judge(claim, None)
        judged, said = verdict.candidate, verdict.decision
        if said is Decision.REFUSE and (not self._vouched or set(verdict.reasons) & set(_ALWAYS)):
            return judged
        if _asserts(claim) and claim.decision in _PASSED:
            # In a file of ours, an accepted command is a person's own word or a reviewer's yes.
            believed = self._vouched and claim.channel is Channel.COMMAND
            if said is Decision.QUARANTINE and not believed:
                return judged
            if said is Decision.REVIEW and not self._vouched:
                return judged
        masked = {name: getattr(judged, name) for name in ("value", "text", "subject", "evidence")}
        if all(getattr(claim, name) == value for name, value in masked.items()):
            return claim
        decision = Decision.MASK.value if claim.decision in _PASSED else claim.decision
        more = {
            "decision": decision,
            "decision_reasons": tuple(dict.fromkeys((*claim.decision_reasons, *verdict.reasons))),
            "policy_version": judged.policy_version,
            "sensitivity": judged.sensitivity,
        }
        return claim.model_copy(update=masked | more)

    def review(self, review: ExportedReview) -> ExportedReview:
        """The same question with its texts masked."""
        body = review.body
        if body is not None:
            body = orjson.dumps(self.masked(orjson.loads(body)), option=orjson.OPT_SORT_KEYS).decode()
        return review.model_copy(update={"detail": self._gate.mask_text(review.detail).text, "body": body})

    def masked(self, value: Any) -> Any:
        """Every string in a JSON value, masked."""
        if isinstance(value, str):
            return self._gate.mask_text(value).text
        if isinstance(value, dict):
            return {str(key): self.masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.masked(item) for item in value]
        return value

    def _unconfirm(self, judged: _Judged) -> None:
        kept = []
        for claim in judged.kept:
            yes = claim.operation is Operation.CONFIRM or (
                _asserts(claim) and claim.channel is Channel.COMMAND and claim.decision in _PASSED
            )
            if yes:
                judged.refused.append((claim.candidate_id, ("confirmed_elsewhere",)))
            else:
                kept.append(claim)
        judged.kept = kept


def _asserts(claim: Candidate) -> bool:
    return claim.operation is Operation.ASSERT


def reasons_of(refused: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, int]:
    """How many claims were refused for each first reason."""
    found: dict[str, int] = {}
    for _claim_id, reasons in refused:
        name = reasons[0] if reasons else "policy"
        found[name] = found.get(name, 0) + 1
    return found
