"""Policy, front room: the gate that every candidate passes, whatever the prompt said (SPEC W7, W8)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import regex

from processors.policy.anonymise import reduce, replace_name
from processors.policy.catalogue import read_text, rules_of
from processors.policy.contact import regions_of
from processors.policy.credentials import is_secret_slot, worth_keeping
from processors.policy.identity import kind_of_attribute
from processors.policy.masking import Masked, Masker, apply, apply_literals
from processors.policy.profile import is_stated, topic_of
from processors.policy.spans import IDENTITY_KINDS, PiiKind, Span
from processors.policy.threats import ThreatScanner, has_url, normal_text
from processors.policy.thresholds import Thresholds, is_experience, is_rule
from processors.policy.verdict import Decision, PolicySettings, Verdict
from processors.slots import namespace_of
from schemas import (
    Candidate,
    Category,
    Channel,
    Evidence,
    MemoryType,
    Operation,
    OwnerKind,
    Role,
    Sensitivity,
    SourceKind,
    Turn,
    digest,
)

CODE_VERSION = "2"
"""Raised whenever the code of this package decides differently for the same rules and settings."""

_FILES = ("threats.yaml", "external.yaml", "secrets.yaml", "sensitive.yaml", "thresholds.yaml", "industries.yaml")
_SHARED = frozenset({OwnerKind.ORG, OwnerKind.PROJECT})
_RANK = {level: rank for rank, level in enumerate(Sensitivity)}
_SPACE = regex.compile(r"\s+")
_MIN_KEY = 16
"""Bytes of the hash key: a shorter one could be guessed, and with it every identity number."""


class PolicyGate:
    """Judges candidates and masks texts. Pure and deterministic: same rules, settings, key and candidate, same verdict.

    `hash_key` keys the hashes of identity numbers; it must stay the same for a number to keep its hash.

    Raises:
        ValueError: the key is shorter than 16 bytes.
    """

    def __init__(self, settings: PolicySettings, hash_key: bytes) -> None:
        if len(hash_key) < _MIN_KEY:
            raise ValueError("hash_key must have at least 16 bytes")
        self._settings = settings
        # Secrets are looked for even where they are not masked: refusing them is not a setting.
        self._masker = Masker(settings.mask_kinds | {PiiKind.SECRET}, hash_key)
        self._threats = ThreatScanner()
        self._external = rules_of("external.yaml")
        self._thresholds = Thresholds()
        self.version = (
            "policy-" + digest(CODE_VERSION, _settings_text(settings), *(read_text(name) for name in _FILES))[:12]
        )

    def mask_text(self, text: str) -> Masked:
        """Masks a text that is no candidate: a session digest, a summary, a note."""
        return self._masker.mask(text, (*regions_of(None, "zh", self._settings.default_region), "US"))

    def judge(self, candidate: Candidate, turn: Turn | None) -> Verdict:
        """Decides about one candidate. `turn` is the turn it comes from (`turn_key`), when it is at hand.

        Steps, the first that stops decides: 1. consent; 2. namespace and evidence; 3. secrets; 4. threats; 5. source;
        6. sensitive profile; 7. confidence; 8. worth; 9. human review; then masking and reduction.
        """
        source = _source(candidate, turn)
        masked, kinds, secret_left = self._mask(candidate)
        topic = topic_of(candidate)
        decision, reasons, changes = self._decide(candidate, turn, source, topic, kinds, secret_left)
        if decision is Decision.ACCEPT:
            masked, reduced = self._reduce(masked)
            codes = [f"masked_{kind}" for kind in kinds] + (["anonymised"] if reduced else [])
            if codes:
                decision, reasons = Decision.MASK, (*reasons, *codes)
        # A refusal may be about the content itself (a secret), so what is recorded is the masked form in every case.
        update = {
            **changes,
            "decision": decision.value,
            "decision_reasons": reasons,
            "policy_version": self.version,
            "sensitivity": _sensitivity(candidate, topic, kinds),
            "source_kind": source,
        }
        return Verdict(decision, reasons, masked.model_copy(update=update))

    def _decide(
        self,
        candidate: Candidate,
        turn: Turn | None,
        source: SourceKind,
        topic: str | None,
        kinds: tuple[PiiKind, ...],
        secret_left: bool,
    ) -> tuple[Decision, tuple[str, ...], dict[str, object]]:
        forgets = candidate.operation is Operation.CLEAR
        refusal = (None if forgets else self._consent(candidate, turn)) or _misplaced(candidate, turn)
        if refusal is not None:
            return Decision.REFUSE, (refusal,), {}
        if not forgets and (
            is_secret_slot(candidate.attribute.casefold()) or (PiiKind.SECRET in kinds and not secret_left)
        ):
            return Decision.REFUSE, ("secret",), {}
        threats = self._threats_in(candidate, source)
        if threats:
            return Decision.QUARANTINE, threats, {}
        changes: dict[str, object] = {}
        if source is not SourceKind.USER_STATEMENT:
            stop, changes = self._outside(candidate, turn, source)
            if stop is not None:
                return (*stop, {})
        if forgets:
            return Decision.ACCEPT, (), {}
        # A rule's end may name what it ends in other words than were said now: "我不吃素了" ends 素食, and infers nothing.
        infers = candidate.channel is not Channel.RULE or candidate.operation is not Operation.END
        if topic is not None and infers and not is_stated(candidate, topic, source):
            return Decision.REFUSE, ("sensitive_inferred",), {}
        exempt = candidate.explicit or candidate.channel is Channel.COMMAND
        if candidate.confidence < self._settings.confidence_floor and not exempt:
            return Decision.REFUSE, ("low_confidence",), {}
        fleeting = None if candidate.channel is Channel.COMMAND else self._thresholds.fleeting(candidate)
        if fleeting == "mood" and not candidate.explicit:
            return Decision.REFUSE, ("momentary",), {}
        if candidate.owner_kind in _SHARED and candidate.channel is not Channel.COMMAND:
            return Decision.REVIEW, ("shared_scope",), changes
        if self._thresholds.is_guarded(candidate):
            return Decision.REVIEW, ("safety_or_permission",), changes
        reasons = ("lesson_as_episode",) if "type" in changes else ()
        if fleeting is not None:
            days = self._settings.momentary_ttl_days
            changes["ttl_days"] = min(candidate.ttl_days or days, days)
            reasons = (*reasons, "short_ttl")
        return Decision.ACCEPT, reasons, changes

    def _consent(self, candidate: Candidate, turn: Turn | None) -> str | None:
        given = [consent for consent in (candidate.consent, turn.consent if turn else None) if consent is not None]
        if not all(given):
            return "no_consent"
        return "consent_unknown" if self._settings.require_consent and not given else None

    def _threats_in(self, candidate: Candidate, source: SourceKind) -> tuple[str, ...]:
        said = _texts(candidate)
        found = dict.fromkeys(self._threats.scan("\n".join(said)))
        if is_rule(candidate) and any(has_url(text) for text in said):
            found["link_in_rule"] = None
        if (
            source is not SourceKind.USER_STATEMENT
            and not found
            and not is_rule(candidate)
            and not is_experience(candidate)
        ):
            plain = normal_text("\n".join(said))
            found.update(dict.fromkeys(r.kind for r in self._external.possible(plain) if r.hits(plain)))
        return tuple(found)

    def _outside(
        self, candidate: Candidate, turn: Turn | None, source: SourceKind
    ) -> tuple[tuple[Decision, tuple[str, ...]] | None, dict[str, object]]:
        """What did not come from the user's own mouth: tool results, assistants, third persons, documents."""
        confirmed = self._thresholds.is_confirmed(candidate, turn)
        lesson = candidate.category is Category.LESSON and source in (SourceKind.TOOL_RESULT, SourceKind.ASSISTANT)
        if is_rule(candidate) and not lesson and not (confirmed and source is SourceKind.ASSISTANT):
            return (Decision.REFUSE, ("external_rule",)), {}
        if source is SourceKind.TOOL_RESULT or lesson:
            # The cause of a failure is something that happened, not a rule to follow.
            return None, {"type": MemoryType.EPISODIC} if candidate.type is MemoryType.PROCEDURAL else {}
        if confirmed or (source is SourceKind.ASSISTANT and is_experience(candidate)):
            return None, {}
        return (self._settings.unconfirmed, ("not_confirmed",)), {}

    def _mask(self, candidate: Candidate) -> tuple[Candidate, tuple[PiiKind, ...], bool]:
        """The masked candidate, the kinds masked, and whether the value is still worth keeping without its secret."""
        regions = regions_of(candidate.timezone, candidate.language, self._settings.default_region)
        attribute = candidate.attribute.casefold()
        expected = PiiKind.PHONE if "phone" in attribute or "电话" in attribute else kind_of_attribute(attribute)
        fields = [
            candidate.value,
            candidate.text,
            candidate.subject,
            *(evidence.quote for evidence in candidate.evidence),
        ]
        once = {field: self._masker.find(field, regions) for field in dict.fromkeys(fields[1:])}
        first = fields[0] if expected is None else None
        value_spans = once.get(first) if first is not None else None
        if value_spans is None:
            value_spans = self._masker.find(fields[0], regions, expected=expected)
        spans = [value_spans, *(once[field] for field in fields[1:])]
        every: list[Span] = sorted({span for found in spans for span in found}, key=lambda s: -len(s.original))
        if not every:
            return candidate, (), True
        done = [
            self._masker.mask(apply_literals(apply(field, found), every), regions).text
            for field, found in zip(fields, spans, strict=True)
        ]
        evidence = tuple(
            item.model_copy(update={"quote": quote}) for item, quote in zip(candidate.evidence, done[3:], strict=True)
        )
        masked = candidate.model_copy(
            update={"value": done[0], "text": done[1], "subject": done[2], "evidence": evidence}
        )
        return masked, tuple(sorted({span.kind for span in every})), worth_keeping(done[0])

    def _reduce(self, candidate: Candidate) -> tuple[Candidate, bool]:
        how = self._settings.anonymise.get(candidate.attribute)
        if how is None or candidate.operation is not Operation.ASSERT:
            return candidate, False
        name = candidate.value
        label = reduce(name, how, candidate.language)
        evidence: tuple[Evidence, ...] = tuple(
            item.model_copy(update={"quote": replace_name(item.quote, name, label)}) for item in candidate.evidence
        )
        text = replace_name(candidate.text, name, label)
        return candidate.model_copy(update={"value": label, "text": text, "evidence": evidence}), True


