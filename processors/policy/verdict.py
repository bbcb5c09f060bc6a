"""Policy, front room: the words of a decision and the settings of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from processors.policy.spans import PiiKind
from schemas import Candidate


class Decision(StrEnum):
    """What becomes of a candidate. `mask` is acceptance with something hidden or reduced."""

    ACCEPT = "accept"
    MASK = "mask"
    QUARANTINE = "quarantine"
    REVIEW = "review"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`candidate` is what may go on: masked, reduced, with decision, reasons and policy version filled in.

    `reasons` are short codes without personal content. A refused candidate is masked too, so it may be recorded.
    """

    decision: Decision
    reasons: tuple[str, ...]
    candidate: Candidate


DEFAULT_MASKS = frozenset(PiiKind) - {PiiKind.IP_ADDRESS}


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What a deployment may decide.

    `confidence_floor` in [0, 1]. `mask_kinds`: what is masked; a kind left out is kept as it was said (secrets never
    are). `anonymise`: attribute → `industry` or `generic`. `momentary_ttl_days`: how long a one-off choice is kept.
    `require_consent`: whether missing consent counts as a refusal. `unconfirmed`: refuse or review what nobody
    confirmed. `default_region`: ISO 3166 region of numbers whose speaker's zone and language say nothing.
    """

    confidence_floor: float = 0.5
    mask_kinds: frozenset[PiiKind] = DEFAULT_MASKS
    anonymise: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    momentary_ttl_days: int = 1
    require_consent: bool = False
    unconfirmed: Decision = Decision.REFUSE
    default_region: str = "CN"

    def __post_init__(self) -> None:
        if not 0 <= self.confidence_floor <= 1:
            raise ValueError("confidence_floor must lie in [0, 1]")
        if self.momentary_ttl_days < 1:
            raise ValueError("momentary_ttl_days must be at least 1")
        if self.unconfirmed not in (Decision.REFUSE, Decision.REVIEW):
            raise ValueError("unconfirmed must be refuse or review")
        unknown = sorted(set(self.anonymise.values()) - {"industry", "generic"})
        if unknown:
            raise ValueError("anonymise knows industry and generic")
