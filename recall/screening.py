"""Recall, screening: a raw turn has not been through the policy gate, so what it may show is settled here (SPEC W7)."""

from __future__ import annotations

from processors.policy import PolicyGate
from processors.policy.threats import ThreatScanner


class TurnScreen:
    """Masks what the gate masks, and leaves out what it would lock up. May be called from several threads."""

    def __init__(self, gate: PolicyGate) -> None:
        self._gate = gate
        self._threats = ThreatScanner()

    def __call__(self, text: str) -> str | None:
        """The text as it may be shown; None: not at all."""
        if self._threats.scan(text):
            return None
        return self._gate.mask_text(text).text