def _source(candidate: Candidate, turn: Turn | None) -> SourceKind:
    """The claimed source, unless the turn's own role says otherwise: a model may not promote an assistant's words."""
    if turn is None or turn.turn_key != candidate.turn_key or candidate.source_kind is not SourceKind.USER_STATEMENT:
        return candidate.source_kind
    return {Role.ASSISTANT: SourceKind.ASSISTANT, Role.TOOL: SourceKind.TOOL_RESULT}.get(
        turn.role, candidate.source_kind
    )


def _misplaced(candidate: Candidate, turn: Turn | None) -> str | None:
    """A wrong namespace, a system prompt, or a quote that does not occur in its turn (checked before masking)."""
    if not candidate.namespace.startswith(namespace_of(candidate.owner_kind, candidate.owner, "")):
        return "foreign_namespace"
    if candidate.channel is Channel.MODEL and not any(evidence.quote.strip() for evidence in candidate.evidence):
        return "no_evidence"
    if turn is None:
        return None
    if turn.role is Role.SYSTEM and turn.turn_key == candidate.turn_key:
        return "system_text"
    said = _loose(turn.text)
    if any(item.turn_key == turn.turn_key and _loose(item.quote) not in said for item in candidate.evidence):
        return "quote_not_in_turn"
    return None


