"""Gating: the policy gate of a deployment; by itself, since a judge's process needs it and little else."""

from __future__ import annotations

from processors.policy import PolicyGate, PolicySettings
from streams.settings import Settings


def make_gate(settings: Settings) -> PolicyGate:
    """The policy gate of these settings."""
    policy = PolicySettings(confidence_floor=settings.confidence_floor)
    return PolicyGate(policy, settings.hash_key.get_secret_value().encode())