def _sensitivity(candidate: Candidate, topic: str | None, kinds: Iterable[PiiKind]) -> Sensitivity:
    level = candidate.sensitivity
    found = frozenset(kinds)
    if topic is not None or found:
        level = max(level, Sensitivity.CONFIDENTIAL, key=_RANK.__getitem__)
    if found & (IDENTITY_KINDS | {PiiKind.SECRET}):
        level = Sensitivity.RESTRICTED
    return level


def _loose(text: str) -> str:
    return _SPACE.sub("", unicodedata.normalize("NFKC", text)).casefold()


def _texts(candidate: Candidate) -> tuple[str, ...]:
    said = (candidate.attribute, candidate.value, candidate.text, *(evidence.quote for evidence in candidate.evidence))
    kept: list[str] = []
    for text in dict.fromkeys(said):
        if not any(text in other for other in said if other is not text and len(other) > len(text)):
            kept.append(text)
    return tuple(kept)


def _settings_text(settings: PolicySettings) -> str:
    masks = ",".join(sorted(settings.mask_kinds))
    reduced = ",".join(f"{key}={value}" for key, value in sorted(settings.anonymise.items()))
    return "|".join(
        (
            f"{settings.confidence_floor:.3f}",
            masks,
            reduced,
            str(settings.momentary_ttl_days),
            str(settings.require_consent),
            settings.unconfirmed,
            settings.default_region,
        )
    )
